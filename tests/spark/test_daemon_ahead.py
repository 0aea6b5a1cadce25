"""The daemon that is started before Spark asks for it; the process that Spark starts is played by one of this test. No Spark."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.driver.launch.settings import SPARK_SETTINGS
from streams.engine.spark import daemon_ahead as ahead

SETTINGS = {**SPARK_SETTINGS, "spark.master": "local[2,4]"}
TO_HAND_OVER = "import sys; from streams.engine.spark.daemon_ahead import hand_over; sys.exit(0 if hand_over() else 3)"
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The daemons that were started; they import nothing, so that the test is fast."""
    found: list[subprocess.Popen[bytes]] = []
    program = (
        "import os, struct, sys\n"
        "from streams.engine.spark.daemon_ahead import become_daemon\n"
        "if become_daemon(int(sys.argv[-1]), lambda: None):\n"
        "    told = ' '.join([os.environ['SPARK_SECRET'], sys.argv[-1], os.getcwd()]).encode()\n"
        "    os.write(1, struct.pack('!i', os.getpid()) + told)\n"
        "    os.read(0, 1)\n"
    )

    def start(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        found.append(subprocess.Popen([sys.executable, "-c", program, command[-1]], **more))
        return found[-1]

    monkeypatch.setattr(ahead, "subprocess", SimpleNamespace(Popen=start, PIPE=subprocess.PIPE))
    return found


@contextmanager
def spark_asks(folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """What Spark starts as its daemon."""
    environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ, "SPARK_SECRET": "abc", **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", TO_HAND_OVER, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(WAIT_S)


def test_the_daemon_that_was_started_ahead_takes_the_place_of_spark_s(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with ahead.daemon_ahead(SETTINGS), spark_asks(tmp_path) as asked:
        (number,) = struct.unpack("!i", asked.stdout.read(4))  # type: ignore[union-attr]
        assert number == started[0].pid
        asked.stdin.close()  # type: ignore[union-attr]
        assert asked.stdout.read().decode().split() == ["abc", "pyspark.worker", str(tmp_path)]  # type: ignore[union-attr]
        assert asked.wait(WAIT_S) == 0, "it ends with the other one"
    assert started[0].wait(WAIT_S) == 0


def test_a_signal_for_the_process_of_spark_reaches_the_daemon(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with ahead.daemon_ahead(SETTINGS), spark_asks(tmp_path) as asked:
        asked.stdout.read(4)  # type: ignore[union-attr]
        asked.send_signal(signal.SIGTERM)
        assert started[0].wait(WAIT_S) == -signal.SIGTERM
        assert asked.wait(WAIT_S) == 0


def test_only_one_is_taken(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    with ahead.daemon_ahead(SETTINGS), spark_asks(tmp_path) as first:
        first.stdout.read(4)  # type: ignore[union-attr]
        with spark_asks(tmp_path) as second:
            assert second.wait(WAIT_S) == 3, "Spark's second daemon imports by itself"


def test_other_variables_need_another_process(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    with ahead.daemon_ahead(SETTINGS), spark_asks(tmp_path, OMP_NUM_THREADS="7") as asked:
        assert asked.wait(WAIT_S) == 3
        assert started[0].wait(WAIT_S) == 0


def test_it_ends_with_the_driver_if_spark_never_asks(started: list[subprocess.Popen[bytes]]) -> None:
    with ahead.daemon_ahead(SETTINGS):
        place = Path(os.environ[ahead.PLACE])
        assert place.exists()
        time.sleep(0.1)
        assert started[0].poll() is None
    assert started[0].wait(WAIT_S) == 0
    assert not place.parent.exists()
    assert ahead.PLACE not in os.environ


@pytest.mark.parametrize(
    "other",
    [
        {"spark.master": "yarn"},
        {"spark.master": "local-cluster[2,1,1024]"},
        {"spark.pyspark.python": "/other/python"},
        {"spark.python.daemon.module": "pyspark.daemon"},
    ],
)
def test_workers_elsewhere_have_daemons_of_their_own(
    other: Mapping[str, str], started: list[subprocess.Popen[bytes]]
) -> None:
    with ahead.daemon_ahead({**SETTINGS, **other}):
        assert ahead.PLACE not in os.environ
    assert not started


def test_a_path_that_is_too_long_for_a_socket_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(ahead.tempfile, "mkdtemp", lambda prefix: str(long))
    with ahead.daemon_ahead(SETTINGS):
        assert ahead.PLACE not in os.environ
    assert not started


def test_the_collector_waits_until_everything_is_imported() -> None:
    program = (
        "import gc, sys\n"
        "from types import SimpleNamespace\n"
        "from streams.engine.spark.daemon import YOUNG_OBJECTS, preload\n"
        "seen = []\n"
        "see = SimpleNamespace(warm_up=lambda: seen.append(gc.isenabled()))\n"
        "names = 'pandas pyarrow pyarrow.json pyspark pyspark.worker streams.engine.spark.worker streams.engine.spark.warm_up'\n"
        "sys.modules.update(dict.fromkeys(names.split(), see))\n"
        "preload()\n"
        "assert seen == [False], seen\n"
        "assert gc.isenabled() and gc.get_threshold()[0] == YOUNG_OBJECTS and gc.get_freeze_count()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_S)
