"""The Python data source that Spark reads from: librdkafka, and the head of the sub-topology, run in the reader.

Records leave as few large rows, one for each (task, chunk, entry), which cost Spark almost nothing. Each row also names
its offset range, so that a task can tell a repeated micro-batch from a new one.

Spark starts three short-lived Python processes for each query just to inspect this class, so the module imports next to
nothing: planning (`streams.engine.source`) and reading (`streams.engine.spark.worker`) are imported where they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from streams.engine.source.offsets import SourceOffsets
from streams.engine.spark.shuffle import SPARK_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streams.engine.source.planner import BatchPlanner
    from streams.engine.source.topics import SourceSpec
    from streams.engine.spark.worker import RowsJob
    from streams.engine.step.job import QueryJob
    from streams.engine.step.read import BatchPartitioner, PlannedPartition


class BatchPartition(InputPartition):
    """The planned partitions of a micro-batch (`streams.engine.step.read`) for one reader, as a Spark input partition."""

    def __init__(self, planned: Sequence[PlannedPartition]) -> None:
        self.planned = planned


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader that plans on the driver and reads on the executors. Each side creates what it needs on first use."""

    def __init__(self, planning: bytes, job: bytes) -> None:
        self._planning = planning
        self._job = job
        self._planner_or_none: BatchPlanner | None = None
        self._partitioner: BatchPartitioner | None = None

    @property
    def _planner(self) -> BatchPlanner:
        if self._planner_or_none is None:
            from state.secrets import remember
            from streams.engine.source.planner import live_planner
            from streams.logs.output import set_up_worker

            client, spec, logs = cloudpickle.loads(self._planning)
            remember(client)
            set_up_worker(logs, *(spec.pauses or (None, None)))
            self._planner_or_none = live_planner(client, spec)
        return self._planner_or_none

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit for Spark: the planner applies its own."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the current ends of the topics as the end of the run."""
        self._planner.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._planner.latest(SourceOffsets.from_json(start)).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The ends of the topics, for the lag."""
        return self._planner.report().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Input partitions for the topic-partitions with records, and for a call of every task if that is due."""
        from streams.engine.step.read import BatchPartitioner, together

        if self._partitioner is None:
            self._partitioner = BatchPartitioner(self._planner)
        planned = self._partitioner.partitions(SourceOffsets.from_json(start), SourceOffsets.from_json(end))
        groups = (
            together(planned, self._planner.readers) if self._planner.reads_together else [(one,) for one in planned]
        )
        return [BatchPartition(group) for group in groups]

    def commit(self, end: dict[str, Any]) -> None:
        """Notes that Spark will not ask for anything before `end` again."""
        self._planner.confirmed(SourceOffsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges, runs the head, and packs the rows for each task."""
        from streams.engine.spark.worker import read_partition

        assert isinstance(partition, BatchPartition)
        return chain.from_iterable(read_partition(self._job, one) for one in partition.planned)

    def stop(self) -> None:
        """Lets the process end quietly if Spark has hung up, which is how a query ends.

        Spark's own code in this process treats it as an error, tries to report it to Spark, and prints that this failed, unless
        Spark ends the process before.
        """
        sys.excepthook = _print_unless_hung_up


def _print_unless_hung_up(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    first = error
    while first.__context__ is not None:
        first = first.__context__
    if not isinstance(first, (EOFError, ConnectionError)):
        sys.__excepthook__(kind, error, trace)


class RowsReader(KafkaStreamReader):
    """Plans the internal topic of a lake sink like the topics of a sub-topology, and reads rows of the sink's columns."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streams.engine.spark.worker import read_rows

        assert isinstance(partition, BatchPartition)
        return read_rows(self._job, partition.planned)


class KafkaSource(DataSource):
    """The base of the data source classes of queries: a query's job is a class attribute, and so appears in no plan."""

    planning: bytes = b""
    job: bytes = b""
    columns: str = SPARK_SCHEMA
    reader: type[KafkaStreamReader] = KafkaStreamReader

    def schema(self) -> str:
        return self.columns

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self.reader(self.planning, self.job)


def source_class(job: QueryJob) -> type[DataSource]:
    """A new data source class for the query of a sub-topology."""
    from streams.engine.spark.worker import dump_job

    name = f"streams-{job.settings.application_id}-{job.sub.name}"
    return _source_class(name, job, job.source, {"job": dump_job(job)})


def lake_source(query: str, source: SourceSpec, job: RowsJob) -> type[DataSource]:
    """A new data source class for the query of a lake sink: exact ranges of its internal topic."""
    from streams.lake.writer import sql_schema

    rows = {"job": cloudpickle.dumps(job), "columns": sql_schema(job.layout), "reader": RowsReader}
    return _source_class(f"streams-lake-{query}", job, source, rows)


def _source_class(
    name: str, job: QueryJob | RowsJob, source: SourceSpec, attributes: Mapping[str, Any]
) -> type[DataSource]:
    def source_name(cls: type[DataSource]) -> str:
        return name

    planning = cloudpickle.dumps((dict(job.client), source, job.logs))
    return type("SourceOfQuery", (KafkaSource,), {**attributes, "planning": planning, "name": classmethod(source_name)})
