"""Spark's view of the source: a Python data source on librdkafka, with the head of the sub-topology run in the reader.

Records leave as few large rows, one for each (task, chunk, entry): rows cost Spark almost nothing then. Each row also says
which offset range it comes from, so that a task can tell a repeated micro-batch from a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from state.kafka.admin import KafkaAdmin
from state.kafka.reader import shared_reader
from streams.runtime.head import Head
from streams.runtime.rows import encode
from streams.source.offsets import OffsetRange, SourceOffsets, batch_digest
from streams.source.planner import BatchPlanner
from streams.source.sampling import mean_record_bytes
from streams.spark.job import QueryJob, load_job
from streams.spark.salts import task_salts

ROW_SCHEMA = pa.schema(
    [
        ("task_key", pa.int32()),
        ("batch", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("topic_id", pa.string()),
        ("counters", pa.string()),
        ("payload", pa.binary()),
    ]
)
SPARK_SCHEMA = (
    "task_key INT, batch STRING, topic STRING, partition INT, first BIGINT, last BIGINT, topic_id STRING, "
    "counters STRING, payload BINARY"
)
CHUNK_RECORDS = 100_000
"""Records read at once: large enough for vectorised work, small enough for a few tens of MB of memory."""


class RangePartition(InputPartition):
    """One offset range to read, as a Spark input partition."""

    def __init__(self, batch: str, topic_id: str, offsets: OffsetRange) -> None:
        self.batch = batch
        self.topic_id = topic_id
        self.offsets = offsets


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors. Each side makes what it needs when it is first asked."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._planner_or_none: BatchPlanner | None = None

    @property
    def _planner(self) -> BatchPlanner:
        if self._planner_or_none is None:
            job = load_job(self._payload)
            self._planner_or_none = BatchPlanner(
                KafkaAdmin(job.client), job.source, partial(mean_record_bytes, job.client)
            )
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
        """One input partition for each topic-partition that has something."""
        before, after = SourceOffsets.from_json(start), SourceOffsets.from_json(end)
        digest = batch_digest(before, after)
        return [
            RangePartition(digest, after.topics[offsets.topic].topic_id, offsets)
            for offsets in self._planner.ranges(before, after)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before `end` again."""
        self._planner.confirmed(SourceOffsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a range, runs the head and packs what goes to each task."""
        assert isinstance(partition, RangePartition)
        return read_range(load_job(self._payload), partition)


def read_range(job: QueryJob, partition: RangePartition) -> Iterator[pa.RecordBatch]:
    """Rows of `ROW_SCHEMA` for one range.

    The last one has no payload: it carries the head's counters to the task that reports this partition's progress, which
    so runs even if no record is for it.
    """
    offsets = partition.offsets
    salts = task_salts(job.tasks)
    head = Head(job.sub, job.tasks, job.settings)
    reader = shared_reader(job.client, offsets.topic, offsets.partition, offsets.start, bulk=job.bulk_io)
    for columns in reader.read(offsets.end, CHUNK_RECORDS):
        for task, rows in head.run(columns):
            yield _row(salts[task], partition, None, encode(rows))
    counters = orjson.dumps(head.counters).decode()
    yield _row(salts[job.owner(offsets.partition)], partition, counters, None)


def _row(key: int, partition: RangePartition, counters: str | None, payload: bytes | None) -> pa.RecordBatch:
    offsets = partition.offsets
    values: list[Any] = [
        key,
        partition.batch,
        offsets.topic,
        offsets.partition,
        offsets.start,
        offsets.end,
        partition.topic_id,
        counters,
        payload,
    ]
    arrays = [pa.array([value], type=field.type) for value, field in zip(values, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


class KafkaSource(DataSource):
    """Base of the data sources that `source_class` makes."""

    payload: bytes = b""

    def schema(self) -> str:
        """Spark's form of `ROW_SCHEMA`."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader."""
        return KafkaStreamReader(self.payload)


def source_class(job: QueryJob) -> type[DataSource]:
    """A data source class of its own for each query: its job is a class attribute, so it shows up in no plan."""
    name = f"streams-{job.settings.application_id}-{job.sub.name}"

    def source_name(cls: type[DataSource]) -> str:
        return name

    attributes: Mapping[str, Any] = {"payload": job.dumps(), "name": classmethod(source_name)}
    return type("KafkaSourceOf" + str(job.sub.index), (KafkaSource,), dict(attributes))
