"""`streams topic`: topics of any cluster, the embedded broker's by default, and their records as lines of text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape

from state.errors import TopicMismatchError, TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.cli.command import OptionGroup, application, argument, command, option
from streams.cli.options import (
    AsJson,
    ClusterOptions,
    complete_topics,
    pairs,
    printable,
    to_timestamp,
    with_embedded_default,
)
from streams.cli.output import (
    print_json,
    print_json_line,
    print_line,
    print_table,
    shown_time,
    visible,
    visible_bytes,
)
from streams.cli.target import load_topology
from streams.cluster.admin import list_topics as topics_of
from streams.cluster.admin import sizes_on_disk
from streams.cluster.records import Begin, Incoming, Outgoing, read_records, write_records
from streams.errors import ConfigError, SerdeError
from streams.model.record import NO_TIME
from streams.serdes import (
    AvroSymbol,
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
from streams.serdes.json_shown import shown
from streams.serdes.json_text import dumps, loads
from streams.wording import counted, did_you_mean

if TYPE_CHECKING:
    # Most calls need no topology, and its classes would double the time that a command takes to start.
    from streams.topology.graph import InternalTopic
    from streams.topology.topology import Topology

Topic = Annotated[str, argument("The topic.", metavar="TOPIC", autocompletion=complete_topics)]
Topics = Annotated[list[str], argument("The topics.", metavar="TOPIC", autocompletion=complete_topics)]


@dataclass(frozen=True)
class SerdeOptions(OptionGroup, panel="Keys and values"):
    """Options for the serdes of keys and values: named ones, or the ones that a topology has for the topic."""

    key_serde: Annotated[str | None, option("Serde of keys: string, json, int64, ... or bytes.", metavar="SERDE")] = (
        None
    )
    value_serde: Annotated[str | None, option("Serde of values, likewise.", metavar="SERDE")] = None
    topology: Annotated[
        str | None,
        option(
            "Use the serdes that this topology has for the topic: app.py, package.module or app.py:build.",
            metavar="TARGET",
        ),
    ] = None


@command
def create(
    topics: Topics,
    *,
    partitions: Annotated[int, option("Partitions of each topic.", min=1)] = 1,
    replication: Annotated[
        int, option("Replicas of each partition. Default: -1, the broker's own default.", min=-1)
    ] = -1,
    config: Annotated[
        list[str] | None,
        option("A topic setting, such as cleanup.policy=compact; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    cluster: ClusterOptions,
) -> None:
    """Create topics. An existing topic with the same number of partitions is not touched."""
    settings = pairs(config, "--config", "cleanup.policy=compact")
    with KafkaAdmin(cluster.client()) as admin:
        try:
            admin.create_topics([TopicSpec(name, partitions, settings, replication) for name in topics])
        except TopicMismatchError as error:
            raise ConfigError(
                f"topic {error.topic!r} already exists, with {counted(error.found, 'partition')}"
            ) from error
    for name in topics:
        typer.echo(f"{name}: {counted(partitions, 'partition')}")


@command
def list_topics(
    internal: Annotated[bool, option("Also list Kafka's own topics.")] = False,
    as_json: AsJson = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List a cluster's topics, with partitions, records and, for the embedded broker, their size on disk.

    The number of records comes from offsets, and may be too high: ends of transactions and compacted records have offsets, too.
    """
    given = cluster.given()
    client = with_embedded_default(given, cluster.data_dir)
    sizes = sizes_on_disk(cluster.data_dir) if "bootstrap.servers" not in given else None
    if not as_json:
        # Called first, so that the error for an unreachable cluster names its settings.
        print_line(f"Kafka: {printable(client)}")
    found: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "records": topic.offsets,
            **({} if sizes is None else {"disk_bytes": sizes.get(topic.name, 0)}),
        }
        for topic in topics_of(client, internal=internal)
    ]
    if as_json:
        print_json(found)
        return
    headings = ("Topic", ">Partitions", ">Records at most", *(() if sizes is None else (">Size",)))
    rows = []
    for topic in found:
        size = () if sizes is None else (decimal(topic["disk_bytes"]),)
        records = "?" if topic["records"] is None else f"{topic['records']:,}"
        rows.append((escape(topic["topic"]), str(topic["partitions"]), records, *size))
    print_table(headings, rows)


SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
)
"""The settings that people look for most; JSON has all settings."""


@command
def describe(topic: Topic, as_json: AsJson = False, *, cluster: ClusterOptions) -> None:
    """Show a topic: partitions with their offsets, id and settings."""
    with KafkaAdmin(cluster.client()) as admin:
        info = admin.describe_topics([topic]).get(topic)
        if info is None:
            raise TopicNotFoundError(topic)
        places = [(topic, number) for number in range(info.partitions)]
        begins, ends, last = admin.begin_offsets(places), admin.end_offsets(places), admin.max_timestamps(places)
        partitions = [
            {"partition": at[1], "begin": begins[at], "end": ends[at], "max_timestamp": last[at]} for at in places
        ]
        found: dict[str, Any] = {
            "topic": topic,
            "id": info.topic_id,
            "partitions": partitions,
            "config": dict(sorted(admin.topic_config(topic).items())),
        }
    if as_json:
        print_json(found)
        return
    print_line(f"{topic} (id {info.topic_id})")
    rows = [
        (str(one["partition"]), f"{one['begin']:,}", f"{one['end']:,}", counted(one["end"] - one["begin"], "record"))
        for one in partitions
    ]
    print_table((">Partition", ">Begin", ">End", ">At most"), rows)
    for name in SHOWN:
        if name in found["config"]:
            print_line(f"{name} = {visible(found['config'][name])}")


@command
def send(
    topic: Topic,
    *,
    key_separator: Annotated[
        str, option("The text between key and value.", metavar="TEXT", show_default="a tab")
    ] = "\t",
    null: Annotated[str | None, option("The text for a null key or value (a tombstone).", metavar="TEXT")] = None,
    timestamp: Annotated[
        str | None, option("Event time for all records: ms, or 2026-01-31T12:00:00Z. Default: now.", metavar="TIME")
    ] = None,
    timestamps: Annotated[bool, option("Each line begins with its event time and the separator.")] = False,
    header: Annotated[
        list[str] | None, option("A header for all records; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    partition: Annotated[int | None, option("Write to this partition.", min=0)] = None,
    as_json: Annotated[
        bool, option("Each line is a JSON object with key, value, timestamp, headers and partition.", "--json")
    ] = False,
    types: SerdeOptions,
    cluster: ClusterOptions,
) -> None:
    """Write standard input to a topic, one record per line: key, tab, value, or only a value.

    With --json, each line is an object in which everything but `value` is optional: {"key": "a", "value": {"n": 1},
    "timestamp": 1700000000000, "headers": {"trace": "x"}}. The output of `streams topic read --json` has this form.
    """
    form = LineFormat(
        topic=topic,
        separator=key_separator.replace("\\t", "\t"),
        null=null,
        timestamp=None if timestamp is None else _event_time(timestamp),
        timestamps=timestamps,
        headers=tuple((name, value.encode()) for name, value in pairs(header, "--header", "trace=7").items()),
        partition=partition,
        as_json=as_json,
        serdes=topic_serdes(types, topic),
    )
    client = cluster.client()
    count = write_records(client, topic, records_of(typer.get_binary_stream("stdin"), form))
    typer.echo(f"{counted(count, 'record')} written to {topic}", err=True)


@command
def read(
    topic: Topic,
    *,
    follow: Annotated[bool, option("Wait for further records, until Ctrl-C.", "-f")] = False,
    limit: Annotated[int | None, option("Print at most this many records.", "-n", min=1)] = None,
    offset: Annotated[
        str,
        option(
            "Where to begin: earliest, latest, an offset, or -N for the last N offsets (each commit takes an offset, too).",
            metavar="OFFSET",
        ),
    ] = "earliest",
    from_beginning: Annotated[bool, option("The same as --offset earliest, the default.")] = False,
    partition: Annotated[int | None, option("Only this partition.", min=0)] = None,
    timestamps: Annotated[bool, option("Begin each line with the event time.")] = False,
    headers: Annotated[bool, option("Print headers before the key.")] = False,
    as_json: Annotated[bool, option("A line of JSON for each record, with all its fields.", "--json")] = False,
    types: SerdeOptions,
    cluster: ClusterOptions,
) -> None:
    """Print the committed records of a topic, one per line: key, tab, value.

    Control characters are shown as escapes. Counts, windowed keys and other binary data become readable with --topology, or
    with --key-serde and --value-serde.
    """
    printer = RecordPrinter(topic, topic_serdes(types, topic), timestamps=timestamps, headers=headers)
    begin = Begin(0 if from_beginning else _offset(offset), partition)
    found = islice(read_records(cluster.client(), topic, begin, follow=follow), limit)
    with suppress(KeyboardInterrupt):
        for record in found:
            if as_json:
                print_json_line(printer.as_dict(record))
            else:
                typer.echo(printer.line(record))
    if printer.unreadable:
        typer.echo(f"{printer.unreadable} keys or values are shown as bytes: {printer.why}", err=True)


def _offset(text: str) -> int | None:
    named = {"earliest": 0, "beginning": 0, "latest": None, "end": None}
    if text in named:
        return named[text]
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--offset {text}: earliest, latest, a number, or -N for the last N") from None


@command
def delete(
    topics: Topics, *, yes: Annotated[bool, option("Do not ask.", "-y")] = False, cluster: ClusterOptions
) -> None:
    """Delete topics and all records in them.

    The internal topics of an application are deleted by `streams reset`, together with its state.
    """
    client = cluster.client()
    with KafkaAdmin(client) as admin:
        found = admin.describe_topics(topics)
        TopicNotFoundError.if_missing(topics, found)
        if not yes:
            typer.confirm(f"Delete {', '.join(topics)} of Kafka {printable(client)}?", abort=True)
        admin.delete_topics(topics)
    typer.echo(f"{counted(len(found), 'topic')} deleted", err=True)


# Serdes: by name, or the ones that a topology has for a topic. Without one, bytes are text.

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
    if serde is not None and not isinstance(serde, BytesSerde):
        return serde.serialize(topic, value)
    return None if value is None else value.encode() if isinstance(value, str) else dumps(value)


def from_text(serde: Serde | None, topic: str, text: bytes) -> bytes | None:
    """The bytes of a typed value: the text itself; with a serde, the serialised value, which is read as JSON if it is valid JSON.

    Raises:
        SerdeError: The serde does not accept the value.
    """
    if serde is None or isinstance(serde, BytesSerde):
        return text
    typed = text.decode(errors="surrogateescape")
    try:
        value = typed if isinstance(serde, StringSerde | UuidSerde) else loads(text)
    except ValueError:
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
    return name == topic if isinstance(topic, str) else name.endswith(f"-{topic}")


# Records from lines of text: `key TAB value`, or a JSON object.

_BASE64 = "base64"
"""Marks bytes that have no text form: the fields `key_base64` and `value_base64`, and `{"base64": ...}` for a header."""
_FIELDS = {"key", "value", f"key_{_BASE64}", f"value_{_BASE64}", "timestamp", "headers", "partition"}
_READ_FIELDS = {"topic", "offset"}
"""Fields that `streams topic read --json` adds to show where a record came from; ignored here."""


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
    """Yields a record for each line, except empty lines."""
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
        timestamp = _event_time(time.decode(errors="replace"))
    first, found, rest = text.partition(separator)
    key = _typed(form, form.serdes.key, first) if found else None
    value = _typed(form, form.serdes.value, rest if found else text)
    return Outgoing(key, value, timestamp, form.headers, form.partition)


def _event_time(text: str) -> int:
    time = to_timestamp(text)
    if time == 0:
        raise ConfigError(
            "Kafka's client replaces the time 0 with the time of writing, so no record can have it: use 1"
        )
    return time


def _typed(form: LineFormat, serde: Any, text: bytes) -> bytes | None:
    if form.null is not None and text == form.null.encode():
        return None
    return from_text(serde, form.topic, text)


def _of_json(text: bytes, form: LineFormat) -> Outgoing:
    try:
        found = loads(text)
    except ValueError as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or not found.keys() & {"value", f"value_{_BASE64}"}:
        raise ConfigError(
            'an object with "value" is needed, such as {"key": "a", "value": 1, "timestamp": 1700000000000}'
        )
    unknown = found.keys() - _FIELDS - _READ_FIELDS
    if unknown:
        raise ConfigError(f"unknown fields {sorted(unknown)}; a record has {', '.join(sorted(_FIELDS))}")
    timestamp, partition = found.get("timestamp"), found.get("partition")
    if partition is not None and type(partition) is not int:
        raise ConfigError(f'"partition" is a number, not {partition!r}')
    return Outgoing(
        _part(found, "key", form.serdes.key, form.topic),
        _part(found, "value", form.serdes.value, form.topic),
        form.timestamp if timestamp in (None, NO_TIME) else _event_time(str(timestamp)),
        (*form.headers, *_headers(found.get("headers"))),
        form.partition if partition is None else partition,
    )


def _part(record: Mapping[str, Any], name: str, serde: Serde | None, topic: str) -> bytes | None:
    """The bytes of a key or a value, from its text, or exactly from base64."""
    exact = record.get(f"{name}_{_BASE64}")
    if exact is None:
        return to_bytes(serde, topic, record.get(name))
    if record.get(name) is not None:
        raise ConfigError(
            f'it has both "{name}" and "{name}_{_BASE64}", the same bytes in base64: leave one of them out'
        )
    return _of_base64(exact, f"{name}_{_BASE64}")


def _of_base64(text: Any, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(f'"{name}" is not base64: {error}') from error


def _headers(given: Any) -> Iterator[tuple[str, bytes | None]]:
    """The headers from a JSON object, or from a list of pairs, in which a name may occur twice."""
    found = given.items() if isinstance(given, Mapping) else given or ()
    for pair in found:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigError('"headers" is an object, or a list of pairs [name, value]')
        name, value = pair
        if isinstance(value, Mapping):
            if value.keys() != {_BASE64}:
                raise ConfigError(f'the header {name!r} is a text, null, or {{"{_BASE64}": "..."}}, not {value!r}')
            yield str(name), _of_base64(value[_BASE64], _BASE64)
        else:
            yield str(name), None if value is None else str(value).encode()


# Records as lines for people, and as JSON for programs.


class RecordPrinter:
    """A formatter of records as lines or as JSON data.

    Args:
        topic: The topic, which serdes receive.
        serdes: The serdes of keys and values.
        timestamps: Whether a line begins with the event time.
        headers: Whether headers come before the key.

    Attributes:
        unreadable: The number of keys and values that are shown as bytes because their serde could not read them.
        why: The error of the first one.
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
        """A record for programs, which `streams topic send --json` writes again with the same bytes.

        Only a serde with several notations may change them: JSON loses spaces between its parts. Data that has no
        form that could be read again, such as windowed keys, is still shown, but is refused when it is sent.
        """
        return {
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp == NO_TIME else record.timestamp,
            **self._part("key", self._serdes.key, record.key, record),
            **self._part("value", self._serdes.value, record.value, record),
            "headers": [[name, None if value is None else _header(value)] for name, value in record.headers],
        }

    def _part(self, name: str, serde: Serde | None, data: bytes | None, record: Incoming) -> dict[str, Any]:
        """A key or a value: its text, or its bytes in base64 if the text would be sent as other bytes."""
        found = None if data is None else self._json_of(serde, data, record)
        if data is not None and found is None:
            return {f"{name}_{_BASE64}": b64encode(data).decode()}
        return {name: found}

    def _json_of(self, serde: Serde | None, data: bytes, record: Incoming) -> Any:
        """The JSON data for the bytes of a key or value; None: no JSON would give the same bytes when sent."""
        if serde is None or isinstance(serde, BytesSerde):
            return _text_of(data)
        try:
            value = serde.deserialize(self._topic, data, record.headers)
            found = shown(value)
        except SerdeError as error:
            self._count_unreadable(error)
            return None
        return found if self._is_sent_again(serde, data, value, found) else None

    def _is_sent_again(self, serde: Serde, data: bytes, value: Any, found: Any) -> bool:
        """Whether sending the shown JSON would write the same value, or would be refused."""
        if type(serde) not in SERDES.values():
            # This does not write anything to find out, because a serde with a schema might register it.
            return found is not None and not _becomes_text(value)
        with suppress(SerdeError):
            sent = to_bytes(serde, self._topic, found)
            return sent == data or (sent is not None and bool(serde.deserialize(self._topic, sent) == value))
        return True

    def _text(self, serde: Serde | None, data: bytes | None, record: Incoming) -> str:
        if data is None:
            return "null"
        if serde is None or isinstance(serde, BytesSerde):
            # Tabs are harmless: they separate key and value, and may indent JSON.
            return visible(data.decode(errors="backslashreplace"), keep="\t")
        try:
            found = shown(serde.deserialize(self._topic, data, record.headers))
        except SerdeError as error:
            self._count_unreadable(error)
            return visible_bytes(data)
        return visible(found if isinstance(found, str) else dumps(found).decode())

    def _count_unreadable(self, error: SerdeError) -> None:
        self.unreadable += 1
        self.why = self.why or visible(str(error))


def _text_of(data: bytes) -> str | None:
    """Bytes as text; None: they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _header(value: bytes) -> str | dict[str, str]:
    text = _text_of(value)
    return {_BASE64: b64encode(value).decode()} if text is None else text


def _becomes_text(value: Any) -> bool:
    """Whether part of a value is shown as text that a serde might read as a string."""
    if isinstance(value, dict):
        return any(map(_becomes_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_becomes_text, value))
    return isinstance(value, bytes | AvroSymbol) or (isinstance(value, float) and not isfinite(value))


def _bytes(data: bytes | None) -> str:
    return "null" if data is None else visible_bytes(data)


app = application(
    "Topics of any cluster. Without --bootstrap-servers: the topics of the embedded broker in this folder.",
    {"create": create, "list": list_topics, "describe": describe, "send": send, "read": read, "delete": delete},
)
