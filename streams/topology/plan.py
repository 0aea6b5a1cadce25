"""The plan: a topology divided into sub-topologies, one Spark query each.

A sub-topology is a connected component of the graph (connected by shared nodes, sources and stores), separated from others only by
repartition topics. The *head* of a sub-topology consists of the stateless nodes all of whose ancestors are in the head or sources.
They run in the readers, for each topic-partition. Records that cross an edge out of the head go to tasks by key, so a new key
within the head needs no topic. A new key computed from results that may differ between attempts (`enrich`) cannot be in the head,
since the task of a record must be the same in every attempt. Records that only go to a sink after a new key go by their source
partition instead, as in Kafka Streams, so the key has no influence. All topic names in a plan are the real ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TypeVar

from state.changelog import changelog_topic, commits_topic
from streams.errors import TopologyError
from streams.model.timestamps import OF_RECORDS
from streams.serdes.base import serde_identity
from streams.topology.graph import (
    GlobalTable,
    Graph,
    InternalTopic,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreNode,
    Topic,
)
from streams.topology.naming import is_generated, wrong_application_id
from streams.topology.planning.column_head import ColumnHead, column_head
from streams.topology.planning.counting import counted_beyond, counted_by
from streams.topology.planning.repartitions import Placed, behind_new_keys, behind_sources, leading_to_state, misplaced
from streams.topology.planning.sub_topologies import in_run_order, sub_topologies, sub_topology_name
from streams.topology.planning.task_input import TaskInput, inputs_without_shuffle, key_serde_of, task_inputs
from streams.topology.planning.units import Unit, units
from streams.topology.specs.aggregations import AggregationSpec

G = TypeVar("G", bound=Graph)


@dataclass(frozen=True)
class SubTopology:
    """The part of a topology that one Spark query runs.

    Attributes:
        index: The number, as in `describe()`; not used in persistent names, since it may change with the topology.
        name: The name for everything persistent (`planning.sub_topologies`).
        nodes: All nodes by name, in the order in which they run (`in_run_order`).
        head: Names of the processors that run in the readers (without sources).
        entries: The edges out of the head, in the order of their nodes.
        global_tables: The global tables that the nodes read, by the names of their stores.
        topology_hash: Changes if and only if the state's meaning may have changed.
        reads_internal: Whether a source reads a topic that this or another sub-topology writes, other than for retries.
        delays: Retry topic -> how long after a record was written it is read, ms.
        units: The nodes of the task in the order in which they process a step's records.
        columns: The nodes that work on columns, and the operators on columns before a task.
        counted_beyond: Sink -> the operators after its topic that would count a record twice (`planning.counting`).
    """

    index: int
    name: str
    nodes: dict[str, Node]
    sources: tuple[SourceNode, ...]
    sinks: tuple[SinkNode, ...]
    stores: dict[str, StoreNode]
    head: frozenset[str]
    entries: tuple[TaskInput, ...]
    topology_hash: str
    global_tables: dict[str, GlobalTable] = field(default_factory=dict)
    reads_internal: bool = False
    delays: dict[str, int] = field(default_factory=dict)
    units: tuple[Unit, ...] = ()
    columns: ColumnHead = field(default_factory=ColumnHead)
    counted_beyond: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def counted_by(self, topic: str, failed: str) -> tuple[str, ...]:
        """The operators that would count a record of a topic twice if it were read again after it has failed in a node."""
        return counted_by(self.nodes, self.counted_beyond, topic, failed)

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that a node forwards to, in the order in which they run."""
        return self._below[name][0]

    def takers_of_dropped(self, name: str) -> tuple[str, ...]:
        """Names of a node's children that receive only the records that the node drops."""
        return self._below[name][1]

    @cached_property
    def without_shuffle(self) -> SubTopology:
        """The sub-topology for a task that reads its own partitions: all operators run there, except those on columns.

        Between a head and a task in one process, each value would be pickled and unpickled, and each key written and read. Names,
        stores and the hash stay, so that steps of both kinds continue each other.
        """
        on_columns = frozenset(step.node for step in self.columns.steps)
        entries = inputs_without_shuffle(self.nodes, on_columns, self.columns, self.entries, self.leads_to_state)
        return replace(self, head=on_columns, entries=entries, units=units(self.nodes, on_columns, entries))

    @cached_property
    def _below(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        found = {}
        for name in self.nodes:
            below = [node for node in self.nodes.values() if name in node.parents]
            dropped = (one.name for one in below if isinstance(one, ProcessorNode) and one.takes_dropped)
            found[name] = tuple(node.name for node in below), tuple(dropped)
        return found

    @cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        return {edge: rank for unit in self.units for edge, rank in unit.ranks.items()}

    @cached_property
    def timed_as(self) -> dict[str, str]:
        """Node -> the node for which its CPU time is counted."""
        return {name: names[0] for unit in self.units for names in unit.timed for name in names}

    @cached_property
    def entered(self) -> tuple[str, ...]:
        """The nodes at which rows enter the task, in the order of the entries."""
        return tuple(dict.fromkeys(entry.node for entry in self.entries))

    @cached_property
    def watched(self) -> tuple[tuple[str, ...], ...]:
        """For each unit, the stores of tables that one of its nodes updates and another looks up as of each record."""
        found = []
        for unit in self.units:
            nodes = [node for name in unit.nodes if isinstance(node := self.nodes[name], ProcessorNode)]
            looked_up = {store for node in nodes for store in node.spec.looks_up}
            updated = (store for node in nodes if node.spec.shows_updates for store in node.stores)
            found.append(tuple(store for store in updated if store in looked_up))
        return tuple(found)

    @cached_property
    def sees_stream_time(self) -> bool:
        """Whether a node of the task asks for stream time at each record."""
        nodes = (node for name, node in self.nodes.items() if name not in self.head)
        return any(isinstance(one, ProcessorNode) and (one.spec.sees_stream_time or one.wrapper) for one in nodes)

    @property
    def processors(self) -> tuple[ProcessorNode, ...]:
        """The nodes that have an operator."""
        return tuple(node for node in self.nodes.values() if isinstance(node, ProcessorNode))

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Names of the operators in the head whose keys decide the task of a record."""
        return tuple(dict.fromkeys(name for entry in self.entries if not entry.by_partition for name in entry.keyed_by))

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that are read, in the order of the sources."""
        return tuple(dict.fromkeys(str(topic) for source in self.sources for topic in source.topics))

    @cached_property
    def leads_to_state(self) -> frozenset[str]:
        """The nodes whose records must be in the task of their key, because something with state follows."""
        return leading_to_state(self.nodes)

    @cached_property
    def placed_entries(self) -> frozenset[int]:
        """The entries whose rows must be in the task of their key. Other rows may be processed anywhere."""
        return frozenset(
            entry.index for entry in self.entries if entry.node in self.leads_to_state and not entry.by_partition
        )

    @property
    def placed_topics(self) -> frozenset[str]:
        """The topics that need as many partitions as there are tasks if each task reads its own partition."""
        return frozenset(
            str(topic) for source in self.sources if source.name in self.leads_to_state for topic in source.topics
        )


@dataclass(frozen=True)
class Plan:
    """Everything that an application runs.

    Attributes:
        application_id: The prefix of all internal topics.
        topology: The planned topology.
        sub_topologies: The sub-topologies by index, one query each.
        repartition_topics: Real name -> number of partitions; None: as many as the writer has tasks.
    """

    application_id: str
    topology: Graph
    sub_topologies: tuple[SubTopology, ...]
    repartition_topics: dict[str, int | None]

    @property
    def internal_topics(self) -> dict[str, str]:
        """The real names of all topics that the engine makes for the application, each with a description."""
        return internal_topics(self.topology, self.application_id, [sub.name for sub in self.sub_topologies])


def internal_topics(topology: Graph, application_id: str, sub_topology_names: Iterable[str]) -> dict[str, str]:
    """The real names of all topics that the engine makes for a program, each with a description."""
    stores = [store.name for store in topology.stores.values() if store.spec.logged]
    retries = _delays(topology.sources(), application_id)
    given = [table.given for table in topology.global_tables.values() if table.given is not None]
    return {
        **{rows.topic.topic_name(application_id): f"the rows of the table '{rows.name}'" for rows in given},
        **dict.fromkeys(repartition_topics(topology, application_id), "a repartition topic"),
        **dict.fromkeys(retries, "a retry topic"),
        **{changelog_topic(application_id, name): f"the changelog of the store '{name}'" for name in stores},
        **{
            commits_topic(application_id, name): f"the commits of the sub-topology '{name}'"
            for name in sub_topology_names
        },
        **{
            commits_topic(application_id, ingest.lasting_name): f"the commits of the source '{ingest.name}'"
            for ingest in topology.ingests.values()
        },
    }


def repartition_topics(topology: Graph, application_id: str) -> dict[str, int | None]:
    """The real names of the repartition topics, including the topics of lake sinks, and their numbers of partitions.

    None: as many as the tasks of the writer.
    """
    return {topic.topic_name(application_id): topic.partitions for topic in topology.internal_topics()}


def plan_alone(topology: Graph) -> Plan:
    """Plans a program that is not run. It has no application id, so the plan's real names must not be shown.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    return build_plan(topology, "application")


def with_added_topics(topology: G, sources: Mapping[str, str]) -> G:
    """Adds repartition topics, so that tasks can read their own partitions (`planning.repartitions`).

    Args:
        topology: The topology as the program makes it.
        sources: The sources after which a repartition topic is needed, by the first name in their subscriptions, and why.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    if topology.repartitioned is not None:
        return topology
    behind_keys = behind_new_keys(topology, plan_alone(topology).sub_topologies)
    return _behind_sources(behind_keys, sources)


def _behind_sources(behind_keys: G, sources: Mapping[str, str]) -> G:
    return replace(behind_sources(behind_keys, sources), repartitioned=dict(sources))


def with_needed_topics(
    topology: G,
    topics: Mapping[str, Placed],
    tasks: int | None,
    before: Mapping[str, str] = MappingProxyType({}),
    known: Collection[str] = (),
) -> G:
    """Adds repartition topics wherever records change their tasks.

    Args:
        topology: The topology as the program makes it.
        topics: How the records of each topic that it reads are distributed.
        tasks: The number of tasks that each sub-topology will have; None: as many as partitions.
        before: Earlier decisions: the sources followed by a topic, as in `with_added_topics`.
        known: The names in subscriptions that were decided earlier. The others are decided now.
    """
    behind_keys = behind_new_keys(topology, plan_alone(topology).sub_topologies)
    now = misplaced(behind_keys, sub_topologies(behind_keys), topics, tasks)
    return _behind_sources(behind_keys, {**{text: why for text, why in now.items() if text not in known}, **before})


def build_plan(topology: Graph, application_id: str, known: Sequence[str] = ()) -> Plan:
    """Checks a topology as a whole and divides it into sub-topologies."""
    if (wrong := wrong_application_id(application_id)) is not None:
        raise TopologyError(f"The application id '{application_id}' is not fit for topic names: {wrong}.")
    check_topics(topology)
    topology = with_real_tables(topology, application_id)
    subs: list[SubTopology] = []
    for index, names in enumerate(sub_topologies(topology)):
        subs.append(_sub_topology(topology, application_id, index, in_run_order(topology, names), known))
    _check_names(subs, [ingest.lasting_name for ingest in topology.ingests.values()])
    beyond = counted_beyond([sub.nodes for sub in subs])
    subs = [
        replace(sub, counted_beyond={name: beyond[name] for name in sub.nodes.keys() & beyond.keys()}) for sub in subs
    ]
    plan = Plan(application_id, topology, tuple(subs), repartition_topics(topology, application_id))
    check_use_of_internal(topology, plan.internal_topics)
    return plan


def _check_names(subs: list[SubTopology], ingests: list[str]) -> None:
    names = [*(sub.name for sub in subs), *ingests]
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(
                f"Two sub-topologies would be called '{name}', after a topic of each: subscribe once to that topic."
            )


def _sub_topology(
    topology: Graph, application_id: str, index: int, names: list[str], known: Sequence[str]
) -> SubTopology:
    nodes = {name: _real(topology.nodes[name], application_id) for name in names}
    stores = {store: topology.stores[store] for node in nodes.values() for store in node.stores}
    head = _head(nodes)
    sources = tuple(node for node in nodes.values() if isinstance(node, SourceNode))
    declared = [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]
    key_serde = partial(key_serde_of, topology, nodes)
    columns = column_head(nodes, head, key_serde)
    entries = task_inputs(nodes, head, columns, key_serde)
    found = units(nodes, head, entries)
    if in_turn := _closing_in_turn(nodes, columns, found):
        nodes |= in_turn
        columns = column_head(nodes, head, key_serde)
        entries = task_inputs(nodes, head, columns, key_serde)
    return SubTopology(
        index=index,
        name=sub_topology_name(declared, known),
        nodes=nodes,
        sources=sources,
        sinks=tuple(node for node in nodes.values() if isinstance(node, SinkNode)),
        stores=stores,
        head=head,
        entries=entries,
        columns=columns,
        topology_hash=topology_hash(nodes, stores),
        global_tables=_global_tables(topology, nodes),
        reads_internal=any(
            isinstance(topic, InternalTopic) and topic.delay_ms is None
            for source in declared
            for topic in source.topics
        ),
        delays=_delays(declared, application_id),
        units=found,
    )


def _closing_in_turn(nodes: Mapping[str, Node], columns: ColumnHead, found: Sequence[Unit]) -> dict[str, Node]:
    """Aggregations on columns whose windows close in a unit that goes depth first, changed to take records one by one.

    There, each result has its place among the results of the records. Columns would give all results of a step at once.
    """
    in_turn = (nodes[name] for unit in found if not unit.groups for name in unit.nodes if name in columns.aggregates)
    return {
        node.name: replace(node, spec=node.spec.by_record())
        for node in in_turn
        if isinstance(node, ProcessorNode) and isinstance(node.spec, AggregationSpec) and node.spec.on_close
    }


def _delays(sources: Iterable[SourceNode], application_id: str) -> dict[str, int]:
    """The real names of the retry topics that these sources read, and their delays in ms."""
    return {
        topic.topic_name(application_id): topic.delay_ms
        for source in sources
        for topic in source.topics
        if isinstance(topic, InternalTopic) and topic.delay_ms is not None
    }


def _global_tables(topology: Graph, nodes: dict[str, Node]) -> dict[str, GlobalTable]:
    read = (name for node in nodes.values() if isinstance(node, ProcessorNode) for name in node.global_stores)
    # Rows that the program gives belong to the driver; tasks read them from the topic.
    return {name: replace(topology.global_tables[name], given=None) for name in read}


def with_real_tables(topology: G, application_id: str) -> G:
    """Returns the topology with real names of the topics that global tables read."""
    tables = topology.global_tables.items()
    real = {name: replace(one, source=_real_source(one.source, application_id)) for name, one in tables}
    return replace(topology, global_tables=real)


def _real(node: Node, application_id: str) -> Node:
    if isinstance(node, SourceNode):
        return _real_source(node, application_id)
    if isinstance(node, SinkNode) and node.topic is not None:
        return replace(node, topic=_real_name(node.topic, application_id))
    return node


def _real_source(source: SourceNode, application_id: str) -> SourceNode:
    return replace(source, topics=tuple(_real_name(topic, application_id) for topic in source.topics))


def _real_name(topic: str | InternalTopic, application_id: str) -> str:
    return topic.topic_name(application_id) if isinstance(topic, InternalTopic) else topic


def _head(nodes: dict[str, Node]) -> frozenset[str]:
    head: set[str] = set()
    unrepeatable: set[str] = set()
    untimed = {
        node.name
        for node in nodes.values()
        if isinstance(node, SourceNode) and type(node.timestamp_extractor) not in OF_RECORDS
    }
    for node in nodes.values():
        if isinstance(node, ProcessorNode) and node.stateless:
            above = (nodes[parent] for parent in node.parents)
            changing = not unrepeatable.isdisjoint(node.parents)
            if changing and node.key_changing:
                continue
            no_times = not untimed.isdisjoint(node.parents)
            if no_times and node.spec.reads_timestamp:
                continue
            if all(isinstance(parent, SourceNode) or parent.name in head for parent in above):
                head.add(node.name)
                if no_times:
                    untimed.add(node.name)
                if changing or not node.spec.repeatable:
                    unrepeatable.add(node.name)
    return frozenset(head)


# --- The identity of state


def topology_hash(nodes: dict[str, Node], stores: dict[str, StoreNode]) -> str:
    """The hash of a sub-topology's stateful structure, 16 hex digits, which each commit marker has.

    The hash covers everything that determines the meaning of state: source topics, stateful operators with their windows and
    built-in aggregates, their connections, and stores with their serdes. It leaves out what may change without affecting state:
    functions (their text identifies nothing), stateless operators, sinks, retry topics, and settings that do not change bytes.
    """
    skeleton = {
        "sources": sorted(
            [source.name, list(source.subscription)]
            for source in nodes.values()
            if isinstance(source, SourceNode) and not source.retries
        ),
        "operators": sorted(
            [
                node.name,
                node.kind.value,
                sorted(node.stores),
                [list(pair) for pair in node.parameters],
                nearest_lasting(nodes, node),
            ]
            for node in nodes.values()
            if isinstance(node, ProcessorNode) and not node.stateless
        ),
        "stores": sorted(
            [
                store.name,
                store.spec.kind.name,
                store.spec.retain_duplicates,
                serde_identity(store.key_serde),
                serde_identity(store.value_serde),
            ]
            for store in stores.values()
        ),
    }
    text = json.dumps(skeleton, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def nearest_lasting(nodes: dict[str, Node], node: Node) -> list[str]:
    """The nearest sources and stateful operators above a node."""
    # Each node is visited once, because the number of paths doubles wherever a stream is divided and merged.
    found, seen, waiting = set[str](), set[str](), list(node.parents)
    while waiting:
        name = waiting.pop()
        above = nodes[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(above, ProcessorNode) and above.stateless:
            waiting += above.parents
        elif not (isinstance(above, SourceNode) and above.retries):
            found.add(name)
    return sorted(found)


# --- Checks
#
# Kafka Streams finds some of these errors only at run time, or never.


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
            # A pattern does not match internal topics of the application.
            is_found = isinstance(topic, str) and source.pattern is not None and source.pattern.fullmatch(topic)
            if is_found and other is not source:
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
    tables = topology.global_tables.values()
    used = [
        *((f"The source '{s.name}' reads", topic) for s in topology.sources() for topic in s.topics),
        *((f"The global table '{t.name}' reads", t.source.topics[0]) for t in tables if t.given is None),
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
