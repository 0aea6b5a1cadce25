"""The values that operators exchange.

Invariants: a record never changes after it was forwarded (operators make new ones); timestamps are event time in
milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias

from typing_extensions import NamedTuple

from streams.model.conversions import Headers, HeadersLike, TimestampLike, to_headers, to_timestamp_ms
from streams.model.typing import K2, V2, K, V


@dataclass(slots=True, eq=True)
class Record(Generic[K, V]):
    """A record within the topology (Kafka Streams' `api.Record`).

    A processor may also forward a timestamp as a `datetime`, and headers as a dictionary: `forward` converts both to the forms
    below.

    Attributes:
        key: Deserialised key, or None.
        value: Deserialised value, or None. A table's node forwards a `Change`.
        timestamp: Event time, milliseconds since the epoch.
        headers: Pairs of name and value, in order; names may repeat.
    """

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    if TYPE_CHECKING:
        # The types that `forward` accepts. At run time the generated `__init__` is used, without a check for each record.
        def __init__(self, key: K, value: V, timestamp: TimestampLike, headers: HeadersLike = ()) -> None: ...

    def with_key(self, key: K2) -> Record[K2, V]:
        """The same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: TimestampLike) -> Record[K, V]:
        """The same record with another timestamp: epoch ms, a `datetime` (no zone: UTC), or a `timedelta` since the epoch."""
        return Record(self.key, self.value, to_timestamp_ms(timestamp), self.headers)

    def with_headers(self, headers: HeadersLike | None) -> Record[K, V]:
        """The same record with other headers: a dictionary or pairs, whose values are bytes, text or None."""
        return Record(self.key, self.value, self.timestamp, to_headers(headers))


class Window(NamedTuple):
    """A window of time: [start, end) for tumbling and hopping windows, [start, end] for sliding and session windows.

    Attributes:
        start: First millisecond.
        end: Milliseconds; exclusive or inclusive as above.
    """

    start: int
    end: int


class Windowed(NamedTuple, Generic[K]):
    """The key of a windowed result.

    Attributes:
        key: The record key.
        window: The window that the result belongs to.
    """

    key: K
    window: Window


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """The entry of a key in a timestamped store.

    Attributes:
        value: The deserialised value; never None.
        timestamp: The largest timestamp of the records that contributed to the value, milliseconds.
    """

    value: V
    timestamp: int


class Change(NamedTuple, Generic[V]):
    """An update of a table (Kafka Streams: `Change`).

    Attributes:
        new: The value after the update; None = deleted.
        old: The value before it; None if there was none, or if the operator does not send old values.
        is_latest: False for an update that is older than the table's row (versioned tables, KIP-914).
    """

    new: V | None
    old: V | None
    is_latest: bool = True


class RecordMetadata(NamedTuple):
    """The origin of the record in process.

    Attributes:
        topic: Source topic.
        partition: Its partition.
        offset: Its offset.
    """

    topic: str
    partition: int
    offset: int


class HeldRecord(NamedTuple):
    """A record that an operator has stored for later, serialised, so that a dead letter can be made of it.

    Attributes:
        key: The key's bytes.
        value: The value's bytes.
        timestamp: Milliseconds.
        headers: Its headers.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class RecordContext(NamedTuple):
    """The data of a record that a topic extractor gets besides key and value (Kafka Streams' `RecordContext`).

    Attributes:
        topic: Source topic of the record that led to this result; None while flushing.
        partition: Its partition; -1 while flushing.
        offset: Its offset; -1 while flushing.
        timestamp: Timestamp of the result, milliseconds.
        headers: Headers of the result.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


TopicExtractor: TypeAlias = Callable[[K, V, RecordContext], str] | Callable[[K, V], str] | Callable[[V], str]
"""`topic(key, value, record_context)`, `topic(key, value)` or `topic(value)`."""
