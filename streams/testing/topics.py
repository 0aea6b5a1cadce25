"""The topics of a test driver: `TestInputTopic` and `TestOutputTopic`, with the method names of Kafka Streams, and `TestRecord`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, overload

from state.headers import decode_headers
from streams.application.given_tables import given_rows
from streams.errors import SerdeError
from streams.migration_hints import AnswersUnknownNames
from streams.model.record import Headers, HeadersLike, TimestampLike, to_headers, to_timestamp_ms
from streams.model.typing import K, V
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import BytesSerde
from streams.testing.simulation import Entry, SimulatedKafka
from streams.topology.graph import InternalTopic, SinkNode, SourceNode
from streams.topology.plan import Plan
from streams.topology.rewrite import matches
from streams.wording import did_you_mean


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

    Two records are equal if key, value, timestamp and headers are; topic and partition are not compared:

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

    # fmt: off
    @overload
    def __init__(self, value: V, /, *, key: K | None = ..., timestamp: TimestampLike | None = ...,
                 headers: HeadersLike | None = ..., topic: str | None = ..., partition: int | None = ...) -> None: ...
    @overload
    def __init__(self, key: K | None, /, value: V | None,
                 timestamp: TimestampLike | None = ..., headers: HeadersLike | None = ...,
                 *, topic: str | None = ..., partition: int | None = ...) -> None: ...
    @overload
    def __init__(self, *, key: K | None = ..., value: V | None, timestamp: TimestampLike | None = ...,
                 headers: HeadersLike | None = ..., topic: str | None = ..., partition: int | None = ...) -> None: ...
    # fmt: on
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
"""The type of the records that output topics return."""


Serdes = tuple[Serde[Any], Serde[Any]]


class KnownTopics:
    """The topics that a topology reads and writes, and their serdes.

    Args:
        plan: The topology with the real names of its topics.
        dead_letter_topic: The topic of dead letters, if there is one.
        declared: Topics that the test declares, whether or not a pattern matches them.
    """

    def __init__(self, plan: Plan, dead_letter_topic: str | None, declared: Collection[str] = ()) -> None:
        self._plan = plan
        self._declared = declared
        self._dead_letters = dead_letter_topic
        self._sources = [
            *(source for sub in plan.sub_topologies for source in sub.sources),
            *(table.source for table in plan.topology.global_tables.values()),
        ]
        self._given = {rows.name: rows.topic for rows in given_rows(plan.topology)}
        self._sinks = [sink for sub in plan.sub_topologies for sink in sub.sinks]

    def input_serdes(self, name: str) -> Serdes:
        """The key and value serde of the source of a topic.

        Raises:
            LookupError: No source reads the topic.
        """
        found = next((one for one in self._sources if name in one.topics or matches(one, name)), None)
        if found is None and name in self._declared:
            return self._plan.topology.default_key_serde, self._plan.topology.default_value_serde
        if found is None:
            known = {text for source in self._sources for text in _read_by(source)} - self._plan.internal_topics.keys()
            known |= self._plan.topology.ingests.keys() | self._given.keys()
            raise LookupError(f"the topology does not read a topic {name!r}: {listed(name, known)}")
        return found.key_serde, found.value_serde

    def input_topic(self, name: str) -> str:
        """The topic of a name; that of a source outside Kafka, or of a table of given rows, is its internal topic."""
        own = self._given.get(name, InternalTopic(name) if name in self._plan.topology.ingests else None)
        return name if own is None else own.topic_name(self._plan.application_id)

    def output_serdes(self, name: str) -> Serdes:
        """The key and value serde of the sink of a topic; bytes for dead letters and internal topics without a sink.

        Raises:
            LookupError: No sink writes the topic, and none chooses its topics by the record.
        """
        found: SinkNode | None = next((sink for sink in self._sinks if sink.topic == name), None)
        if found is not None and name != self._dead_letters:
            return found.key_serde, found.value_serde
        if name == self._dead_letters or name in self._plan.internal_topics:
            return BytesSerde(), BytesSerde()
        choosing = next((sink for sink in self._sinks if sink.topic is None), None)
        if choosing is not None:
            return choosing.key_serde, choosing.value_serde
        own = {str(sink.topic) for sink in self._sinks} - self._plan.internal_topics.keys()
        known = own | ({self._dead_letters} if self._dead_letters else set())
        raise LookupError(f"the topology does not write a topic {name!r}: {listed(name, known)}")


def _read_by(source: SourceNode) -> Iterable[str]:
    return source.subscription if source.pattern is not None else map(str, source.topics)


def listed(name: str, known: set[str]) -> str:
    """The existing names, for the error about an unknown name."""
    if not known:
        return "it has none."
    return f"it has {', '.join(map(repr, sorted(known)))}.{did_you_mean(name, known)}"


class PipedRecord(NamedTuple):
    """A record that a test pipes in, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


Send = Callable[[str, PipedRecord, "int | None"], None]


class TestInputTopic(AnswersUnknownNames, Generic[K, V]):
    """Pipes records into a source topic; each record is processed in a separate step, unless within `driver.batch()`.

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

    # fmt: off
    @overload
    def pipe_input(self, value: TestRecord[K, V] | V | None, /, *, key: K | None = ...,
                   timestamp: TimestampLike | None = ..., headers: HeadersLike | None = ...,
                   partition: int | None = ...) -> None: ...
    @overload
    def pipe_input(self, key: K | None, /, value: V | None, timestamp: TimestampLike | None = ...,
                   headers: HeadersLike | None = ..., partition: int | None = ...) -> None: ...
    @overload
    def pipe_input(self, *, value: V | None, key: K | None = ..., timestamp: TimestampLike | None = ...,
                   headers: HeadersLike | None = ..., partition: int | None = ...) -> None: ...
    # fmt: on
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
            value: The value; None is a tombstone. A topic of typed JSON also takes a dict, unchecked, as a producer would send it.
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
        self, values: Iterable[V | None], start_timestamp: TimestampLike | None = None, advance: Duration | None = None
    ) -> None:
        """Pipes records without keys, as `pipe_key_value_list` does with keys."""
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
        key = _as_sent(self._key_serde, self.name, record.key, record.headers)
        value = _as_sent(self._value_serde, self.name, record.value, record.headers)
        self._send(self.name, PipedRecord(key, value, timestamp, record.headers), partition)


def _as_sent(serde: Serde[Any], topic: str, part: object, headers: Headers) -> bytes | None:
    """A key or value as bytes. For typed JSON also from a dict, since that is what a producer would send."""
    try:
        return serde.serialize(topic, part, headers)
    except SerdeError:
        if not (isinstance(serde, JsonSerde) and isinstance(part, dict)):
            raise
    return JsonSerde().serialize(topic, part, headers)


def _advance(duration: Duration) -> int:
    milliseconds = to_ms(duration, "How far a topic's time advances")
    if milliseconds < 0:
        raise ValueError(
            f"The time of an input topic only advances, so not by {duration!r}; give the records timestamps."
        )
    return milliseconds


class TestOutputTopic(AnswersUnknownNames, Generic[K, V]):
    """Reads the records that a topology wrote to a topic: by partition, in order of offset, each record once."""

    __test__ = False

    def __init__(
        self, name: str, key_serde: Serde[K], value_serde: Serde[V], kafka: SimulatedKafka, positions: dict[int, int]
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._kafka = kafka
        self._positions = positions  # next offset by partition, shared by all objects for the topic

    def __repr__(self) -> str:
        return f"TestOutputTopic({self.name!r}, {self._key_serde!r}, {self._value_serde!r})"

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Returns all records that were not read yet."""
        found = []
        for partition in self._partitions:
            found += [self._decoded(partition, record) for record in self._unread(partition)]
            self._positions[partition] = self._kafka.log(self.name, partition).stable_end
        return found

    def read_record(self) -> TestRecord[K, V]:
        """Returns the next record.

        Raises:
            LookupError: There is no further record.
        """
        for partition in self._partitions:
            for record in self._unread(partition):
                self._positions[partition] = record.offset + 1
                return self._decoded(partition, record)
        raise LookupError(f"topic {self.name!r} has no more records; check is_empty or queue_size first")

    def read_key_value(self) -> tuple[K, V]:
        """Returns key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V:
        """Returns the value of the next record."""
        return self.read_record().value

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Returns keys and values of all records that were not read yet."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Returns the last value of each key among the records that were not read yet."""
        return dict(self.read_key_values_to_list())

    def read_values_to_list(self) -> list[V]:
        """Returns the values of all records that were not read yet."""
        return [record.value for record in self.read_records_to_list()]

    @property
    def queue_size(self) -> int:
        """The number of records that were not read yet."""
        return sum(len(self._unread(partition)) for partition in self._partitions)

    @property
    def is_empty(self) -> bool:
        """Whether all records were read."""
        return self.queue_size == 0

    @property
    def _partitions(self) -> range:
        return range(self._kafka.partition_count(self.name) if self.name in self._kafka.topics else 0)

    def _unread(self, partition: int) -> list[Entry]:
        """The records that the topology wrote, in transactions, without the ones that the test itself piped into the topic."""
        records = self._kafka.log(self.name, partition).readable(self._positions.get(partition, 0))
        return [record for record in records if record.span is not None]

    def _decoded(self, partition: int, record: Entry) -> TestRecord[Any, Any]:
        headers = tuple(decode_headers(record.headers))
        key = self._key_serde.deserialize(self.name, record.key, headers)
        value = self._value_serde.deserialize(self.name, record.value, headers)
        return TestRecord(key, value, record.timestamp, headers, topic=self.name, partition=partition)
