"""The memory of processes by role: this one's tree, and workers elsewhere as they have reported themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streams.metrics.memory import WORKER, MemoryMeter, about_this_process, host_name, role_of
from tests.metrics.made import recorder, step

SLEEPER = "import sys; print('ready', flush=True); sys.stdin.read()"


def test_this_process_and_those_below_it_are_measured() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, "pyspark.daemon"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = {one.role: one for one in MemoryMeter().here()}
    finally:
        child.communicate()
    assert found["driver"].processes == 1
    assert found[WORKER].processes >= 1
    assert all(one.host == host_name() and one.rss_bytes > 1_000_000 for one in found.values())
    pss = found["driver"].pss_bytes
    assert pss is None or 0 < pss <= found["driver"].rss_bytes * 1.1


def test_workers_on_other_hosts_are_known_by_their_last_steps() -> None:
    here = about_this_process()
    elsewhere = [step(task, host="b", pid=task % 2, rss_bytes=100) for task in range(3)]
    app = recorder((step(3, **here), *elsewhere)).measured()
    (other,) = [one for one in app.processes if one.host == "b"]
    assert (other.role, other.processes, other.rss_bytes, other.pss_bytes) == (WORKER, 2, 200, None)


@pytest.mark.parametrize(
    ("name", "line", "role"),
    [
        ("java", "java -cp x --conf spark.python.daemon.module=streams.spark.daemon pyspark-shell", "java"),
        ("java", "java -Xmx512m kafka.Kafka server.properties", "broker"),
        ("python3", "python3 -m streams.spark.daemon pyspark.worker", WORKER),
        ("python3", "python3 -m pyspark.sql.streaming.python_streaming_source_runner", "planner"),
        ("sh", "sh -c true", "other"),
    ],
)
def test_a_process_has_its_role_by_what_it_runs(name: str, line: str, role: str) -> None:
    assert role_of(name, line) == role
