"""What the driver makes of the figures of steps: totals that never fall, lag, and whether the application works."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.codec import timestamped
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.engine.step.step import figures_of, restored
from streams.metrics.application import (
    BOUNDS,
    Histogram,
    MicroBatchFigures,
    NodeMetrics,
    PartitionMetrics,
    PartitionTime,
    RestoreFigures,
    StateSize,
    StepFigures,
    StoreRestore,
    StoreSize,
)
from streams.metrics.memory import WORKER, MemoryMeter, about_this_process, host_name, role_of
from streams.metrics.recorder import START, MetricsRecorder
from tests.metrics.made import NOW_MS, recorder, step
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random


def test_totals_add_up_over_steps_and_tasks() -> None:
    sub = recorder((step(0), step(1)), (step(0, 2),)).snapshot().sub_topologies["sub"]
    assert (sub.records_in, sub.records_out, sub.changelog_records) == (15, 9, 6)
    assert (sub.micro_batches, sub.batch_id, sub.committed_ms, sub.event_time_ms) == (2, 1, NOW_MS, 7)
    assert (sub.tasks[0].version, sub.tasks[0].steps, sub.tasks[0].records_in) == (2, 2, 10)
    assert sub.tasks[0].durations["process"].count == 2
    assert sub.tasks[1].durations["total"].sum_s == pytest.approx(0.25)


def test_a_query_that_starts_again_continues_its_totals() -> None:
    made = recorder((step(0),))
    made.starting("sub", 2, ("in",))
    made.step("sub", 1, (step(0, 2),))
    sub = made.snapshot().sub_topologies["sub"]
    assert (sub.starts, sub.records_in) == (2, 10)


def test_a_committed_step_that_is_found_again_counts_once() -> None:
    """Reported before: not again. Its worker died before the report: with the attempt that finds the commit."""
    seen = recorder((step(0, 1, counters={"in:a": 5}),), (step(0, 1, decision="skip", counters={"in:a": 5}),))
    assert seen.snapshot().sub_topologies["sub"].counters == {"in:a": 5}
    assert seen.snapshot().sub_topologies["sub"].records_in == 5
    died = recorder((step(0, 1, counters={"in:a": 5}),), (step(0, 2, decision="skip", counters={"in:a": 5}),))
    assert died.snapshot().sub_topologies["sub"].counters == {"in:a": 10}
    (task,) = died.snapshot().sub_topologies["sub"].tasks.values()
    assert (task.records_in, task.steps, task.skipped_steps) == (10, 1, 1)


def test_failed_attempts_add_up() -> None:
    made = recorder((step(0), step(1, attempt=1)), (step(1, 2, attempt=2),))
    tasks = made.snapshot().sub_topologies["sub"].tasks
    assert (tasks[0].failed_attempts, tasks[1].failed_attempts) == (0, 3)


def test_a_commit_of_an_earlier_process_is_not_counted() -> None:
    sub = recorder((step(0, 9, decision="skip"),)).snapshot().sub_topologies["sub"]
    assert (sub.records_in, sub.tasks[0].version) == (0, 9)


def test_counters_are_sorted_by_operator_and_stage() -> None:
    counters = {
        "in:join": 5,
        "out:join": 2,
        "dropped:join:late": 1,
        "dropped:join:processing": 2,
        "one_by_one:join:its time: unknown": 4,
        "calls:enrich": 7,
        "dead_letters:enrich": 1,
        "skipped:processing": 2,
        "dead_letters:production": 3,
        "restored_from_copy": 1,
    }
    sub = recorder((step(counters=counters),)).snapshot().sub_topologies["sub"]
    assert sub.operators == {
        "join": NodeMetrics(5, 2, {"late": 1, "processing": 2}, {"its time: unknown": 4}),
        "enrich": NodeMetrics(other={"calls": 7, "dead_letters": 1}),
    }
    assert (sub.skipped, sub.dead_letters) == ({"processing": 2}, {"production": 3})


def test_lag_is_known_by_partition_once_spark_has_reported_it() -> None:
    made = recorder((step(event_times=[["in", 0, 70]]),))
    assert made.snapshot().sub_topologies["sub"].lag is None
    made.positions("sub", {("in", 0): (4, 7), ("in", 1): (9, 9)})
    sub = made.snapshot().sub_topologies["sub"]
    assert sub.lag == 3
    assert sub.partitions["in", 0] == PartitionMetrics(4, 7, 70)


def test_state_and_restores_stay_known_between_the_steps_that_measure_them() -> None:
    state = {"disk_bytes": 4096, "stores": {"counts": [10, 200]}}
    restored = {"records": 10, "rows": 9, "bytes": 300, "copies": 0, "seconds": 0.5}
    made = recorder((step(0, 1, state=state, restore=restored),), (step(0, 2),), (step(0, 3, restore=restored),))
    task = made.snapshot().sub_topologies["sub"].tasks[0]
    assert task.state == StateSize(4096, {"counts": StoreSize(10, 200)})
    assert task.restored == RestoreFigures(20, 18, 600, 0, 1.0)


def test_a_snapshot_does_not_change_when_time_goes_on() -> None:
    made = recorder((step(counters={"in:a": 1}),))
    before = made.snapshot()
    made.step("sub", 1, (step(0, 2, counters={"in:a": 1}),))
    assert before.sub_topologies["sub"].counters == {"in:a": 1}
    assert made.snapshot().sub_topologies["sub"].counters == {"in:a": 2}


def test_a_micro_batch_runs_until_its_steps_are_there() -> None:
    made = recorder()
    made.begun("sub")
    assert made.snapshot().sub_topologies["sub"].running_since_ms == NOW_MS
    made.step("sub", 0, (step(),))
    assert made.snapshot().sub_topologies["sub"].running_since_ms is None
    made.begun("sub")
    made.starting("sub", 2, ("in",))
    assert made.snapshot().sub_topologies["sub"].running_since_ms is None


def test_live_tasks_that_wait_for_records_do_not_look_like_a_micro_batch_that_hangs() -> None:
    made = recorder()
    made.begun("sub")
    made.restoring("sub", 0, "counts", StoreRestore(10, 5))
    made.waits("sub")
    assert made.snapshot().sub_topologies["sub"].running_since_ms == NOW_MS, "another task is restored meanwhile"
    made.restoring("sub", 0, "counts", StoreRestore(10, 0))
    made.waits("sub")
    assert made.snapshot().sub_topologies["sub"].running_since_ms is None


def test_a_listener_gets_each_micro_batch_and_its_errors_have_no_effect() -> None:
    made = MetricsRecorder("app", lambda: NOW_MS)
    seen: list[MicroBatchFigures] = []

    def fails(batch: MicroBatchFigures) -> None:
        raise RuntimeError("the listener's own")

    made.listen(fails)
    made.listen(seen.append)
    made.starting("sub", 1, ("in",))
    made.step("sub", 4, (step(0, 5),))
    assert [(one.sub_topology, one.batch_id, one.records_in, one.records_out) for one in seen] == [("sub", 4, 5, 3)]


def test_figures_are_json_as_they_are() -> None:
    made = recorder()
    batch = made.step("sub", 0, (step(event_times=[["in", 0, 70]], state={"disk_bytes": 1, "stores": {"s": [1, 2]}}),))
    data = orjson.loads(orjson.dumps(batch))
    assert data["steps"][0]["event_times"] == [{"topic": "in", "partition": 0, "event_time_ms": 70}]
    assert batch.steps[0].event_times == (PartitionTime("in", 0, 70),)


def test_readiness_says_what_is_missing() -> None:
    made = recorder()
    assert made.readiness().why == ("the application is starting; the sub-topology sub has not finished its first step")
    made.obstacle(START, None)
    assert not made.readiness().ready
    made.positions("sub", {("in", 0): (0, 0)})
    assert made.readiness().ready
    made.obstacle("broker", "the broker at host:9092 does not answer")
    assert (made.readiness().alive, made.readiness().ready) == (True, False)
    made.obstacle("broker", None)
    assert made.readiness().ready
    made.failed("out of luck")
    assert (made.readiness().alive, made.readiness().why) == (False, "app has ended with an error: out of luck")


def test_a_histogram_counts_each_duration_in_one_bucket() -> None:
    found = Histogram().with_one(0.001).with_one(0.0011).with_one(1000).plus(Histogram().with_one(0.3))
    assert found.count == 4
    assert found.sum_s == pytest.approx(1000.3021)
    assert dict(found.cumulative())[0.001] == 1
    assert dict(found.cumulative())[0.0025] == 2
    assert found.cumulative()[len(BOUNDS)] == (float("inf"), 4)


# --- What a worker reports about its stores comes through JSON to the driver.


def reported(marker: CommitMarker, stores: TaskStateManager) -> StepFigures:
    made = figures_of(
        marker, stores, {**marker.counts, "in": 1, "out": 1}, {}, {}, {}, task=0, restore=restored(stores.report)
    )
    found = StepFigures.of(orjson.loads(orjson.dumps(asdict(made))))
    assert found == made
    return found


def test_sizes_and_restores_come_through(tmp_path: Path) -> None:
    logs, live = MemoryLogs(), TaskStore(MemoryTable(), SPECS)
    write_random(live, random.Random(4), now=20)
    live.store("table").put(b"sure", timestamped(b"v", 1), 1)
    marker = marker_of(commit(live, logs, 1))
    identity = TaskIdentity(APPLICATION, "orders", 0, 1, "query", "hash")
    memory = WorkerMemory()
    first, second = (TaskStateManager(logs, identity, SPECS, tmp_path, memory=memory) for _ in range(2))
    for stores in (first, second):
        with stores.open() as store:
            stores.restore_to(store, marker)
    figures, later = (reported(marker, stores) for stores in (first, second))
    assert figures.state is not None
    assert figures.state.disk_bytes > 0
    assert figures.state.stores["table"].rows == len(list(live.rows("table")))
    assert figures.restore is not None
    assert figures.restore.records >= figures.restore.rows > 0
    # Nothing to restore, and measured a moment ago.
    assert (later.state, later.restore) == (None, None)


# --- The memory of processes by role: this one's tree, and workers elsewhere as they have reported themselves.

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
        ("java", "java -cp x --conf spark.python.daemon.module=streams.engine.spark.daemon pyspark-shell", "java"),
        ("java", "java -Xmx512m kafka.Kafka server.properties", "broker"),
        ("python3", "python3 -m streams.engine.spark.daemon pyspark.worker", WORKER),
        ("python3", "python3 -m pyspark.sql.streaming.python_streaming_source_runner", "planner"),
        ("sh", "sh -c true", "other"),
    ],
)
def test_a_process_has_its_role_by_what_it_runs(name: str, line: str, role: str) -> None:
    assert role_of(name, line) == role
