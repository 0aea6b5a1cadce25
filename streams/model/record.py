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
"""Before the first record there is no stream time."""

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"
"""Headers as a record has them."""
TimestampLike: TypeAlias = "int | datetime | timedelta"
"""Milliseconds since the epoch, a moment (no zone: UTC), or the time since the epoch."""
HeaderValue: TypeAlias = "bytes | str | None"
HeadersLike: TypeAlias = "Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]"
"""Pairs of name and value, or a dictionary; text is written as UTF-8."""

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
        TypeError: A name is not text, or a value is neither bytes nor text nor None.
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


class ValueAndHeaders(NamedTuple, Generic[V]):
    """The value of a row in a store with headers.

    Attributes:
        value: The deserialised value; never None.
        headers: Its headers, in their order.
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
        key: The key's bytes; without the window if it has one.
        value: The value's bytes; None for a result of several records.
        timestamp: Milliseconds.
        headers: Its headers.
        window: That of a window's result.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    window: Window | None = None


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

_ALL = "__streams."
ERROR_HEADERS = "__streams.errors."
"""What the names of these headers begin with."""
STAGE = ERROR_HEADERS + "stage"
COUNTED_BY = ERROR_HEADERS + "counted.by"
"""The operators that would count the record a second time if it were sent to its topic again, separated by commas."""
CUT = ERROR_HEADERS + "cut"
"""What was cut from a dead letter that Kafka would have refused."""
ORIGIN = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "timestamp"))
"""Where the record came from first."""
RETRY = "__streams.retry."
"""What the names of the headers of records in retry topics begin with."""
OWN = "__streams.own."
"""What these names begin with where they are the record's own: an application may read the dead letters of another."""


def set_apart(headers: Headers) -> Headers:
    """A record's own headers, renamed where their names are the ones that the engine is about to add."""
    if not any(name.startswith((ERROR_HEADERS, RETRY, OWN)) for name, _ in headers):
        return headers
    return tuple(
        (OWN + name.removeprefix(_ALL) if name.startswith((ERROR_HEADERS, RETRY, OWN)) else name, value)
        for name, value in headers
    )


def plain_headers(headers: Headers) -> Headers:
    """The headers that are the record's own, as they were."""
    return tuple(
        (_ALL + name.removeprefix(OWN) if name.startswith(OWN) else name, value)
        for name, value in headers
        if not name.startswith((ERROR_HEADERS, RETRY))
    )


def pick(value: Any, field: str | None) -> Any:
    """One field of a value, None if the field is missing.

    A path (`streams.model.paths`) goes through nested objects, and arrays by index (`v.0`). Fields of mappings are read
    by name, those of other objects (dataclasses, named tuples) as attributes.

    Raises:
        NoFieldsError: The value is text, a number or the like. If a nested part is, the field counts as missing.
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
    """Whether a value has fields: a mapping, a list, or an object with attributes."""
    return isinstance(value, dict | list | Mapping) or hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


# --- The messages between the parts of a foreign-key join (Kafka Streams' `kstream.internals.foreignkeyjoin`).
#
# The left row and the right row belong to different tasks. So a left row *subscribes* to the right key that it refers to. The right
# table's task stores the subscriptions and *responds*, at once and at each update of the right row. The left table's task joins
# the response with its row if the row has not changed since (by the hash of its value).


class Instruction(IntEnum):
    """What a subscription asks for (`SubscriptionWrapper.Instruction`)."""

    DELETE = 0
    """Forget it; no response."""
    DELETE_AND_RESPOND = 1
    """Forget it, and respond with nothing, so that the result is deleted."""
    ALWAYS_RESPOND = 2
    """Keep it, and respond even if there is no right row."""
    RESPOND_IF_FOUND = 3
    """Keep it, and respond if there is a right row."""


class Subscription(NamedTuple):
    """A left row's interest in a right key.

    Attributes:
        hash: The hash of the left value, 16 bytes; None: the row was deleted.
        instruction: An `Instruction`.
        primary_key: The key of the left row.
        partition: The left row's partition, which is the number of its task; None: not known (version 0 of the format).
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None = None


class Response(NamedTuple):
    """The right row, in answer to a subscription.

    Attributes:
        hash: The hash of the subscription.
        value: The right value; None if there is none.
    """

    hash: bytes | None
    value: Any


class CombinedKey(NamedTuple):
    """The key of a stored subscription."""

    foreign: Any
    primary: Any


RIGHT: Final = 0
LEFT: Final = 1
"""Sides of a join. At one time the right records lie ahead of the left ones."""


class WaitingKey(NamedTuple):
    """The key of a waiting record in its store.

    Attributes:
        time: The time until which it waits, ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
        number: Counts the records in order of arrival.
    """

    time: int
    side: int
    key: bytes
    number: int


class UnmatchedKey(NamedTuple):
    """The key of the records that have no partner yet in their store.

    Attributes:
        time: Their timestamp, ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
    """

    time: int
    side: int
    key: bytes


class WaitingRecord(NamedTuple):
    """The rest of a waiting record.

    Attributes:
        side: `RIGHT` or `LEFT`.
        value: Its value.
        headers: Its headers.
        data: The bytes of the value, where it was read from a store.
        time: The time of its key, ms, for stores in which the value has it too.
    """

    side: int
    value: Any
    headers: Headers
    data: bytes = b""
    time: int = NO_TIME
