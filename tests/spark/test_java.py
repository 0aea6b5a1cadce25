"""What Spark's Java process prints is passed on, save the chatter of its start. (No Java runs here.)"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import streams.driver.session
import streams.engine.spark
from state import secrets
from streams.broker.class_archive import is_whole
from streams.driver import session
from streams.driver.java import (
    has_gone,
    needs_java,
    on_the_command_line,
    pass_on,
    write_files_without_processes,
)
from streams.driver.launch import ahead
from streams.driver.launch.ahead import session_ahead, start_session, starts_ahead
from streams.driver.launch.settings import archive, archive_options
from streams.errors import ApplicationFailedError

CHATTER = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
    "26/11/22 09:22:02 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead",
    "26/11/22 09:22:02 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address",
    "26/11/22 09:22:04 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin",
]
TOLD = [
    "WARNING: Using incubator modules: jdk.incubator.concurrent",
    "26/11/22 09:22:04 ERROR SparkContext: Error initializing SparkContext.",
    "Error: Could not create the Java Virtual Machine.",
    "26/11/22 09:22:02 WARN Utils: Service 'SparkUI' could not bind on port 4040.",
]


def passed_on(*blocks: bytes) -> bytes:
    source, writing = os.pipe()
    reading, target = os.pipe()
    for block in blocks:
        os.write(writing, block)
    os.close(writing)
    pass_on(source, target)
    os.close(target)
    with os.fdopen(reading, "rb") as found:
        return found.read()


@pytest.mark.parametrize("line", CHATTER)
def test_chatter_is_left_out(line: str) -> None:
    assert passed_on(f"{line}\n".encode()) == b""


@pytest.mark.parametrize(
    "message", ["Your hostname, vm, resolves", "Set SPARK_LOCAL_IP if you", "Unable to load native-hadoop library"]
)
def test_chatter_is_left_out_of_the_structured_log_too(message: str) -> None:
    line = f'{{"ts":"2026-11-22T09:22:02Z","level":"WARN","msg":"{message}","logger":"Utils"}}'
    assert passed_on(f"{line}\n".encode()) == b""


def test_what_java_prints_has_no_secret() -> None:
    secrets.remember({"sasl.password": "canary"})
    assert passed_on(b"login with canary\nand canary") == b"login with ********\nand ********"


def test_the_command_line_of_java_has_no_secret() -> None:
    settings = {
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": "s",
        "spark.executorEnv.DB_PASSWORD": "s",
        "spark.sql.catalog.url": "jdbc://user:s@host/db",
    }
    assert on_the_command_line(settings) == {"spark.driver.memory": "1g"}


@pytest.mark.parametrize("line", TOLD)
def test_everything_else_is_passed_on(line: str) -> None:
    assert passed_on(f"{line}\n".encode()) == f"{line}\n".encode()


def test_what_comes_last_needs_no_end_of_line() -> None:
    assert passed_on(b"Fatal Python error: Segm", b"entation fault") == b"Fatal Python error: Segmentation fault"


class Session:
    """Stands for a session of a Spark that was started."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.stop = self.ended.set


ASKED = ("app", {"spark.ui.enabled": "false"}, "/checkpoint")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Session:
    one = Session()
    monkeypatch.setattr(session, "start_with", lambda settings, delta, late: one)
    for name in ("daemon_ahead", "java_ahead"):
        monkeypatch.setattr(ahead, name, lambda settings: nullcontext())
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return one


def test_who_asks_for_the_session_that_was_started_ahead_gets_it(started: Session) -> None:
    with session_ahead(*ASKED):
        assert starts_ahead()
        assert start_session(*ASKED) is started
    assert not started.ended.is_set()
    assert not starts_ahead()


def test_a_session_that_was_started_ahead_for_nobody_is_ended(
    started: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session_ahead(*ASKED):
        monkeypatch.setattr(session, "start_with", lambda settings, delta, late: "another")
        assert start_session("other", *ASKED[1:]) == "another"
    assert started.ended.wait(60)


def test_another_session_waits_for_one_that_was_started_ahead_for_nobody(
    started: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that start Java at once would take each other's connection."""
    going_on, order = threading.Event(), []

    def start(settings: object, delta: bool, late: bool) -> Session:
        if threading.current_thread() is not threading.main_thread():
            going_on.wait(60)
        order.append(threading.current_thread().name)
        return started

    monkeypatch.setattr(session, "start_with", start)
    with session_ahead(*ASKED):
        pass
    threading.Timer(0.2, going_on.set).start()
    assert start_session("other", *ASKED[1:]) is started
    assert order == ["start-spark", threading.main_thread().name]
    assert started.ended.is_set()


def test_a_failure_to_start_ahead_is_raised_where_the_session_is_needed(
    started: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no Java")

    monkeypatch.setattr(session, "start_with", fail)
    with session_ahead(*ASKED), pytest.raises(OSError, match="no Java"):
        start_session(*ASKED)


def test_pyspark_looks_for_numpy_s_types_without_its_test_utilities() -> None:
    program = (
        "import sys, numpy as np; from pyspark.sql.types import NumpyArrayConverter as A, NumpyScalarConverter as S;"
        "from streams.driver.java import convert_without_imports; convert_without_imports();"
        "given = (np.zeros(1), np.zeros((1, 1)), np.int64(1), 1, 'text');"
        "print([A().can_convert(one) for one in given], [S().can_convert(one) for one in given], 'pandas' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert said.strip() == f"{[True, *[False] * 4]} {[False, False, True, False, False]} False"


# --- What the driver says when Spark's Java process has gone; a process that is really killed is in `test_processes`.


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a Java process would listen; and a process that was killed."""
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killed.kill()
    killed.wait()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address, port = listening.getsockname()
        gateway = SimpleNamespace(gateway_parameters=SimpleNamespace(address=address, port=port), proc=killed)
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        yield listening


def fails(error: Exception, stopping: bool = False) -> None:
    with needs_java(lambda: stopping):
        raise error


def test_an_error_while_it_is_there_is_that_error(listening: socket.socket) -> None:
    with pytest.raises(ValueError, match="mine"):
        fails(ValueError("mine"))
    assert not has_gone()


def test_all_errors_after_its_end_are_one_sentence(listening: socket.socket) -> None:
    listening.close()
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(), AttributeError("x")):
        with pytest.raises(
            ApplicationFailedError, match=r"Spark's Java process has ended \(SIGKILL\)\. Nothing half-done"
        ):
            fails(error)
    assert has_gone()


def test_a_stop_that_ends_it_is_no_error(listening: socket.socket) -> None:
    listening.close()
    fails(Py4JNetworkError("Answer from Java side is empty"), stopping=True)


@pytest.mark.parametrize("stopping", [True, False])
def test_a_signal_that_reaches_both_processes_ends_both(listening: socket.socket, stopping: bool) -> None:
    """Java has stopped Spark, and still listens."""
    stopped = Py4JError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
    with nullcontext() if stopping else pytest.raises(Py4JError):
        fails(stopped, stopping=stopping)


@pytest.mark.parametrize("stopping", [True, False])
def test_it_may_end_before_its_first_answer(monkeypatch: pytest.MonkeyPatch, stopping: bool) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with nullcontext() if stopping else pytest.raises(ApplicationFailedError, match="Java process has ended"):
        fails(Py4JNetworkError("Error while sending or receiving"), stopping=stopping)


def test_before_it_has_started_it_has_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert not has_gone()


# --- The archive of Spark's classes: recorded once, used when it is whole, and never needed.

COUNT_PROGRAM = """
from streams.driver.launch.ahead import start_session
session = start_session("t", {"spark.master": "local[1]", "spark.ui.enabled": "false"}, sys.argv[1])
print(session.range(3).count(), session.sparkContext.getConf().get("spark.driver.extraJavaOptions"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are, in an environment of this test's own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive().parent.mkdir(parents=True)
    return archive().parent


def write(size: int, noted: str) -> None:
    archive().write_bytes(bytes(size))
    archive().with_suffix(".size").write_text(noted)


def test_an_archive_counts_only_whole(folder: Path) -> None:
    assert archive_options() == ""
    for size, noted in ((10, "11"), (10, "")):
        write(size, noted)
        assert (is_whole(archive()), archive_options()) == (False, "")
    write(10, "10\n")
    assert archive_options() == (
        f" -XX:SharedArchiveFile={archive()} -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Xlog:disable"
    )


def test_another_java_has_another_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive()
    monkeypatch.setenv("JAVA_HOME", str(folder))
    assert archive() != before


@pytest.mark.long
@pytest.mark.spark
def test_spark_starts_from_a_recorded_archive_and_without_a_fitting_one(folder: Path, tmp_path: Path) -> None:
    def run(program: str) -> str:
        command = [sys.executable, "-c", f"import sys; sys.prefix = {str(tmp_path)!r}; {program}", str(tmp_path)]
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    write(10, "10\n")  # no archive at all, though as large as noted: Java leaves it alone
    assert run(COUNT_PROGRAM).startswith("3 ")
    archive().unlink()
    run("from streams.driver.record_classes import record_spark; record_spark()")
    assert is_whole(archive())
    assert sorted(path.name for path in folder.iterdir()) == [archive().name, archive().with_suffix(".size").name]
    assert str(archive()) in run(COUNT_PROGRAM)


# --- Spark's local files are written by Java itself, with the same permissions and checksums as by Hadoop's own class.


@pytest.mark.slow
@pytest.mark.spark
def test_local_files_need_no_other_process(spark: SparkSession, tmp_path: Path) -> None:
    assert write_files_without_processes(spark)
    assert write_files_without_processes(spark), "once is enough"
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "file"))
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert files.getClass().getName() == "streams.LocalFiles"
    files.create(path, True).close()
    files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("640"))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert (tmp_path / ".file.crc").exists()


# --- What Spark's Python processes import, and from where; no Spark is started.

PACKAGE = Path(pyspark.__file__).parent
STARTUP = Path(streams.engine.spark.__file__).parent / "startup"
ARCHIVES = [*sorted((PACKAGE / "python" / "lib").glob("*.zip")), *sorted((PACKAGE / "jars").glob("spark-core_*.jar"))]
PROGRAM = "import sys, pyspark; print(pyspark.__file__); print([e for e in sys.path if e.endswith(('.zip', '.jar'))])"


def run(*path: Path, program: str = PROGRAM) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_pyspark_comes_from_the_installed_package(tmp_path: Path) -> None:
    assert len(ARCHIVES) == 3
    foreign = tmp_path / "users.zip"
    foreign.touch()
    assert run(*ARCHIVES)[0].startswith(str(ARCHIVES[1]))
    file, archives = run(*ARCHIVES, foreign, STARTUP)
    assert file == str(PACKAGE / "__init__.py")
    assert str(foreign) in archives
    assert not any(str(archive) in archives for archive in ARCHIVES)


@pytest.mark.slow
def test_the_daemon_of_a_cluster_s_executor_needs_no_sitecustomize_for_that(tmp_path: Path) -> None:
    other = tmp_path / "pyspark.zip"
    other.write_bytes(ARCHIVES[1].read_bytes())
    program = f"from streams.engine.spark.daemon import drop_archives; drop_archives(); {PROGRAM}"
    file, archives = run(*ARCHIVES, program=program)
    assert file == str(PACKAGE / "__init__.py")
    assert not any(str(archive) in archives for archive in ARCHIVES)
    assert run(other, ARCHIVES[0], program=program)[0].startswith(str(other)), "of another Spark"


@pytest.mark.slow
def test_another_spark_s_archives_stay(tmp_path: Path) -> None:
    other = tmp_path / "pyspark.zip"
    other.write_bytes(ARCHIVES[1].read_bytes())
    assert run(other, ARCHIVES[0], STARTUP)[0].startswith(str(other))


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    assert run(*ARCHIVES, STARTUP, tmp_path)[:2] == ["theirs", str(PACKAGE / "__init__.py")]
