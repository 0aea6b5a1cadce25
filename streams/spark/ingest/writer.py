"""Writes a task's rows of a batch to Kafka, in one of Spark's Python processes (`mapInArrow`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark import TaskContext

from state.commit.decide import TaskIdentity
from state.commit.ingest import IngestBatch, Rows, write_batch
from state.commit.live import LiveKafka
from state.kafka.columns import binary_column
from streams.config import StreamsConfig
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.topology.ingest import Ingest

REPORT = "task INT, records BIGINT, seconds DOUBLE"
"""What each task says: its number, the number of records written (-1: it had written the batch before), and the time it took."""

TALLY = "task INT, records BIGINT, hash BIGINT"
"""What `tally` says: the task, the number of its rows, and the sum of their hashes."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What the processes need; the client's properties may have secrets, so they are not shown.

    Attributes:
        ingest: The source.
        application_id: The application.
        topic: The internal topic.
        client: librdkafka's properties.
        transaction_timeout_ms: Transaction timeout of the producers.
        bulk: Whether librdkafka's C API is used.
    """

    ingest: Ingest
    application_id: str
    topic: str
    client: dict[str, str] = field(repr=False)
    transaction_timeout_ms: int
    bulk: bool

    @classmethod
    def of(cls, ingest: Ingest, topic: str, config: StreamsConfig) -> WriteJob:
        """The job of a source, without the function that makes its DataFrame, which runs on the driver alone."""
        lean = Ingest(ingest.name, ingest.partitions, _no_frame, ingest.key, ingest.key_serde, ingest.value_serde)
        return cls(
            lean, config.application_id, topic, dict(config.client), config.transaction_timeout_ms, config.bulk_io
        )


def writer_of(
    job: WriteJob, query_id: str, batch: IngestBatch
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` that writes one batch."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        started, task = time.perf_counter(), context.partitionId()
        ingest = job.ingest
        identity = TaskIdentity(job.application_id, ingest.lasting_name, task, ingest.partitions, query_id, "")
        kafka = LiveKafka(job.client, job.transaction_timeout_ms, job.bulk, (job.topic,), query_id)
        rows = (rows_of(part, ingest, job.topic) for part in batches if part.num_rows)
        written = write_batch(kafka, identity, job.topic, ingest.partitions, batch, rows)
        # Spark's side of the process waits until all that it has sent was taken.
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int32()),
                "records": pa.array([-1 if written is None else written], pa.int64()),
                "seconds": pa.array([time.perf_counter() - started], pa.float64()),
            }
        )

    return write


def tally(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for `mapInArrow` that only counts and hashes a task's rows."""
    context = TaskContext.get()
    assert context is not None
    hashes = [np.asarray(part.column(3)).astype(np.int64) for part in batches]
    total = np.array([part.sum() for part in hashes], np.int64).sum()
    yield pa.RecordBatch.from_pydict(
        {
            "task": pa.array([context.partitionId()], pa.int32()),
            "records": pa.array([sum(map(len, hashes))], pa.int64()),
            "hash": pa.array([int(total)], pa.int64()),
        }
    )


def rows_of(part: pa.RecordBatch, ingest: Ingest, topic: str) -> Rows:
    """Records as bytes, by the source's serdes.

    Args:
        part: The columns of `records_of`.
        ingest: The source.
        topic: The topic, which serdes are told.
    """
    keys, values = part.column(0).to_pylist(), part.column(1).to_pylist()
    return Rows(
        binary_column([_key(text, ingest, topic) for text in keys]),
        binary_column([_value(text, ingest, topic) for text in values]),
        np.asarray(part.column(2)).astype(np.int64),
        int(np.asarray(part.column(3)).astype(np.int64).sum()),
    )


def _key(text: str | None, ingest: Ingest, topic: str) -> bytes | None:
    if text is None:
        return None
    if isinstance(ingest.key_serde, StringSerde) and ingest.plain_key:
        return text.encode()
    parts = orjson.loads(text)
    return ingest.key_serde.serialize(topic, parts[ingest.key[0]] if len(ingest.key) == 1 else parts)


def _value(text: str | None, ingest: Ingest, topic: str) -> bytes | None:
    if text is None:
        return None
    # Spark has written the object as JSON already, without spaces and in the order of the columns.
    if type(ingest.value_serde) is JsonSerde:
        return text.encode()
    return ingest.value_serde.serialize(topic, orjson.loads(text))


def _no_frame(spark: Any) -> Any:
    raise AssertionError("only the driver makes DataFrames")
