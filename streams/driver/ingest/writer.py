"""Writes a task's rows of a batch to Kafka, in one of Spark's Python processes (`mapInArrow`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark import TaskContext

from state.columns import BinaryColumn, binary_column
from state.commit.decide import TaskIdentity
from state.commit.ingest import Rows, write_batch
from state.commit.ingest_batch import IngestBatch
from state.commit.live import LiveKafka
from state.headers import encode_headers
from streams.config import StreamsConfig
from streams.engine.graph.handlers import OUTSIDE, DeadLetter, ErrorHandlers, Origin, fitted
from streams.engine.graph.node import may_be_the_records_fault
from streams.engine.graph.outputs import Outputs, SendBatch, Target
from streams.engine.graph.settings import Counters, TaskSettings
from streams.serdes.json import JsonSerde
from streams.serdes.json_text import loads
from streams.serdes.primitives import StringSerde
from streams.topology.graph.nodes import Ingest

log = logging.getLogger(__name__)

REPORT = "task INT, rows BIGINT, seconds DOUBLE, counters STRING"
"""The report of a task: its number, the number of its rows (-1: it had written the batch before), the time it took, and its
counters as JSON.
"""

TALLY = "task INT, records BIGINT, hash BIGINT"
"""The columns of `tally`: the task, the number of its rows, and the sum of their hashes."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The data that the writing processes need. The client's properties may have secrets, so they are not in its repr."""

    ingest: Ingest
    application_id: str
    topic: str
    client: dict[str, str] = field(repr=False)
    transaction_timeout_ms: int
    settings: TaskSettings
    bulk: bool

    @classmethod
    def of(cls, ingest: Ingest, topic: str, config: StreamsConfig, settings: TaskSettings) -> WriteJob:
        """The job of a source, without the function that makes its DataFrame, which runs on the driver alone."""
        lean = Ingest(ingest.name, ingest.partitions, _no_frame, ingest.key, ingest.key_serde, ingest.value_serde)
        return cls(
            lean,
            config.application_id,
            topic,
            dict(config.client),
            config.transaction_timeout_ms,
            settings,
            config.bulk_io,
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
        kafka = LiveKafka(
            job.client,
            job.transaction_timeout_ms,
            job.bulk,
            tuple(filter(None, (job.topic, job.settings.dead_letter_topic))),
            query_id,
        )
        made = RowRecords(ingest, Outputs(kafka.topics, job.settings), job.topic, task, batch.now_ms)
        rows = (made.of(part) for part in batches if part.num_rows)
        written = write_batch(kafka, identity, job.topic, ingest.partitions, batch, rows)
        # Spark's side of the process waits until all that it has sent was taken.
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int32()),
                "rows": pa.array([-1 if written is None else written], pa.int64()),
                "seconds": pa.array([time.perf_counter() - started], pa.float64()),
                "counters": pa.array([orjson.dumps(made.counters).decode()]),
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


class RowRecords:
    """Makes records from a task's rows, with the source's serdes.

    As at a sink, a time before 1970 becomes 1970, and a row that cannot be serialised, or that Kafka would refuse, meets the policy
    `production`: one such row would otherwise stop the source forever.

    Attributes:
        counters: The counts of rows that were left out or changed.
    """

    def __init__(self, ingest: Ingest, outputs: Outputs, topic: str, task: int, now_ms: int) -> None:
        self.counters = Counters()
        self._ingest, self._topic, self._outputs = ingest, topic, outputs
        self._now_ms = now_ms
        self._letters: list[DeadLetter] = []
        self._errors = ErrorHandlers(outputs.settings, self.counters, f"{ingest.lasting_name}/{task}", self._set_aside)

    def of(self, part: pa.RecordBatch) -> Rows:
        """Records as bytes.

        Raises:
            RecordFailedError: A row cannot be written, and the policy is `fail`.
        """
        target = self._outputs.target(self._topic)
        keys, values = part.column(0).to_pylist(), part.column(1).to_pylist()
        given, hashes = (np.asarray(part.column(number)).astype(np.int64) for number in (2, 3))
        times = np.maximum(given, 0)
        if early := int(np.count_nonzero(given < 0)):
            if f"early:{self._ingest.name}" not in self.counters:
                log.warning(
                    "rows of the source %r have times before 1970: 1970-01-01 is written instead", self._ingest.name
                )
            self.counters.add(f"early:{self._ingest.name}", early)
        try:
            columns = self._columns(keys, values)
            target.check_all(*columns, times, None)
            return Rows(*columns, times, int(hashes.sum()), len(keys))
        except Exception as error:
            if not may_be_the_records_fault(error):
                raise
        fit = [row for row in range(len(keys)) if self._fits(target, keys[row], values[row], int(times[row]))]
        columns = self._columns([keys[row] for row in fit], [values[row] for row in fit])
        return Rows(*columns, times[fit], int(hashes.sum()), len(keys), self._take_letters())

    def _columns(self, keys: Sequence[str | None], values: Sequence[str | None]) -> tuple[BinaryColumn, BinaryColumn]:
        return (
            binary_column([_key(text, self._ingest, self._topic) for text in keys]),
            binary_column([_value(text, self._ingest, self._topic) for text in values]),
        )

    def _fits(self, target: Target, key: str | None, value: str | None, time_ms: int) -> bool:
        """Whether a row can be written; otherwise it meets the policy."""
        try:
            target.check(_key(key, self._ingest, self._topic), _value(value, self._ingest, self._topic), time_ms, ())
        except Exception as error:
            if not may_be_the_records_fault(error):
                raise
            as_text = (None if one is None else one.encode() for one in (key, value))
            origin = Origin(None, OUTSIDE, -1, time_ms, next(as_text), next(as_text), ())
            self._errors.handle("production", self._ingest.name, origin, error)
            return False
        return True

    def _set_aside(self, letter: DeadLetter, _: Origin) -> None:
        self._letters.append(fitted(letter, self._dead_letter_target().kafka_bytes))

    def _take_letters(self) -> SendBatch | None:
        letters, self._letters = self._letters, []
        if not letters:
            return None
        target = self._dead_letter_target()
        keys, values, headers = zip(*letters, strict=True)
        times = np.full(len(letters), target.nearest_time(self._now_ms), np.int64)
        encoded = binary_column([encode_headers(one) for one in headers])
        return SendBatch(target.topic, binary_column(keys), binary_column(values), times, None, None, encoded)

    def _dead_letter_target(self) -> Target:
        topic = self._outputs.settings.dead_letter_topic
        assert topic is not None, "the settings have a topic for the policy 'dlq'"
        return self._outputs.target(topic)


def _key(text: str | None, ingest: Ingest, topic: str) -> bytes | None:
    if text is None:
        return None
    if isinstance(ingest.key_serde, StringSerde) and ingest.plain_key:
        return text.encode()
    parts = loads(text)
    return ingest.key_serde.serialize(topic, parts[ingest.key[0]] if len(ingest.key) == 1 else parts)


def _value(text: str | None, ingest: Ingest, topic: str) -> bytes | None:
    if text is None:
        return None
    # Spark has written the object as JSON already, without spaces and in the order of the columns.
    if type(ingest.value_serde) is JsonSerde:
        return text.encode()
    return ingest.value_serde.serialize(topic, loads(text))


def _no_frame(spark: Any) -> Any:
    raise AssertionError("only the driver makes DataFrames")
