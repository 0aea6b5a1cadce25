"""A step's report has the same fields in both executions, and comes to the same figures in the driver."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import orjson
import pandas as pd
import pytest

from streams import BytesSerde, StreamsBuilder, StringSerde
from streams.config import load_config
from streams.driver.live import LiveDriver
from streams.driver.runner import StreamsApplication
from streams.engine.live.link import Link
from streams.engine.live.slot import report_of
from streams.engine.source.offsets import OffsetRange
from streams.engine.spark import worker
from streams.engine.spark.shuffle import shuffle_keys
from streams.engine.step.read import PlannedRange, read_range
from streams.metrics.application import StepFigures, StoreRestore
from streams.metrics.reports import RestoreReporter, reports_to
from streams.model.record import NO_TIME
from streams.topology.topology import Topology
from tests.live.test_task import APP, World

HOST, WAIT_S = "127.0.0.1", 30.0
RECORDS = [(b"a", 1), (b"b", 2), (b"c", 5)]
MEASURED = {"seconds", "total_s", "cpu_s", "attempt", "batch_id", "rss_bytes", "peak_rss_bytes"}
"""What differs from step to step, or says which execution it was."""


def counted() -> Topology:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=BytesSerde())
    builder.stream("in").group_by_key().count().to_stream().to("out")
    return builder.build()


def live_report() -> Mapping[str, Any]:
    """As a slot says it, over the connection to the driver."""
    heard: queue.Queue[Mapping[str, Any]] = queue.Queue()
    world = World(counted())
    world.send("in", RECORDS)
    with LiveDriver(HOST, HOST, heard.put) as driver, world.task() as task:
        world.run(task)
        link = Link.to(driver.address)
        link.tell({"sub": world.sub.name, "report": report_of(task, task.tally)})
        found = heard.get(timeout=WAIT_S)
        link.close()
    return found


class State:
    """Spark's state of a group that has none yet."""

    getOption = None

    def getCurrentProcessingTimeMs(self) -> int:
        return 10_000

    def update(self, _: tuple[Any, ...]) -> None:
        """Spark keeps it."""


def micro_batch_report(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """As Spark brings it, as the result of the task."""
    world = World(counted())
    world.send("in", RECORDS)
    access = world.task().access
    columns = world.kafka.columns("in", 0)
    assert columns is not None
    planned = PlannedRange("batch", world.kafka.topic_ids(["in"])["in"], OffsetRange("in", 0, 0, 3), time=NO_TIME)
    key = shuffle_keys(1)[0]
    rows = [
        (key, *(getattr(row, name) for name in worker.ROW_SCHEMA.names[1:]))
        for row in read_range(world.job, planned, [columns])
    ]
    properties = {worker.BATCH_ID: "0", worker.QUERY_ID: "query", worker.RUN_ID: "run"}
    context = SimpleNamespace(getLocalProperty=properties.get, attemptNumber=lambda: 0)
    monkeypatch.setattr(worker, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(worker, "job_of_worker", lambda _: world.job)
    monkeypatch.setattr(worker, "task_step", lambda *_, **__: access._replace(kafka=SimpleNamespace(topics=None)))
    frames = [pd.DataFrame(rows, columns=worker.ROW_SCHEMA.names)]
    (result,) = worker.task_function(b"")((key,), frames, State())
    return {"sub": world.sub.name, **orjson.loads(result.report[0])}


def test_the_same_step_is_reported_alike_and_comes_to_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    live, batch = live_report(), micro_batch_report(monkeypatch)
    assert live["report"].keys() == batch["report"].keys()
    figures = [StepFigures.of(one["report"]) for one in (live, batch)]
    for name in StepFigures.__dataclass_fields__.keys() - MEASURED - {"live"}:
        assert getattr(figures[0], name) == getattr(figures[1], name), name
    assert figures[0].records_in == 3
    assert figures[0].live
    assert not figures[1].live
    seen = []
    for message in (live, batch):
        application = StreamsApplication(
            counted(), load_config(None, {"application_id": APP, "bootstrap_servers": "nowhere:1"})
        )
        application.progress.started(message["sub"], 1, ("in",))
        application._hear(message)
        sub = application.progress.metrics.snapshot().sub_topologies[message["sub"]]
        seen.append((sub.counters, sub.records_in, sub.records_out, sub.changelog_records, sub.event_time_ms))
    assert seen[0] == seen[1]


def test_a_restore_is_seen_while_it_runs_in_both_executions() -> None:
    """A slot says it by the connection that it has, a task of a micro-batch by one of its own."""
    application = StreamsApplication(
        counted(), load_config(None, {"application_id": APP, "bootstrap_servers": "nowhere:1"})
    )
    metrics = application.progress.metrics
    application.progress.started("in", 2, ("in",))
    metrics.begun("in")
    with LiveDriver(HOST, HOST, application._hear) as driver, reports_to(driver.address) as tell:
        link = Link.to(driver.address)
        assert tell is not None
        for task, way in enumerate((link.tell, tell)):
            reporter = RestoreReporter(way, "in")
            reporter.on_start("counts", task, 100)
            reporter.on_batch("counts", task, 0, 0, 100)
        deadline = time.monotonic() + WAIT_S
        while len(metrics.snapshot().sub_topologies["in"].running_restores) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        link.close()
    expected = {(task, "counts"): StoreRestore(100, 100) for task in range(2)}
    assert metrics.snapshot().sub_topologies["in"].restores == expected
