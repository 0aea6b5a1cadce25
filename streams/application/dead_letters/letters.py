"""Dead letters as they are read: the record that failed, the error, and the position that it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from state.errors import OffsetsLostError
from state.kafka.columns import RecordColumns
from state.kafka.headers import decode_headers
from state.kafka.topics import TopicInfo, TopicPartition
from streams.model.error_headers import CUT, ERROR_HEADERS, plain_headers
from streams.model.record import Headers
from streams.model.timestamps import RETRIED_TIME
from streams.operators.retry.attempts import ATTEMPT, TOPIC
from streams.runtime.handlers import OUTSIDE


class Log(Protocol):
    """The requests to Kafka by which dead letters are read."""

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Last stable offset and end of each log, once no transaction is open."""

    def begin_offset(self, partition: TopicPartition) -> int: ...

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Last stable offset of each log at present, whatever transactions are open."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        """The topics that exist, asked for at each call."""

    def partition_count(self, topic: str) -> int: ...

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""


@dataclass(frozen=True)
class Letter:
    """One dead letter.

    Attributes:
        place: Topic and partition of the letter.
        offset: Its offset.
        timestamp: When it was written, ms.
        key: The key of the record that failed.
        value: Its value.
        headers: All headers, those of the error included.
    """

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @cached_property
    def _said(self) -> Mapping[str, str]:
        return {name: (value or b"").decode(errors="backslashreplace") for name, value in self.headers}

    def error(self, name: str) -> str:
        """What the letter says of its error: `exception`, `message`, `stacktrace`, `stage`, `topic`, `partition`, ..."""
        return self._said.get(ERROR_HEADERS + name, "")

    @property
    def origin(self) -> str:
        """The position of the record that failed: `orders-0@17`; empty if there was no single one."""
        topic = self.error("topic")
        where = f"{topic}-{self.error('partition')}@{self.error('offset')}" if topic else ""
        return "a row from outside Kafka" if self._is_row else where

    @property
    def _is_row(self) -> bool:
        """Whether an ingest could not make a record of a row: the letter has the row's text as key and value."""
        return self.error("partition") == str(OUTSIDE)

    @property
    def attempts(self) -> int:
        """How often the record has failed."""
        return int(self._said.get(ATTEMPT) or 1)

    @property
    def event_time(self) -> int:
        """The record's own timestamp, ms."""
        return int(self._said.get(RETRIED_TIME) or self.error("timestamp") or self.timestamp)

    @property
    def retry_topic(self) -> str | None:
        """The retry topic of the operator that has failed, through which the record comes back to that operator alone."""
        return self._said.get(TOPIC)

    @property
    def target(self) -> str | None:
        """The topic to which a replay sends the record: through its retry topic, else where it came from; None: nowhere."""
        return self.retry_topic or self.error("topic") or None

    @property
    def cut(self) -> str:
        """Which parts of the record are missing, because the letter was too large with them; empty: none."""
        parts = (part for part in self._said.get(CUT, "").split(", ") if part)
        return ", ".join(part for part in parts if part.split()[0] in ("key", "value", "headers"))

    @property
    def left_out(self) -> str:
        """Why a replay that is given no topic sends the record nowhere; empty: it sends it to `target`."""
        if self.cut:
            return "parts of the record were cut off"
        if self._is_row:
            return (
                "a row from outside Kafka that never became a record: correct it where it came from, or send its text to a topic "
                "with --to"
            )
        return "" if self.target else "it came of no single record"

    @property
    def own_headers(self) -> Headers:
        """The headers of the record that failed."""
        return plain_headers(self.headers)


@dataclass(frozen=True)
class Choice:
    """The dead letters that a command is about; None: all, by this criterion.

    Attributes:
        error: The name of the exception, or a part of its message.
        key: The key as text.
        since_ms: The earliest time of the letter, ms.
        until_ms: The first time that is too late, ms.
        origin: The topic of the records that failed.
        positions: (partition, offset) of the letters.
    """

    error: str | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    origin: str | None = None
    positions: frozenset[tuple[int, int]] | None = None

    def has(self, letter: Letter) -> bool:
        """Whether a letter is among them."""
        wanted: list[tuple[Any, bool]] = [
            (self.error, self.error == letter.error("exception") or str(self.error) in letter.error("message")),
            (self.key, letter.key is not None and letter.key.decode(errors="backslashreplace") == self.key),
            (self.since_ms, letter.timestamp >= (self.since_ms or 0)),
            (self.until_ms, letter.timestamp < (self.until_ms or 0)),
            (self.origin, letter.error("topic") == self.origin),
            (self.positions, (letter.place[1], letter.offset) in (self.positions or ())),
        ]
        return all(true for given, true in wanted if given is not None)


def letters_of(log: Log, place: TopicPartition, start: int = 0, end: int | None = None) -> Iterator[Letter]:
    """The dead letters of a partition, in order."""
    first = max(start, log.begin_offset(place))
    last = log.log_ends([place])[place][0] if end is None else end
    while first < last:
        try:
            for columns in log.read(*place, first, last):
                yield from _letters(place, columns)
                first = int(columns.offsets[-1]) + 1
            return
        except OffsetsLostError as lost:
            if lost.earliest <= first:
                raise
            # A purge is under way.
            first = lost.earliest


def _letters(place: TopicPartition, columns: RecordColumns) -> Iterator[Letter]:
    headers = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    rows = (
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        columns.keys.to_pylist(),
        columns.values.to_pylist(),
    )
    for offset, timestamp, key, value, cell in zip(*rows, headers, strict=True):
        yield Letter(place, offset, timestamp, key, value, tuple(decode_headers(cell)))


def places_of(log: Log, topic: str) -> list[TopicPartition]:
    """The partitions of a topic.

    Raises:
        TopicNotFoundError: There is no such topic.
    """
    return [(topic, partition) for partition in range(log.partition_count(topic))]
