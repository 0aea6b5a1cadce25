"""The values that travel between operators.

Invariants: a record is never changed after it was forwarded (operators make new ones); timestamps are
milliseconds since the epoch, event time.
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
    """One record on its way through the topology (Kafka Streams: `api.Record`).

    A processor may give the timestamp as a `datetime` too, and headers as a dictionary: `forward` turns both into what is
    written below.

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
        # What `forward` accepts; at run time the generated `__init__` stays, which costs no check for each record.
        def __init__(self, key: K, value: V, timestamp: TimestampLike, headers: HeadersLike = ()) -> None: ...

    def with_key(self, key: K2) -> Record[K2, V]:
        """The same record under another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: TimestampLike) -> Record[K, V]:
        """The same record at another time: ms since the epoch, a `datetime` (no zone: UTC) or the time since the epoch."""
        return Record(self.key, self.value, to_timestamp_ms(timestamp), self.headers)

    def with_headers(self, headers: HeadersLike | None) -> Record[K, V]:
        """The same record with these headers in the place of its own: a dictionary or pairs, of bytes, text or None."""
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
    """What a timestamped store holds for a key.

    Attributes:
        value: The deserialised value; never None.
        timestamp: Milliseconds: the largest timestamp that took part in the value.
    """

    value: V
    timestamp: int


class Change(NamedTuple, Generic[V]):
    """An update of a table (Kafka Streams: `Change`).

    Attributes:
        new: The value after the update; None = deleted.
        old: The value before it; None where there was none or the operator was not asked for old values.
        is_latest: False for an update that is older than what the table holds (versioned tables, KIP-914).
    """

    new: V | None
    old: V | None
    is_latest: bool = True


class RecordMetadata(NamedTuple):
    """Where the record that is being processed came from.

    Attributes:
        topic: Source topic.
        partition: Its partition.
        offset: Its offset.
    """

    topic: str
    partition: int
    offset: int


class HeldRecord(NamedTuple):
    """A record that an operator has held back, as its store holds it: what a dead letter of it is made of.

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
    """What a topic extractor may look at besides key and value (Kafka Streams: `RecordContext`).

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
