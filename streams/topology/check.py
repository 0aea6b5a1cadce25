"""Checks of the whole topology, mainly of which nodes read and write which topics.

Kafka Streams finds some of these errors only at run time, or never; here they are a `TopologyError` that says how to fix them.
"""

from __future__ import annotations

from collections.abc import Mapping

from streams.errors import TopologyError
from streams.topology.graph import Graph, InternalTopic, SinkNode, SourceNode, Topic
from streams.topology.naming import is_generated


def check_sources(topology: Graph) -> None:
    """Raises `TopologyError` if no topic is read, or two sources read the same topic."""
    reader: dict[Topic, SourceNode] = {}
    for source in topology.sources():
        for topic in source.topics:
            other = reader.setdefault(topic, source)
            if other is not source:
                raise TopologyError(
                    f"The topic '{topic}' is read by '{other.name}' and by '{source.name}': subscribe once and use the "
                    f"stream twice, or use the same list of topics and the same Consumed for both."
                )
    for table in topology.global_tables.values():
        if (read_by := reader.get(table.source.topics[0])) is not None:
            raise TopologyError(
                f"The topic '{table.source.topics[0]}' is read as the global table '{table.name}' and by '{read_by.name}': "
                f"a topic is either read by tasks or is a global table."
            )
    if not any(topology.sources()):
        raise TopologyError("The topology reads no topic: begin with builder.stream(topic) or builder.table(topic).")
    _check_patterns(
        topology, {**reader, **{table.source.topics[0]: table.source for table in topology.global_tables.values()}}
    )


def _check_patterns(topology: Graph, reader: Mapping[Topic, SourceNode]) -> None:
    for source in topology.sources():
        for topic, other in reader.items():
            if source.pattern is not None and other is not source and source.pattern.fullmatch(str(topic)):
                raise TopologyError(
                    f"The topic '{topic}', read by '{other.name}', matches {source.subscription[0]} of '{source.name}' too: a "
                    f"topic is read by one source. Make the pattern narrower, or leave the topic to it."
                )


def check_topics(topology: Graph) -> None:
    """Raises `TopologyError` if topics are used in contradictory ways."""
    check_sources(topology)
    _check_repartitions(set(topology.internal_topics()), list(topology.sinks()))


def check_use_of_internal(topology: Graph, internal: Mapping[str, str]) -> None:
    """Raises `TopologyError` if the program itself reads or writes one of its internal topics."""
    used = [
        *((f"The source '{s.name}' reads", topic) for s in topology.sources() for topic in s.topics),
        *((f"The global table '{t.name}' reads", t.source.topics[0]) for t in topology.global_tables.values()),
        *((f"The sink '{sink.name}' writes to", sink.topic) for sink in topology.sinks()),
    ]
    for who, topic in used:
        if isinstance(topic, str) and topic in internal:
            raise TopologyError(
                f"{who} the topic '{topic}', {internal[topic]} of this application. Only the engine may use it: name the topic, "
                f"or what it is made for, differently."
            )


def check_explicit_names(topology: Graph) -> None:
    """Raises `TopologyError` if the name of anything in Kafka or on disk was generated (KIP-1111).

    Stores, their changelogs and repartition topics are identified by name alone: with explicit names, no change of the program
    can rename them unnoticed. A generated name is recognised by its form, so an explicit name must not look like one.
    """
    stores = [name for name in topology.stores if is_generated(name)]
    stores += [name for name in topology.global_tables if is_generated(name)]
    topics = sorted(
        topic.name
        for source in topology.sources()
        for topic in source.topics
        if isinstance(topic, InternalTopic) and is_generated(topic.name)
    )
    found = []
    if stores:
        how = "Materialized(name=...), StreamJoined(name=...), Joined(name=...) or named=..."
        found.append(f"stores: {', '.join(map(repr, sorted(stores)))} (name them with {how})")
    if topics:
        how = (
            "Grouped(name=...), Repartitioned(name=...), Joined(name=...), StreamJoined(name=...) or enrich(named=...)"
        )
        found.append(f"repartition topics: {', '.join(map(repr, topics))} (name them with {how})")
    if found:
        raise TopologyError(
            f"ensure_explicit_naming is on, but names were generated. {'; '.join(found)}. Or turn the setting off."
        )


def _check_repartitions(read: set[InternalTopic], sinks: list[SinkNode]) -> None:
    written: dict[str, str] = {}
    for sink in sinks:
        if isinstance(sink.topic, InternalTopic):
            other = written.setdefault(sink.topic.name, sink.name)
            if sink.topic not in read or other != sink.name:
                raise TopologyError(
                    f"The repartition topic '{sink.topic}' of '{sink.name}' is not read, or written twice ('{other}'): "
                    f"name one of them with Repartitioned(name=...) or Grouped(name=...)."
                )
