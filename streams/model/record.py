"""The values that operators exchange: records, windows, changes, and the messages and stored records of joins.

Invariants: a record never changes after it was forwarded (operators make new ones); timestamps are event time in
milliseconds since the epoch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias

from typing_extensions import NamedTuple

from state.stores import codec
from streams.errors import NoFieldsError
from streams.model.paths import names_of
from streams.model.typing import K2, V2, K, V

MAX_TIME: Final = codec.MAX_TIME
NO_TIME: Final = -1
"""The stream time before the first record."""

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"
"""Headers in the form in which records keep them."""
TimestampLike: TypeAlias = "int | datetime | timedelta"
"""Milliseconds since the epoch, a `datetime` (no zone: UTC), or a `timedelta` since the epoch."""
HeaderValue: TypeAlias = "bytes | str | None"
HeadersLike: TypeAlias = "Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]"
"""Headers as a user passes them: pairs of name and value, or a dictionary; text is encoded as UTF-8."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


def to_timestamp_ms(timestamp: TimestampLike, what: str = "a timestamp") -> int:
    """Converts a timestamp to milliseconds since the epoch.

    Args:
        timestamp: Milliseconds, a `datetime` (without a zone: UTC) or a `timedelta` since the epoch.
        what: The argument's name, for the error message.

    Raises:
        TypeError: The timestamp has another type.
    """
    if isinstance(timestamp, datetime):
        moment = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)
        since = moment - _EPOCH  # Divided part by part: a division of timedeltas takes as long as all the rest.
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if isinstance(timestamp, timedelta):
        return timestamp // _MILLISECOND
    if not isinstance(timestamp, bool):
        try:
            return operator.index(timestamp)
        except TypeError:
            pass
    raise TypeError(
        f"{what} is whole milliseconds since the epoch (int), a datetime, or a timedelta since the epoch, not {timestamp!r}"
    )


def to_headers(headers: HeadersLike | None) -> Headers:
    """Converts headers to pairs of name and bytes, in order.

    Args:
        headers: Pairs, in which names may repeat, or a dictionary; None: no headers.

    Raises:
        TypeError: A name is not a text, or a value is neither bytes nor text nor None.
    """
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(_header(pair) for pair in pairs)


def _header(pair: object) -> tuple[str, bytes | None]:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        name, value = pair
        if isinstance(name, str) and isinstance(value, bytes | str | None):
            return name, value.encode() if isinstance(value, str) else value
    raise TypeError(
        f"headers are a dictionary or pairs of a name and bytes, text or None, such as {{'source': b'web'}} or "
        f"[('source', 'web')]; {pair!r} is not such a pair"
    )


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
        # The types that `forward` accepts. At run time the generated `__init__` is used, which does not check each record.
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


class ValueAndHeaders(NamedTuple, Generic[V]):
    """A value and its headers, in a store with headers.

    Attributes:
        value: The deserialised value; never None.
        headers: The headers, in order.
    """

    value: V
    headers: Headers = ()


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
    """The origin of the record that is being processed.

    Attributes:
        topic: Source topic.
        partition: Partition of the topic.
        offset: Offset in the partition.
    """

    topic: str
    partition: int
    offset: int


class HeldRecord(NamedTuple):
    """A record that an operator has stored for later, serialised, so that it can become a dead letter.

    Attributes:
        key: The key's bytes, without the window of a windowed key.
        value: The value's bytes; None for a result that combines several records.
        timestamp: Milliseconds since the epoch.
        headers: The record's headers.
        window: The window of a windowed result; otherwise None.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    window: Window | None = None


class RecordContext(NamedTuple):
    """What a topic extractor gets besides key and value (Kafka Streams' `RecordContext`).

    Attributes:
        topic: Source topic of the record that led to this result; None while flushing.
        partition: Partition of that record; -1 while flushing.
        offset: Offset of that record; -1 while flushing.
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

_ALL = "__streams."
ERROR_HEADERS = "__streams.errors."
"""The prefix of the headers that describe the error of a dead letter."""
STAGE = ERROR_HEADERS + "stage"
COUNTED_BY = ERROR_HEADERS + "counted.by"
"""The names, separated by commas, of the operators that would count the record twice if it were sent to its topic again."""
CUT = ERROR_HEADERS + "cut"
"""The parts that were removed from a dead letter because Kafka would have refused it."""
ORIGIN = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "timestamp"))
"""The topic, partition, offset and timestamp at which the record was first read."""
RETRY = "__streams.retry."
"""The prefix of the headers that the engine adds to records in retry topics."""
OWN = "__streams.own."
"""Replaces the prefix `__streams.` of headers that a record already has, as a dead letter of another application has."""


def set_apart(headers: Headers) -> Headers:
    """Renames a record's own headers where the engine is about to add headers of the same names."""
    if not any(name.startswith((ERROR_HEADERS, RETRY, OWN)) for name, _ in headers):
        return headers
    return tuple(
        (OWN + name.removeprefix(_ALL) if name.startswith((ERROR_HEADERS, RETRY, OWN)) else name, value)
        for name, value in headers
    )


def plain_headers(headers: Headers) -> Headers:
    """The record's own headers under their original names, without the engine's."""
    return tuple(
        (_ALL + name.removeprefix(OWN) if name.startswith(OWN) else name, value)
        for name, value in headers
        if not name.startswith((ERROR_HEADERS, RETRY))
    )


def pick(value: Any, field: str | None) -> Any:
    """Reads a field of a value; None if the field is missing.

    A path (`streams.model.paths`) leads through nested objects, and through arrays by index (`v.0`). Fields of mappings are read
    by name, fields of other objects (dataclasses, named tuples) as attributes.

    Raises:
        NoFieldsError: The value is a text, a number or the like. If a nested part is one, the field counts as missing.
    """
    if field is None or value is None:
        return None
    if not isinstance(value, dict) and not has_fields(value):
        raise NoFieldsError(field)
    for name in names_of(field):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list):
            if not name.isdecimal():
                return None
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None) if has_fields(value) else None
    return value


def has_fields(value: Any) -> bool:
    """Whether a value can have fields: a mapping, a list, or an object with attributes."""
    return isinstance(value, dict | list | Mapping) or hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


# --- The messages between the parts of a foreign-key join (Kafka Streams' `kstream.internals.foreignkeyjoin`).
#
# The left row and the right row belong to different tasks. So a left row *subscribes* to the right key that it refers to. The right
# table's task stores the subscriptions and *responds*, at once and at each update of the right row. The left table's task joins
# the response with its row if the row has not changed since then, which the hash of its value shows.


class Instruction(IntEnum):
    """What a subscription requests (`SubscriptionWrapper.Instruction`)."""

    DELETE = 0
    """Delete the subscription and do not respond."""
    DELETE_AND_RESPOND = 1
    """Delete the subscription and respond without a value, so that the result is deleted."""
    ALWAYS_RESPOND = 2
    """Store the subscription and respond, even if there is no right row."""
    RESPOND_IF_FOUND = 3
    """Store the subscription and respond if there is a right row."""


class Subscription(NamedTuple):
    """A left row's request for updates of a right key.

    Attributes:
        hash: The hash of the left value, 16 bytes; None: the left row was deleted.
        instruction: An `Instruction`.
        primary_key: The key of the left row.
        partition: The left row's partition, which is the number of its task; None: unknown (version 0 of the format).
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None = None


class Response(NamedTuple):
    """The right row, in answer to a subscription.

    Attributes:
        hash: The hash of the left value, from the subscription.
        value: The right value; None if there is no right row.
    """

    hash: bytes | None
    value: Any


class CombinedKey(NamedTuple):
    """The key of a stored subscription."""

    foreign: Any
    primary: Any


RIGHT: Final = 0
LEFT: Final = 1
"""The sides of a join. Rows of one time are sorted by side, right ones first."""


class WaitingKey(NamedTuple):
    """The key of a waiting record in its store.

    Attributes:
        time: The time until which the record waits, epoch ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
        number: The record's number in order of arrival.
    """

    time: int
    side: int
    key: bytes
    number: int


class UnmatchedKey(NamedTuple):
    """The store key of records that have no match yet.

    Attributes:
        time: The timestamp of the records, epoch ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
    """

    time: int
    side: int
    key: bytes


class WaitingRecord(NamedTuple):
    """The stored part of a waiting record besides its key.

    Attributes:
        side: `RIGHT` or `LEFT`.
        value: The record's value.
        headers: The record's headers.
        data: The value's bytes if it was read from a store, otherwise empty.
        time: The time in the store key, epoch ms, for stores that repeat it in the value.
    """

    side: int
    value: Any
    headers: Headers
    data: bytes = b""
    time: int = NO_TIME
