"""`TestInputTopic`: writes records to a source topic, with the method names of Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, overload

from streams.migration_hints import AnswersUnknownNames
from streams.model.conversions import HeadersLike, TimestampLike, to_headers, to_timestamp_ms
from streams.model.record import Headers
from streams.model.typing import K, V
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde
from streams.testing.records import NOT_GIVEN, TestRecord, key_and_value


class PipedRecord(NamedTuple):
    """A record that a test pipes in, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


Send = Callable[[str, PipedRecord, "int | None"], None]


class TestInputTopic(AnswersUnknownNames, Generic[K, V]):
    """Pipes records into a source topic; each record is processed in a step of its own, unless within `driver.batch()`.

    A record without a timestamp gets the topic's time: `start_timestamp` (by default the driver's clock), plus what
    `auto_advance` and `advance_time` have added.

    Args:
        name: The topic.
        key_serde: The serde that writes keys.
        value_serde: The serde that writes values.
        send: Sends the bytes to the driver.
        now: The driver's clock.
        start_timestamp: The topic's first time; default: the driver's clock, read at each record.
        auto_advance: How far the topic's time moves after each record without a timestamp.
    """

    __test__ = False

    def __init__(
        self,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        send: Send,
        now: Callable[[], int],
        start_timestamp: TimestampLike | None = None,
        auto_advance: Duration = 0,
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._send = send
        self._now = now
        self._start = None if start_timestamp is None else to_timestamp_ms(start_timestamp, "start_timestamp")
        self._auto_advance = _advance(auto_advance)
        self._advanced = 0

    def __repr__(self) -> str:
        return f"TestInputTopic({self.name!r}, {self._key_serde!r}, {self._value_serde!r})"

    @overload
    def pipe_input(
        self,
        value: TestRecord[K, V] | V | None,
        /,
        *,
        key: K | None = ...,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    @overload
    def pipe_input(
        self,
        key: K | None,
        /,
        value: V | None,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    @overload
    def pipe_input(
        self,
        *,
        value: V | None,
        key: K | None = ...,
        timestamp: TimestampLike | None = ...,
        headers: HeadersLike | None = ...,
        partition: int | None = ...,
    ) -> None: ...

    def pipe_input(
        self,
        first: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        partition: int | None = None,
        *,
        key: Any = NOT_GIVEN,
    ) -> None:
        """Pipes one record: `pipe_input(value)`, `pipe_input(key, value, timestamp=…)` or `pipe_input(TestRecord(…))`.

        Args:
            first: The value, or a `TestRecord`, if it is the only one; otherwise the key.
            value: The value; None is a tombstone.
            timestamp: Milliseconds since the epoch, a `datetime` (without a zone: UTC) or a `timedelta` since the epoch;
                default: the topic's time.
            headers: Pairs of name and value, or a dictionary; values are bytes or text.
            partition: The partition; default: the key's.
            key: The key.

        Raises:
            TypeError: There is no value, or an argument has another type.
        """
        record = first
        if not isinstance(first, TestRecord):
            key, value = key_and_value("pipe_input", first, value, key)
            record = TestRecord(key, value, timestamp, headers)
        elif any(given is not NOT_GIVEN for given in (value, key)) or timestamp is not None or headers:
            raise TypeError(
                "pipe_input(TestRecord(...)) takes nothing besides but the partition: the record has the rest"
            )
        self._pipe(record, partition)

    def pipe_value_list(
        self,
        values: Iterable[V | None],
        start_timestamp: TimestampLike | None = None,
        advance: Duration | None = None,
    ) -> None:
        """Pipes records without keys; see `pipe_key_value_list`."""
        self.pipe_key_value_list(((None, value) for value in values), start_timestamp, advance)

    def pipe_key_value_list(
        self,
        pairs: Iterable[tuple[K | None, V | None]] | Mapping[K, V],
        start_timestamp: TimestampLike | None = None,
        advance: Duration | None = None,
        *,
        start_ms: int | None = None,
    ) -> None:
        """Pipes one record for each pair of key and value.

        Args:
            pairs: Keys and values.
            start_timestamp: The first record's timestamp; default: the topic's time.
            advance: How much later each further record is; default: the topic's `auto_advance`.
            start_ms: `start_timestamp` in milliseconds.
        """
        start = start_ms if start_timestamp is None else to_timestamp_ms(start_timestamp, "start_timestamp")
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        records = [TestRecord(key, value) for key, value in items]
        if start is None and advance is None:
            self.pipe_record_list(records)
            return
        timestamp = self._time if start is None else start
        step = self._auto_advance if advance is None else _advance(advance)
        for record in records:
            self.pipe_input(record.key, record.value, timestamp)
            timestamp += step

    def pipe_record_list(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Pipes `TestRecord`s; those without a timestamp get the topic's time."""
        for record in records:
            self.pipe_input(record)

    def pipe_bytes(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: TimestampLike = 0,
        headers: HeadersLike | None = None,
        partition: int | None = None,
    ) -> None:
        """Pipes a record as the bytes in Kafka, for instance one that no serde can read."""
        self._send(self.name, PipedRecord(key, value, to_timestamp_ms(timestamp), to_headers(headers)), partition)

    def advance_time(self, advance: Duration) -> None:
        """Advances the topic's time, for the records that follow; the driver's clock does not move."""
        self._advanced += _advance(advance)

    @property
    def _time(self) -> int:
        """The timestamp for a record that has none."""
        return (self._now() if self._start is None else self._start) + self._advanced

    def _pipe(self, record: TestRecord[K, V], partition: int | None) -> None:
        timestamp = record.timestamp
        if timestamp is None:
            timestamp = self._time
            self._advanced += self._auto_advance
        key = self._key_serde.serialize(self.name, record.key, record.headers)
        value = self._value_serde.serialize(self.name, record.value, record.headers)
        self._send(self.name, PipedRecord(key, value, timestamp, record.headers), partition)


def _advance(duration: Duration) -> int:
    milliseconds = to_ms(duration, "How far a topic's time advances")
    if milliseconds < 0:
        raise ValueError(
            f"The time of an input topic only advances, so not by {duration!r}; give the records timestamps."
        )
    return milliseconds
