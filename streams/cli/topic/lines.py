"""Lines of text as records and records as lines: what `streams topic send` reads and `streams topic read` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import orjson

from streams.application.store_rows import plain
from streams.cli.output import visible, visible_bytes
from streams.cli.target import load_topology
from streams.cli.topic.arguments import SerdeOptions
from streams.cluster.records import Incoming, Outgoing
from streams.errors import ConfigError, SerdeError
from streams.serdes import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSerde,
    Serde,
    StringSerde,
    UuidSerde,
)
from streams.suggest import did_you_mean
from streams.topology.graph import InternalTopic
from streams.topology.topology import Topology

# --- Timestamps as typed and as printed: milliseconds since 1970, or ISO 8601.

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_timestamp(text: str) -> int:
    """Milliseconds since 1970 for a typed time; a time without a zone is UTC.

    Raises:
        ConfigError: The text is not a time.
    """
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        # Python 3.10 does not know the Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time: write milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00Z"
        ) from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def shown_time(at: int) -> str:
    """UTC to the millisecond; beyond the range of the calendar, the number itself."""
    try:
        return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(at)


# --- Serdes on the command line: by name, or those that a topology has for a topic.
#
# Without a serde, bytes are text; bytes that are not valid UTF-8 are shown with backslashes.

SERDES: Mapping[str, type[Any]] = {
    "string": StringSerde,
    "json": JsonSerde,
    "bytes": BytesSerde,
    "int16": Int16Serde,
    "int32": Int32Serde,
    "int64": Int64Serde,
    "float32": Float32Serde,
    "float64": Float64Serde,
    "boolean": BooleanSerde,
    "uuid": UuidSerde,
}


@dataclass(frozen=True, slots=True)
class TopicSerdes:
    """The serdes of a topic's keys and values; None: bytes are text."""

    key: Serde | None = None
    value: Serde | None = None


def topic_serdes(options: SerdeOptions, topic: str) -> TopicSerdes:
    """The serdes for the given options; a named one takes precedence over the topology's.

    Raises:
        ConfigError: The serde does not exist, or the topology does not use the topic.
        TopologyError: The topology cannot be loaded.
    """
    found = TopicSerdes()
    if options.topology is not None:
        found = _of_topology(load_topology(options.topology), options.topology, topic)
    return TopicSerdes(_named(options.key_serde) or found.key, _named(options.value_serde) or found.value)


def to_bytes(serde: Serde | None, topic: str, value: Any) -> bytes | None:
    """The bytes of a value that was read from JSON.

    Raises:
        SerdeError: The serde does not accept the value.
    """
    if serde is not None:
        return serde.serialize(topic, value)
    return None if value is None else value.encode() if isinstance(value, str) else orjson.dumps(value)


def from_text(serde: Serde | None, topic: str, text: bytes) -> bytes | None:
    """The bytes of a typed value: the text itself, or with a serde its serialisation, read as JSON if it is valid JSON.

    Raises:
        SerdeError: The serde does not accept the value.
    """
    if serde is None or isinstance(serde, BytesSerde):
        return text
    typed = text.decode(errors="surrogateescape")
    try:
        value = typed if isinstance(serde, StringSerde | UuidSerde) else orjson.loads(text)
    except orjson.JSONDecodeError:
        value = typed
    return serde.serialize(topic, value)


def _named(name: str | None) -> Serde | None:
    if name is None:
        return None
    if name not in SERDES:
        raise ConfigError(
            f"{name!r} is not the name of a serde: {', '.join(SERDES)}.{did_you_mean(name, SERDES)} Others come with --topology."
        )
    made: Serde = SERDES[name]()
    return made


def _of_topology(topology: Topology, target: str, topic: str) -> TopicSerdes:
    """The serdes of the sink that writes the topic, or of the source that reads it."""
    sources = [*topology.sources(), *(table.source for table in topology.global_tables.values())]
    for sink in topology.sinks():
        if sink.topic is not None and _is_called(topic, sink.topic):
            return TopicSerdes(sink.key_serde, sink.value_serde)
    for source in sources:
        matches = source.pattern is not None and source.pattern.fullmatch(topic)
        if matches or any(_is_called(topic, one) for one in source.topics):
            return TopicSerdes(source.key_serde, source.value_serde)
    written = [str(sink.topic) for sink in topology.sinks() if sink.topic is not None]
    names = list(dict.fromkeys([*(name for source in sources for name in source.subscription), *written]))
    raise ConfigError(
        f"the topology {target} does not use the topic {topic!r}; it uses: {', '.join(names)}.{did_you_mean(topic, names)}"
    )


def _is_called(name: str, topic: str | InternalTopic) -> bool:
    """Whether a topic of the program has the given name in Kafka."""
    return name.endswith(f"-{topic}") if isinstance(topic, InternalTopic) else name == topic


# --- Records from lines of text: `key TAB value`, or a JSON object.

_FIELDS = {"key", "value", "timestamp", "headers", "partition"}
_READ_FIELDS = {"topic", "offset"}
"""Fields that `streams topic read --json` adds to say where a record came from; ignored here."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of lines that become records.

    Attributes:
        topic: The topic to write to, which serdes receive.
        separator: The text between key and value.
        null: The text that represents null; None: none.
        timestamp: Event time of records without their own, ms; None: the time of writing.
        timestamps: Whether each line begins with its event time.
        headers: Headers of all records.
        partition: Partition of records that name none; None: by key.
        as_json: Whether each line is a JSON object.
        serdes: The serdes of keys and values.
    """

    topic: str
    separator: str = "\t"
    null: str | None = None
    timestamp: int | None = None
    timestamps: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    as_json: bool = False
    serdes: TopicSerdes = field(default_factory=TopicSerdes)


def records_of(lines: Iterable[bytes], form: LineFormat) -> Iterator[Outgoing]:
    """Yields a record for each line, except empty lines.

    Raises:
        ConfigError: A line does not match the format; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        try:
            yield _of_json(text, form) if form.as_json else _of_text(text, form)
        except (ConfigError, SerdeError, UnicodeEncodeError) as error:
            raise ConfigError(f"line {number}: {error}") from error


def _of_text(text: bytes, form: LineFormat) -> Outgoing:
    separator, timestamp = form.separator.encode(), form.timestamp
    if form.timestamps:
        time, found, text = text.partition(separator)
        if not found:
            raise ConfigError(f"a time and {form.separator!r} are needed before the record")
        timestamp = to_timestamp(time.decode(errors="replace"))
    first, found, rest = text.partition(separator)
    key = _typed(form, form.serdes.key, first) if found else None
    value = _typed(form, form.serdes.value, rest if found else text)
    return Outgoing(key, value, timestamp, form.headers, form.partition)


def _typed(form: LineFormat, serde: Any, text: bytes) -> bytes | None:
    if form.null is not None and text == form.null.encode():
        return None
    return from_text(serde, form.topic, text)


def _of_json(text: bytes, form: LineFormat) -> Outgoing:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or "value" not in found:
        raise ConfigError(
            'an object with "value" is needed, such as {"key": "a", "value": 1, "timestamp": 1700000000000}'
        )
    unknown = found.keys() - _FIELDS - _READ_FIELDS
    if unknown:
        raise ConfigError(f"unknown fields {sorted(unknown)}; a record has {', '.join(sorted(_FIELDS))}")
    timestamp, partition = found.get("timestamp"), found.get("partition")
    if partition is not None and not isinstance(partition, int):
        raise ConfigError(f'"partition" is a number, not {partition!r}')
    return Outgoing(
        to_bytes(form.serdes.key, form.topic, found.get("key")),
        to_bytes(form.serdes.value, form.topic, found["value"]),
        form.timestamp if timestamp is None else to_timestamp(str(timestamp)),
        (*form.headers, *_headers(found.get("headers"))),
        form.partition if partition is None else partition,
    )


def _headers(given: Any) -> Iterator[tuple[str, bytes | None]]:
    """The headers from a JSON object, or from a list of pairs, in which a name may occur twice."""
    found = given.items() if isinstance(given, Mapping) else given or ()
    for pair in found:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigError('"headers" is an object, or a list of pairs [name, value]')
        name, value = pair
        yield str(name), None if value is None else str(value).encode()


# --- The output of records: lines for people, and JSON for programs.


class RecordPrinter:
    """A formatter of records as lines or as JSON data.

    Args:
        topic: The topic, which serdes receive.
        serdes: The serdes of keys and values.
        timestamps: Whether a line begins with the event time.
        headers: Whether headers come before the key.

    Attributes:
        unreadable: The number of keys and values that their serde could not read, which are shown as bytes.
        why: The error of the first of them.
    """

    def __init__(self, topic: str, serdes: TopicSerdes, *, timestamps: bool = False, headers: bool = False) -> None:
        self._topic = topic
        self._serdes = serdes
        self._timestamps = timestamps
        self._headers = headers
        self.unreadable = 0
        self.why = ""

    def line(self, record: Incoming) -> str:
        """A record for people: time, headers, key and value, separated by tabs; without a key, there is no column for it."""
        parts = [shown_time(record.timestamp)] if self._timestamps else []
        if self._headers:
            named = (f"{visible(name)}={_bytes(value)}" for name, value in record.headers)
            parts.append(",".join(named) or "-")
        if record.key is not None:
            parts.append(self._text(self._serdes.key, record.key, record))
        parts.append(self._text(self._serdes.value, record.value, record))
        return "\t".join(parts)

    def as_dict(self, record: Incoming) -> dict[str, Any]:
        """A record for programs, which `streams topic send --json` accepts."""
        return {
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": self._plain(self._serdes.key, record.key, record),
            "value": self._plain(self._serdes.value, record.value, record),
            "headers": [
                [name, None if value is None else value.decode(errors="backslashreplace")]
                for name, value in record.headers
            ],
        }

    def _text(self, serde: Serde | None, data: bytes | None, record: Incoming) -> str:
        if data is None:
            return "null"
        if serde is None:
            # Tabs are harmless: they separate key and value, and may indent JSON.
            return visible(data.decode(errors="backslashreplace"), keep="\t")
        found = self._plain(serde, data, record)
        return visible(found if isinstance(found, str) else orjson.dumps(found).decode())

    def _plain(self, serde: Serde | None, data: bytes | None, record: Incoming) -> Any:
        if data is None or serde is None:
            return None if data is None else data.decode(errors="backslashreplace")
        try:
            return plain(serde.deserialize(self._topic, data, record.headers))
        except SerdeError as error:
            self.unreadable += 1
            self.why = self.why or visible(str(error))
            return visible_bytes(data)


def _bytes(data: bytes | None) -> str:
    return "null" if data is None else visible_bytes(data)
