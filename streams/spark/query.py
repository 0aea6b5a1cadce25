"""The streaming query of one sub-topology: source, shuffle by task, the task function, reports back to the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming import StreamingQuery

from streams.microbatch.job import QueryJob
from streams.spark.checkpoint_files import checkpoint_of_query
from streams.spark.job import dump_job
from streams.spark.source import source_class
from streams.spark.stopping import BatchInterruptedError, StopGate
from streams.spark.task_function import REPORT_SCHEMA, STATE_SCHEMA, task_function

Report = Mapping[str, Any]
"""A task's report of one step: see `streams.spark.task_function`."""


def start_query(
    session: SparkSession,
    job: QueryJob,
    checkpoint_dir: str,
    trigger: Mapping[str, Any],
    on_begin: Callable[[], object],
    on_reports: Callable[[int, list[Report]], None],
    gate: StopGate,
    source_class: Callable[[QueryJob], type[DataSource]] = source_class,
) -> StreamingQuery:
    """Starts the query of a sub-topology."""
    source = source_class(job)
    session.dataSource.register(source)
    # Spark captures this setting when the query starts and fixes it in the checkpoint: one shuffle partition for each task.
    session.conf.set("spark.sql.shuffle.partitions", str(job.tasks))
    steps = (
        session.readStream.format(source.name())
        .load()
        .groupBy("task_key")
        .applyInPandasWithState(task_function(dump_job(job)), REPORT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout")
    )

    return (
        steps.writeStream.queryName(f"{job.settings.application_id}/{job.sub.name}")
        .outputMode("append")
        .option("checkpointLocation", checkpoint_of_query(checkpoint_dir, job.sub.name))
        .trigger(**trigger)
        .foreachBatch(_collector(gate, on_begin, on_reports))
        .start()
    )


def _collector(
    gate: StopGate, on_begin: Callable[[], object], on_reports: Callable[[int, list[Report]], None]
) -> Callable[[DataFrame, int], None]:
    """The function that runs each micro-batch, by collecting the reports of its tasks."""

    def collect(frame: DataFrame, batch_id: int) -> None:
        gate.enter()
        on_begin()
        try:
            rows = frame.collect()
        except Exception:
            if gate.closed:
                raise BatchInterruptedError from None
            raise
        on_reports(batch_id, [orjson.loads(row.report) for row in rows])

    return collect
