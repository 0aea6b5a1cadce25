"""`TestRecord`: an input or output record of a topology, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, overload

from streams.model.conversions import HeadersLike, TimestampLike, to_headers, to_timestamp_ms
from streams.model.record import Headers
from streams.model.typing import K, V


class NotGiven:
    """The type of an argument that a test leaves out, because None is a valid value."""

    def __repr__(self) -> str:
        return "..."


NOT_GIVEN: Final = NotGiven()


def key_and_value(call: str, first: Any, value: Any, key: Any) -> tuple[Any, Any]:
    """The key and the value of a record, from `(value)`, `(key, value)` or keywords.

    Args:
        call: The function's name, for the error message.
        first: The first argument: the value if it is the only one, otherwise the key.
        value: The value.
        key: The key, if passed by keyword.

    Raises:
        TypeError: There is no value, or there are two keys.
    """
    if value is NOT_GIVEN:
        first, value = NOT_GIVEN, first
    if value is NOT_GIVEN:
        raise TypeError(f"{call} needs a value: {call}(value) or {call}(key, value); None is a tombstone")
    if first is not NOT_GIVEN and key is not NOT_GIVEN:
        raise TypeError(f"{call} was given two keys, {first!r} and {key!r}")
    given = key if first is NOT_GIVEN else first
    return (None if given is NOT_GIVEN else given), value


@dataclass(frozen=True, init=False, repr=False)
class TestRecord(Generic[K, V]):
    """A record with its timestamp and headers (Kafka Streams' `TestRecord`).

    Two records are equal if key, value, timestamp and headers are; topic and partition are not compared::

        assert output.read_record() == TestRecord("a", 1, timestamp=5)

    Attributes:
        key: The key, or None.
        value: The value; None is a tombstone.
        timestamp: Milliseconds since the epoch; None: the input topic's time.
        headers: Pairs of name and bytes, in order.
        topic: The topic it was read from.
        partition: The partition it was read from.
    """

    __test__ = False

    key: K
    value: V
    timestamp: int | None
    headers: Headers
    topic: str | None = field(compare=False)
    partition: int | None = field(compare=False)

    @overload
    def __init__(
        self,
        value: V,
        /,
        *,
        key: K | None = ...,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        topic: str | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        key: K | None,
        /,
        value: V | None,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        *,
        topic: str | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        key: K | None = ...,
        value: V | None,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        topic: str | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    def __init__(
        self,
        first: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        *,
        key: Any = NOT_GIVEN,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Makes a record: `TestRecord(value)` has no key, `TestRecord(key, value)` has one.

        Raises:
            TypeError: There is no value, or the timestamp or the headers have another type.
        """
        set_field = object.__setattr__
        key, value = key_and_value("TestRecord", first, value, key)
        set_field(self, "key", key)
        set_field(self, "value", value)
        set_field(self, "timestamp", None if timestamp is None else to_timestamp_ms(timestamp))
        set_field(self, "headers", to_headers(headers))
        set_field(self, "topic", topic)
        set_field(self, "partition", partition)

    def __repr__(self) -> str:
        shown: list[Any] = [repr(self.key), repr(self.value)]
        if self.timestamp is not None:
            shown.append(f"timestamp={self.timestamp}")
        if self.headers:
            shown.append(f"headers={self.headers!r}")
        return f"TestRecord({', '.join(shown)})"


OutputRecord = TestRecord
"""What output topics give."""
