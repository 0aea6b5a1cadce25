"""The lake sinks of an application: what starts their queries, and how their batches appear in the progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streams.application.prepare import Application
from streams.spark.lake.crash import faults_from_environment
from streams.spark.lake.query import LakeRun
from streams.spark.progress import Progress
from streams.spark.stopping import StopGate
from streams.topology.graph import LakeSink


def lake_starts(
    session: SparkSession,
    application: Application,
    trigger: Mapping[str, Any],
    gates: dict[str, StopGate],
    progress: Progress,
) -> list[Callable[[], StreamingQuery]]:
    """What starts the query of each lake sink.

    Args:
        session: The Spark session.
        application: The application.
        trigger: Arguments of `DataStreamWriter.trigger`.
        gates: Where the gates that stop the queries are put, by `runId`.
        progress: Shows each batch.

    Raises:
        LakeError: A sink cannot continue; nothing of the application has run.
    """

    def batch(sink: str, batch_id: int, version: int, offsets: int, seconds: float) -> None:
        progress.step(sink, batch_id, [_report(version, offsets, seconds)])

    run = LakeRun(session, application, trigger, gates, batch, faults_from_environment())
    sinks = application.plan.topology.lake_sinks.values()
    for sink in sinks:
        run.check(sink)

    def start(sink: LakeSink) -> StreamingQuery:
        progress.started(sink.name, 1, (sink.topic.topic_name(application.config.application_id),))
        return run.start(sink)

    return [partial(start, sink) for sink in sinks]


def _report(version: int, offsets: int, seconds: float) -> Mapping[str, Any]:
    """A batch as the report of a step: a sink is shown as a sub-topology with one task, which reads and keeps no state."""
    return {
        "task": 0,
        "version": version,
        "decision": "run",
        "counts": {"in": offsets, "out": offsets, "changelog": 0},
        "counters": {},
        "stream_time": -1,
        "seconds": {"process": seconds},
        "total_s": seconds,
        "cpu_s": 0.0,
        "peak_rss_mb": 0,
    }
