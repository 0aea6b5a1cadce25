"""Spark's view of the source: a Python data source on librdkafka, with the head of the sub-topology run in the reader.

Records leave as few large rows, one for each (task, chunk, entry): rows cost Spark almost nothing then. Each row also says
which offset range it comes from, so that a task can tell a repeated micro-batch from a new one.

Spark starts three short-lived Python processes for each query just to look at this class, so it imports next to nothing:
planning (`streams.source`) and reading (`streams.spark.read`) are imported where they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from streams.source.offsets import OffsetRange, SourceOffsets, batch_digest, topics_to_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streams.source.planner import BatchPlanner
    from streams.spark.job import QueryJob

SPARK_SCHEMA = (
    "task_key INT, batch STRING, topic STRING, partition INT, first BIGINT, last BIGINT, topic_id STRING, "
    "counters STRING, partition_time STRING, global_topics STRING, payload BINARY, backlog BOOLEAN"
)


class RangePartition(InputPartition):
    """One offset range to read, as a Spark input partition.

    `time` is the partition time so far, ms; `global_topics` says up to where global tables are to be read, as JSON;
    `backlog`: records are left for a later micro-batch; `repeated`: this one has all tasks called, because an earlier run has
    logged the micro-batch.
    """

    def __init__(
        self,
        batch: str,
        topic_id: str,
        offsets: OffsetRange,
        time: int | None,
        global_topics: str | None,
        backlog: bool = False,
        repeated: bool = False,
    ) -> None:
        self.batch = batch
        self.global_topics = global_topics
        self.topic_id = topic_id
        self.offsets = offsets
        self.time = time
        self.backlog = backlog
        self.repeated = repeated


class TickPartition(InputPartition):
    """What gives every task a step, as a Spark input partition; the fields are those of `RangePartition`."""

    def __init__(self, batch: str, global_topics: str | None, backlog: bool) -> None:
        self.batch = batch
        self.global_topics = global_topics
        self.backlog = backlog


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors. Each side makes what it needs when it is first asked."""

    def __init__(self, planning: bytes, job: bytes) -> None:
        self._planning = planning
        self._job = job
        self._planner_or_none: BatchPlanner | None = None
        self._first_batch: str | None = None

    @property
    def _planner(self) -> BatchPlanner:
        if self._planner_or_none is None:
            from streams.source.planner import live_planner

            client, spec = cloudpickle.loads(self._planning)
            self._planner_or_none = live_planner(client, spec)
        return self._planner_or_none

    def initialOffset(self) -> dict[str, Any]:
        """Where a new checkpoint begins."""
        return self._planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The planner knows its own limits: Spark's are not asked for."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Freezes the ends."""
        self._planner.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        return self._planner.latest(SourceOffsets.from_json(start)).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The ends of the topics, for the lag."""
        return self._planner.report().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One input partition for each topic-partition that has something, and one for a tick."""
        before, after = SourceOffsets.from_json(start), SourceOffsets.from_json(end)
        digest = batch_digest(before, after)
        # Only the first micro-batch of a run can be one that an earlier run has logged.
        self._first_batch = self._first_batch or digest
        repeated = digest == self._first_batch and self._planner.is_repeat(after)
        ranges = self._planner.ranges(before, after)
        times = self._planner.times_before(ranges)
        ends = json.dumps(topics_to_json(after.global_topics)) if after.global_topics else None
        backlog = self._planner.leaves_backlog(after)
        partitions: list[InputPartition] = [
            RangePartition(
                digest,
                after.topics[offsets.topic].topic_id,
                offsets,
                times[offsets.topic, offsets.partition] if times else None,
                ends,
                backlog=backlog,
                repeated=number == 0 and repeated,
            )
            for number, offsets in enumerate(ranges)
        ]
        if after.tick != before.tick:
            partitions.append(TickPartition(digest, ends, backlog))
        return partitions

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before `end` again."""
        self._planner.confirmed(SourceOffsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a range, runs the head and packs what goes to each task."""
        from streams.spark.read import read_range, read_tick

        if isinstance(partition, TickPartition):
            return read_tick(self._job, partition)
        assert isinstance(partition, RangePartition)
        return read_range(self._job, partition)


class KafkaSource(DataSource):
    """Base of the data sources that `source_class` makes."""

    planning: bytes = b""
    job: bytes = b""

    def schema(self) -> str:
        """Columns of a row: see `streams.spark.read`."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader."""
        return KafkaStreamReader(self.planning, self.job)


def source_class(job: QueryJob) -> type[DataSource]:
    """A data source class of its own for each query: its job is a class attribute, so it shows up in no plan."""
    name = f"streams-{job.settings.application_id}-{job.sub.name}"

    def source_name(cls: type[DataSource]) -> str:
        return name

    attributes: dict[str, Any] = {
        "planning": cloudpickle.dumps((dict(job.client), job.source)),
        "job": job.dumps(),
        "name": classmethod(source_name),
    }
    return type(f"KafkaSourceOf{job.sub.index}", (KafkaSource,), attributes)
