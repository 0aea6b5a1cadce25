"""Serdes on the command line: by name, or those that a topology has for a topic.

Without a serde, bytes are text; bytes that are not valid UTF-8 are shown with backslashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streams.cli.target import load_topology
from streams.cli.topic.arguments import SerdeOptions
from streams.errors import ConfigError
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
