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
from streams.spark.reports.batch_report import batch_report
from streams.spark.stopping import StopGate
from streams.topology.graph import LakeSink


def lake_starts(
    session: SparkSession,
    application: Application,
    trigger: Mapping[str, Any],
    gates: dict[str, StopGate],
    progress: Progress,
) -> tuple[list[Callable[[], StreamingQuery]], Application]:
    """What starts the query of each lake sink, and the application that also checks rows by the rules of their tables.

    Raises:
        LakeError: A sink cannot continue; nothing of the application has run.
    """

    def batch(sink: str, batch_id: int, version: int, offsets: int, seconds: float) -> None:
        progress.step(sink, batch_id, [batch_report(version, offsets, offsets, {"process": seconds})])

    run = LakeRun(session, application, trigger, gates, batch, faults_from_environment())
    sinks = application.plan.topology.lake_sinks.values()
    rules = {sink.name: run.check(sink) for sink in sinks}

    def start(sink: LakeSink) -> StreamingQuery:
        progress.started(sink.name, 1, (sink.topic.topic_name(application.config.application_id),))
        return run.start(sink)

    return [partial(start, sink) for sink in sinks], application.with_rules(rules)
