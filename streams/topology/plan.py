"""The plan: a topology cut into sub-topologies, one Spark query each.

A sub-topology is a connected component of the graph (a shared node, source or store connects), cut only at repartition
topics. Its *head* is what needs no state and no order: the stateless nodes whose ancestors are all head or source; they
run in the readers, per topic-partition. Each edge out of the head is an *entry*: what crosses it is routed to its task
by its key, so a re-key within the head costs no topic. A re-key of results that another attempt may not give again
(``enrich``) is not head: the task of a record must be the same in every attempt. What only goes to a sink behind a re-key is
routed by its source partition instead, as Kafka Streams does: no key then decides anything. All topic names in a plan are the
real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from state.changelog.topics import changelog_topic, commits_topic
from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.serdes.json import is_plain_json
from streams.topology.application_id import wrong_application_id
from streams.topology.check import check_topics, check_use_of_internal
from streams.topology.graph import (
    GlobalTable,
    InternalTopic,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreNode,
    Topology,
)
from streams.topology.hashing import topology_hash
from streams.topology.run_order import in_run_order
from streams.topology.sub_names import sub_topology_name
from streams.topology.sub_topologies import sub_topologies

Transport: TypeAlias = Literal["raw", "object", "columns"]


@dataclass(frozen=True, slots=True)
class TaskInput:
    """One edge out of the head, into a node that runs in the task.

    Attributes:
        index: its number within the sub-topology, as rows carry it.
        node: the node it leads to: a stateful processor, one behind such a processor, or a sink.
        from_node: the source or head node it comes from.
        transport: ``raw``: Kafka's bytes, untouched; ``object``: what head operators made, key by ``key_serde``, value
            pickled; ``columns``: key as in raw, of the value only ``fields``.
        source: the source whose serdes read the bytes, where the source is ``from_node``; else None.
        key_serde: writes and reads the key on the way; for raw and columns, the source's.
        fields: the dotted paths to decode, for ``columns``.
        rows_of: the entry whose rows it reads. Several nodes that want columns of one source share the rows of the first
            of them, which then carry the fields of all.
        keyed_by: names of the operators in the head that have made the key; none: it is still the source's.
        by_partition: rows go to the task of their source partition, whatever their key.
        repeatable: every operator on the way gives the same results in every attempt.
    """

    index: int
    node: str
    from_node: str
    transport: Transport
    source: str | None
    key_serde: Serde
    fields: tuple[str, ...] = ()
    rows_of: int = -1
    keyed_by: tuple[str, ...] = ()
    by_partition: bool = False
    repeatable: bool = True


@dataclass(frozen=True)
class SubTopology:
    """What one Spark query runs.

    Attributes:
        index: its number, as in ``describe()``; may move when the topology changes, so nothing lasting is named by it.
        name: lasting things are named by this; see ``sub_names``.
        nodes: all its nodes by name, in the order in which they run (``run_order``).
        sources, sinks, stores: its own ones.
        head: names of the processors that run in the readers (sources are not among them).
        entries: the edges out of the head, in the order of their nodes.
        global_tables: those that its nodes read, by the names of their stores.
        topology_hash: changes if and only if the state's meaning may have changed.
        reads_internal: it reads a topic that another sub-topology, or it itself, writes.
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

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that a node forwards to, in the order in which they run."""
        return tuple(node.name for node in self.nodes.values() if name in node.parents)

    def takers_of_dropped(self, name: str) -> tuple[str, ...]:
        """Those of a node's children that get what it drops, and nothing else of it."""
        below = (self.nodes[child] for child in self.children(name))
        return tuple(node.name for node in below if isinstance(node, ProcessorNode) and node.takes_dropped)

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Names of the operators in the head whose keys decide which task gets a record."""
        return tuple(dict.fromkeys(name for entry in self.entries if not entry.by_partition for name in entry.keyed_by))

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics it reads, in the order of its sources."""
        return tuple(dict.fromkeys(str(topic) for source in self.sources for topic in source.topics))


@dataclass(frozen=True)
class Plan:
    """All that is to run for an application.

    Attributes:
        application_id: prefix of all internal topics.
        topology: what was planned.
        sub_topologies: one query each, by index.
        repartition_topics: real name to number of partitions; None: as many as the tasks of its writer.
    """

    application_id: str
    topology: Topology
    sub_topologies: tuple[SubTopology, ...]
    repartition_topics: dict[str, int | None]

    @property
    def internal_topics(self) -> dict[str, str]:
        """The real names of all topics that the engine makes for it, and what each of them is."""
        app, stores = self.application_id, self.topology.stores.values()
        return {
            **dict.fromkeys(self.repartition_topics, "a repartition topic"),
            **{changelog_topic(app, s.name): f"the changelog of the store '{s.name}'" for s in stores if s.spec.logged},
            **{
                commits_topic(app, sub.name): f"the commits of the sub-topology '{sub.name}'"
                for sub in self.sub_topologies
            },
        }


def build_plan(topology: Topology, application_id: str, known: Sequence[str] = ()) -> Plan:
    """Checks a topology as a whole and cuts it.

    Args:
        topology: what the program built.
        application_id: prefix of all internal topics.
        known: names of sub-topologies that have run before, which they keep, the preferred ones first.

    Raises:
        TopologyError: no source, a topic used in two ways that exclude each other, or an application id that is not fit
            for a topic name.
    """
    if (wrong := wrong_application_id(application_id)) is not None:
        raise TopologyError(f"The application id '{application_id}' is not fit for topic names: {wrong}.")
    check_topics(topology)
    internal = {
        topic.topic_name(application_id): topic.partitions
        for source in topology.sources()
        for topic in source.topics
        if isinstance(topic, InternalTopic)
    }
    subs: list[SubTopology] = []
    for index, names in enumerate(sub_topologies(topology)):
        subs.append(_sub_topology(topology, application_id, index, in_run_order(topology, names), known))
    _check_names(subs)
    plan = Plan(application_id, topology, tuple(subs), internal)
    check_use_of_internal(topology, plan.internal_topics)
    return plan


def _check_names(subs: list[SubTopology]) -> None:
    names = [sub.name for sub in subs]
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(
                f"Two sub-topologies would be called '{name}', after a topic of each: subscribe once to that topic."
            )


def _sub_topology(
    topology: Topology, application_id: str, index: int, names: list[str], known: Sequence[str]
) -> SubTopology:
    nodes = {name: _real(topology.nodes[name], application_id) for name in names}
    stores = {store: topology.stores[store] for node in nodes.values() for store in node.stores}
    head = _head(nodes)
    sources = tuple(node for node in nodes.values() if isinstance(node, SourceNode))
    declared = [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]
    return SubTopology(
        index=index,
        name=sub_topology_name(declared, known),
        nodes=nodes,
        sources=sources,
        sinks=tuple(node for node in nodes.values() if isinstance(node, SinkNode)),
        stores=stores,
        head=head,
        entries=_entries(topology, nodes, head),
        topology_hash=topology_hash(nodes, stores),
        global_tables=_global_tables(topology, nodes),
        reads_internal=any(isinstance(topic, InternalTopic) for source in declared for topic in source.topics),
    )


def _global_tables(topology: Topology, nodes: dict[str, Node]) -> dict[str, GlobalTable]:
    """The global tables that any of the nodes reads."""
    read = (name for node in nodes.values() if isinstance(node, ProcessorNode) for name in node.global_stores)
    return {name: topology.global_tables[name] for name in read}


def _real(node: Node, application_id: str) -> Node:
    """The node with real topic names."""
    if isinstance(node, SourceNode):
        return replace(node, topics=tuple(_real_name(topic, application_id) for topic in node.topics))
    if isinstance(node, SinkNode) and node.topic is not None:
        return replace(node, topic=_real_name(node.topic, application_id))
    return node


def _real_name(topic: str | InternalTopic, application_id: str) -> str:
    return topic.topic_name(application_id) if isinstance(topic, InternalTopic) else topic


def _head(nodes: dict[str, Node]) -> frozenset[str]:
    head: set[str] = set()
    unrepeatable: set[str] = set()
    for node in nodes.values():
        if isinstance(node, ProcessorNode) and node.stateless:
            above = (nodes[parent] for parent in node.parents)
            changing = not unrepeatable.isdisjoint(node.parents)
            if changing and node.key_changing:
                continue
            if all(isinstance(parent, SourceNode) or parent.name in head for parent in above):
                head.add(node.name)
                if changing or not node.spec.repeatable:
                    unrepeatable.add(node.name)
    return frozenset(head)


def _entries(topology: Topology, nodes: dict[str, Node], head: frozenset[str]) -> tuple[TaskInput, ...]:
    entries: list[TaskInput] = []
    for node in nodes.values():
        if node.name in head:
            continue
        for parent in node.parents:
            above = nodes[parent]
            if isinstance(above, SourceNode):
                entry = _from_source(len(entries), nodes, node, above)
                shared = (one.index for one in entries if (one.transport, one.source) == ("columns", entry.source))
                rows_of = next(shared, entry.index) if entry.transport == "columns" else entry.index
                entries.append(replace(entry, rows_of=rows_of))
            elif parent in head:
                serde = _key_serde(topology, nodes, node, above)
                entries.append(_from_head(len(entries), nodes, node, parent, serde))
    return tuple(entries)


def _from_head(index: int, nodes: dict[str, Node], node: Node, parent: str, key_serde: Serde) -> TaskInput:
    way = _way(nodes, parent)
    keyed_by = tuple(one.name for one in way if one.key_changing)
    return TaskInput(
        index,
        node.name,
        parent,
        "object",
        None,
        key_serde,
        rows_of=index,
        keyed_by=keyed_by,
        by_partition=bool(keyed_by) and isinstance(node, SinkNode),
        repeatable=all(one.spec.repeatable for one in way),
    )


def _way(nodes: dict[str, Node], name: str) -> list[ProcessorNode]:
    """The operators from the sources down to a node of the head."""
    node = nodes[name]
    if not isinstance(node, ProcessorNode):
        return []
    return [*(one for parent in node.parents for one in _way(nodes, parent)), node]


def _from_source(index: int, nodes: dict[str, Node], node: Node, source: SourceNode) -> TaskInput:
    projection = node.spec.projection if isinstance(node, ProcessorNode) else None
    # Columns are processed ahead of the step's other records: a table that others look up must not run ahead of them, nor
    # must stream time where a user's processor sees it or is called by it.
    looked_up = any(other is not node and set(other.stores) & set(node.stores) for other in nodes.values())
    seen = any(isinstance(other, ProcessorNode) and other.spec.sees_stream_time for other in nodes.values())
    if projection is not None and is_plain_json(source.value_serde) and not looked_up and not seen:
        return TaskInput(index, node.name, source.name, "columns", source.name, source.key_serde, projection)
    return TaskInput(index, node.name, source.name, "raw", source.name, source.key_serde)


def _key_serde(topology: Topology, nodes: dict[str, Node], node: Node, above: Node) -> Serde:
    """The serde that keys what enters ``node`` from the head: what is asked for downstream, else known upstream."""
    known = above.key_serde if isinstance(above, ProcessorNode) else None
    return _asked_for(nodes, node) or known or topology.default_key_serde


def _asked_for(nodes: dict[str, Node], node: Node) -> Serde | None:
    if isinstance(node, SinkNode):
        return node.key_serde
    if isinstance(node, ProcessorNode):
        if node.input_key_serde is not None:
            return node.input_key_serde
        if node.stateless and not node.key_changing:
            below = (child for child in nodes.values() if node.name in child.parents)
            return next((serde for child in below if (serde := _asked_for(nodes, child)) is not None), None)
    return None
