"""Timestamp extractors, which determine a record's event time (Kafka Streams' `TimestampExtractor`).

An extractor gets the record and the partition time: the largest timestamp extracted from that partition so far, -1 at first. A
negative result drops the record. "Now" is the logged time of the batch, which the caller passes, never the time of a clock, so
that a repeated batch has the same timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, overload

from streams.errors import NoFieldsError, RecordError, TimestampError, TopologyError
from streams.model.expressions import Col, Expression, reads_record
from streams.model.iso import moment
from streams.model.paths import IS_A_FIELD, is_path, names_of, path_of
from streams.model.record import pick, to_timestamp_ms

DROP = -1
RETRIED_TIME = "__streams.retry.timestamp"
"""The header with the event time of a record in a retry topic, and of the dead letter that it may become."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record as read from Kafka, deserialised, for timestamp extractors."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any = None
    value: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __str__(self) -> str:
        return f"topic '{self.topic}', partition {self.partition}, offset {self.offset}"


class TimestampExtractor(Protocol):
    """Determines the event time of each record; the module's docstring has the rules.

    `needs_record` is False if only the record's own timestamp matters. Then no value has to be deserialised for the extractor, and
    whole columns of valid timestamps can be used unchanged.
    """

    @property
    def needs_record(self) -> bool:
        """Whether `extract` reads the key or the value; True for a class that does not define it."""
        return True

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The event time in epoch ms; a negative result drops the record. Raises `TimestampError`."""
        ...


@dataclass(frozen=True, slots=True)
class FailOnInvalidTimestamp:
    """Takes the record's timestamp, and fails if it is negative. The default."""

    needs_record: bool = False

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The record's timestamp. Raises `TimestampError` if it is negative."""
        if record.timestamp < 0:
            raise TimestampError(
                f"The record at {record} has the timestamp {record.timestamp}. Use LogAndSkipOnInvalidTimestamp, "
                f"UsePartitionTimeOnInvalidTimestamp or timestamp_field(...) in Consumed(timestamp_extractor=...)."
            )
        return record.timestamp


@dataclass(frozen=True, slots=True)
class LogAndSkipOnInvalidTimestamp:
    """Takes the record's timestamp; a record whose timestamp is negative is dropped and counted."""

    needs_record: bool = False

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The record's timestamp, unchanged."""
        return record.timestamp if record.timestamp >= 0 else DROP


@dataclass(frozen=True, slots=True)
class UsePartitionTimeOnInvalidTimestamp:
    """Takes the record's timestamp; if it is negative, takes the largest one seen in its partition."""

    needs_record: bool = False

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The record's timestamp, or the partition time. Raises `TimestampError` without a partition time, as in Kafka Streams."""
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise TimestampError(
                f"The record at {record} has the timestamp {record.timestamp}, and no earlier record of the partition "
                f"had a valid one. Use LogAndSkipOnInvalidTimestamp or WallclockTimestampExtractor."
            )
        return partition_time


@dataclass(frozen=True, slots=True)
class WallclockTimestampExtractor:
    """Takes the time of processing: the logged time of the batch, which is the same if the batch is repeated."""

    needs_record: bool = False

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The time of the batch."""
        return now_ms


@dataclass(frozen=True, slots=True)
class CustomTimestampExtractor:
    """Calls a user's `fn(record, partition_time)`, which returns epoch ms or a `datetime`; a negative result drops the record."""

    fn: Callable[[ConsumedRecord, int], int | datetime]
    needs_record: bool = True

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The function's result. Raises `TimestampError` if the result is neither an integer nor a datetime."""
        timestamp = self.fn(record, partition_time)
        if isinstance(timestamp, datetime):
            return to_timestamp_ms(timestamp)
        if isinstance(timestamp, bool) or not isinstance(timestamp, int):
            raise TimestampError(
                f"The timestamp extractor gave {timestamp!r} for the record at {record}; it must give epoch ms as int, "
                f"or a datetime."
            )
        return timestamp


@dataclass(frozen=True, slots=True)
class RetriedTimestampExtractor:
    """Takes a retried record's original event time; in the retry topic, its own timestamp is the time of the failure."""

    needs_record: bool = True

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The time in the record's header; without that header, the record's own timestamp."""
        found = next((value for name, value in record.headers if name == RETRIED_TIME and value), None)
        return record.timestamp if found is None else int(found)


_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


@dataclass(frozen=True, slots=True)
class FieldTimestampExtractor:
    """Takes the timestamp from a field of the value; made by `timestamp_field`."""

    path: tuple[str, ...]
    unit: str
    needs_record: bool = True

    @property
    def scale(self) -> tuple[int, int] | None:
        """The pair `(times, by)` by which a number n in the field means `n * times // by` ms; None if the field is text."""
        return _PER_MS.get(self.unit)

    @property
    def expression(self) -> Expression:
        """The field as an expression."""
        return Col(path_of(self.path))

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The field's time in epoch ms. Raises `TimestampError` if the field is missing or is not a time."""
        try:
            found = pick(record.value, path_of(self.path))
        except NoFieldsError:
            found = None
        try:
            return _ms(found, self.unit)
        except (TypeError, ValueError, OverflowError):
            raise TimestampError(
                f"The record at {record} has no time in the field '{path_of(self.path)}' (unit '{self.unit}'): "
                f"found {str(found)[:60]!r}{self._hint(found)}."
            ) from None

    def _hint(self, found: Any) -> str:
        try:
            _iso_ms(found)
        except (TypeError, ValueError):
            return ""
        return f". For ISO 8601 text: timestamp_field('{path_of(self.path)}', unit='iso')"


@dataclass(frozen=True, slots=True)
class ExpressionTimestampExtractor:
    """Takes the timestamp from an expression over the value; made by `timestamp_field`."""

    expression: Expression
    unit: str
    needs_record: bool = True

    @property
    def scale(self) -> tuple[int, int] | None:
        """The pair `(times, by)` by which a number n means `n * times // by` ms; None if the result is text."""
        return _PER_MS.get(self.unit)

    def extract(self, record: ConsumedRecord, partition_time: int, now_ms: int) -> int:
        """The expression's result in epoch ms. Raises `TimestampError` if it is not a time."""
        try:
            found = self.expression(record.value)
        except RecordError as error:
            raise TimestampError(f"The record at {record} has no time {self.expression!r}: {error}") from error
        try:
            return _ms(found, self.unit)
        except (TypeError, ValueError, OverflowError):
            raise TimestampError(
                f"The record at {record} has no time {self.expression!r} (unit '{self.unit}'): found {str(found)[:60]!r}."
            ) from None


@overload
def timestamp_field(path: str, unit: str = "ms") -> FieldTimestampExtractor: ...
@overload
def timestamp_field(path: Expression, unit: str = "ms") -> ExpressionTimestampExtractor | FieldTimestampExtractor: ...
def timestamp_field(path: str | Expression, unit: str = "ms") -> FieldTimestampExtractor | ExpressionTimestampExtractor:
    """Returns an extractor that reads the event time from a field of the value, or computes it.

    Args:
        path: The name of the field or attribute; a dotted path leads through nested objects. Or an expression, such as
            `col("day") * 86_400 + col("second")`.
        unit: `"s"`, `"ms"`, `"us"`, `"ns"` since the epoch, or `"iso"` for ISO 8601 text (no zone: UTC). Not needed for a
            `datetime`.

    Raises:
        TopologyError: The unit is unknown, or the path is empty.
    """
    if unit != "iso" and unit not in _PER_MS:
        raise TopologyError(f"timestamp_field({path!r}, unit='{unit}'): the unit must be s, ms, us, ns or iso.")
    if isinstance(path, Col):
        path = path.path
    if isinstance(path, Expression):
        if found := reads_record(path):
            raise TopologyError(f"timestamp_field({path!r}) takes fields of the value, not {found[0]!r}.")
        return ExpressionTimestampExtractor(path, unit)
    if not is_path(path):
        raise TopologyError(f"timestamp_field({path!r}): {IS_A_FIELD}.")
    return FieldTimestampExtractor(names_of(path), unit)


def _ms(found: Any, unit: str) -> int:
    if isinstance(found, datetime):  # of a typed value
        return to_timestamp_ms(found)
    return _iso_ms(found) if unit == "iso" else _scaled_ms(found, unit)


def field_ms(found: Any) -> int:
    """Converts whole ms, ISO 8601 text, or a `datetime` to epoch ms. Raises `TypeError` or `ValueError` for other values."""
    return _iso_ms(found) if isinstance(found, str) else to_timestamp_ms(found)


def _scaled_ms(found: Any, unit: str) -> int:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError
    times, by = _PER_MS[unit]
    # Integers stay integers: nanoseconds since the epoch do not fit a double.
    return found * times // by if isinstance(found, int) else int(found * times / by)


def _iso_ms(found: Any) -> int:
    if not isinstance(found, str):
        raise TypeError
    return to_timestamp_ms(moment(found))


FAIL_ON_INVALID_TIMESTAMP = FailOnInvalidTimestamp()

OF_RECORDS: Final = (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    CustomTimestampExtractor,
    RetriedTimestampExtractor,
    FieldTimestampExtractor,
    ExpressionTimestampExtractor,
)
"""The extractors whose times are known when records are read; other extractors may take the time of processing."""
