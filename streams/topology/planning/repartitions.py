"""Repartition topics that the plan adds so that each record reaches the task of its key, if each task reads its own partition.

Micro-batches move records by Spark's shuffle. Live execution has no shuffle, so a record that must change its task crosses a topic,
as in Kafka Streams. That happens on two kinds of edges, and only if they lead to something with state:

* after a function that makes keys, where records leave the head (`behind_new_keys`);
* after a source whose topics have another number of partitions than the others of their sub-topology, or are written by another
  function from keys to partitions, or by an unknown one (`behind_sources`). `misplaced` decides which sources these are.

Names follow Kafka Streams. After new keys, a topic has the name of the grouping or the join, otherwise that of the operator after
the topic, which its state has, too. After a source, it has the names of the source's topics. So names depend neither on the order
of the program nor on stateless operators.

Whether an application has such topics is decided at its first start and written into its manifest. Added later, a topic would
divide a sub-topology whose state is known by its name, so only `streams rescale` adds it (`application/rescale/replan.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from streams.serdes.base import Serde, serde_identity
from streams.topology.graph import (
    Graph,
    InternalTopic,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Topic,
    through_topic,
)
from streams.topology.naming import Lineage, numbered
from streams.topology.planning.task_input import TaskInput
from streams.topology.specs.joins import GlobalTableJoinSpec

G = TypeVar("G", bound=Graph)

DEFAULT_PLACEMENT = "murmur2"
"""The function by which the engine itself, like Kafka's Java clients, puts keys into partitions."""


class Planned(Protocol):
    """The part of a planned sub-topology that this module needs."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...
    @property
    def entries(self) -> Sequence[TaskInput]: ...


def leading_to_state(nodes: Mapping[str, Node]) -> frozenset[str]:
    """The nodes of a sub-topology from which records reach something with state, themselves included.

    A user's processor counts even without a store, since it may remember keys in its context.
    """
    found: set[str] = set()
    for node in reversed(list(nodes.values())):
        if _has_state(node):
            found.add(node.name)
        if node.name in found:
            found.update(node.parents)
    return frozenset(found)


def _has_state(node: Node) -> bool:
    if not isinstance(node, ProcessorNode):
        return False
    return bool(node.stores) or not (node.stateless or isinstance(node.spec, GlobalTableJoinSpec))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A topic between a node and some of its children."""

    topic: InternalTopic
    parent: str
    receivers: frozenset[str]
    key_serde: Serde
    value_serde: Serde


# --- New keys


def crossings(sub: Planned) -> Iterator[tuple[str, str, str]]:
    """The edges on which records of a sub-topology may have to move to another task, because an operator made new keys.

    Receivers of dropped records are left out, because a dropped record keeps its original key.

    Returns:
        For each edge, the node that made the keys, the sender and the receiver.
    """
    with_state = leading_to_state(sub.nodes)
    for entry in sub.entries:
        node = sub.nodes[entry.node]
        drops = isinstance(node, ProcessorNode) and node.takes_dropped
        if entry.keyed_by and not entry.by_partition and not drops and entry.node in with_state:
            yield entry.keyed_by[-1], entry.from_node, entry.node


def behind_new_keys(topology: G, subs: Sequence[Planned]) -> G:
    """Adds a repartition topic wherever a function makes new keys above a node with state.

    Args:
        topology: The topology.
        subs: Its sub-topologies, planned without such topics.
    """
    edges: dict[tuple[str, str], list[tuple[str, str, Serde]]] = {}
    for sub in subs:
        serdes = {(entry.from_node, entry.node): entry.key_serde for entry in sub.entries}
        for made_by, sender, receiver in crossings(sub):
            serde = serdes[sender, receiver]
            edges.setdefault((sender, serde_identity(serde)), []).append((receiver, made_by, serde))
    cuts: list[_Cut] = []
    for (sender, _), found in sorted(edges.items(), key=lambda one: min(one[1], key=_name)[0]):
        receivers = sorted(receiver for receiver, _, _ in found)
        _, made_by, key_serde = found[0]
        name, value_serde = _options(topology, sender, key_serde)
        topic = _topic(topology, cuts, name or receivers[0], f"{made_by} makes keys before {', '.join(receivers)}")
        cuts.append(_Cut(topic, sender, frozenset(receivers), key_serde, value_serde))
    return _with_cuts(topology, cuts)


def _name(found: tuple[str, str, Serde]) -> str:
    return found[0]


def _options(topology: Graph, sender: str, key_serde: Serde) -> tuple[str | None, Serde]:
    """The options that the program gives for a topic after a node: its name, and the serde of values."""
    known = topology.repartition_options.get(sender, ())
    alike = [one for one in known if serde_identity(one.key_serde) == serde_identity(key_serde)] or known
    for one in sorted(alike, key=lambda one: (one.name is None, one.name or "")):
        return one.name, one.value_serde
    node = topology.nodes[sender]
    value_serde = None if isinstance(node, SinkNode) else node.value_serde
    return None, value_serde or topology.default_value_serde


def _topic(topology: Graph, cuts: Iterable[_Cut], name: str, why: str) -> InternalTopic:
    taken = {topic.name for topic in topology.internal_topics()} | {cut.topic.name for cut in cuts}
    return InternalTopic(numbered(name, taken), added=why)


# --- Sources


@dataclass(frozen=True, slots=True)
class Placed:
    """How the records of a topic are distributed.

    Attributes:
        partitions: The number of partitions.
        function: The name of the function that puts keys into them; None: unknown, or several.
    """

    partitions: int
    function: str | None = DEFAULT_PLACEMENT


@dataclass(frozen=True, slots=True)
class _Read:
    """A topic that a sub-topology reads.

    Attributes:
        placed: How its records are distributed; None: as the tasks that read it need them.
        keyed: Whether its records lead to something with state.
        own: Whether the application writes it, with the placement that its readers expect.
    """

    source: SourceNode
    topic: str
    placed: Placed | None
    keyed: bool
    own: bool


def misplaced(
    topology: Graph, groups: Iterable[Iterable[str]], topics: Mapping[str, Placed], tasks: int | None
) -> dict[str, str]:
    """The sources after which a repartition topic is needed, by the first names in their subscriptions, and why.

    Args:
        topology: The topology, with the topics after new keys.
        groups: The names of each sub-topology's nodes.
        topics: How the records of each of the program's topics are distributed.
        tasks: The number of tasks that each sub-topology will have; None: as many as partitions.
    """
    found: dict[str, str] = {}
    for names in groups:
        found |= _misplaced(list(_read(topology, names, topics)), tasks)
    return found


def _read(topology: Graph, names: Iterable[str], topics: Mapping[str, Placed]) -> Iterator[_Read]:
    nodes = {name: topology.nodes[name] for name in names}
    with_state = leading_to_state(nodes)
    for source in nodes.values():
        if isinstance(source, SourceNode) and not source.retries:
            for topic in source.topics:
                own = isinstance(topic, InternalTopic) and topic.name not in topology.ingests
                yield _Read(source, str(topic), _placed(topic, topics), source.name in with_state, own)


def _placed(topic: Topic, topics: Mapping[str, Placed]) -> Placed | None:
    if not isinstance(topic, InternalTopic):
        return topics[topic]
    return None if topic.partitions is None else Placed(topic.partitions)


def _misplaced(read: Sequence[_Read], tasks: int | None) -> dict[str, str]:
    counts = {one.topic: one.placed.partitions for one in read if one.keyed and one.placed}
    if not counts:
        return {}
    widest = max(counts, key=lambda topic: counts[topic])
    count = tasks or counts[widest]
    than = f"there are {count} tasks" if tasks else f"{widest} has {count}"
    functions = {one.placed.function for one in read if one.keyed and one.placed and not one.own}
    agreed = functions.pop() if len(functions) == 1 else DEFAULT_PLACEMENT
    found: dict[str, str] = {}
    for one in read:
        if one.placed is None:
            continue
        has = one.placed.partitions
        why = None
        # Any task may read a partition whose records lead to no state, but there must be a task for it.
        if has > count or (one.keyed and has != count):
            why = f"{one.topic} has {has} partitions, and {than}"
        elif one.keyed and not one.own:
            why = _otherwise(one.topic, one.placed.function, agreed)
        if why is not None:
            found[one.source.subscription[0]] = why
    return found


def _otherwise(topic: str, function: str | None, agreed: str | None) -> str | None:
    """Why a topic's keys are in other partitions than the keys of the other topics; None if they are not."""
    if function is None:
        return f"no known function puts the keys of {topic} into partitions"
    if function != agreed:
        return f"{function} puts the keys of {topic} into partitions, and {agreed} those of the others"
    return None


def behind_sources(topology: G, sources: Mapping[str, str]) -> G:
    """Adds a repartition topic after each of these sources.

    Args:
        topology: The topology.
        sources: The first name in each source's subscription, and why its records have to move (`misplaced`).
    """
    cuts: list[_Cut] = []
    with_state = leading_to_state(topology.nodes)
    for source in sorted(topology.sources(), key=lambda one: one.lasting_topics):
        why = sources.get(source.subscription[0]) if source.subscription else None
        if why is None:
            continue
        children = topology.children(source.name)
        receivers = frozenset(children) & with_state or frozenset(children)
        name = str(Lineage(source.lasting_topics))
        cuts.append(
            _Cut(_topic(topology, cuts, name, why), source.name, receivers, source.key_serde, source.value_serde)
        )
    return _with_cuts(topology, cuts)


# --- The rewrite


def _with_cuts(topology: G, cuts: Collection[_Cut]) -> G:
    """Adds the topics: each is written after its sender, and read where its first receiver was added."""
    behind = {(cut.parent, receiver): cut for cut in cuts for receiver in cut.receivers}
    nodes: dict[str, Node] = {}
    for name, node in topology.nodes.items():
        for parent in node.parents:
            if (cut := behind.get((parent, name))) is not None:
                sink, source = through_topic(cut.topic, parent, cut.key_serde, cut.value_serde)
                nodes.setdefault(sink.name, sink)
                nodes.setdefault(source.name, source)
        nodes[name] = _behind(node, behind)
    return replace(topology, nodes=nodes)


def _behind(node: Node, behind: Mapping[tuple[str, str], _Cut]) -> Node:
    """Replaces parents of a node by the sources of the topics that were added between them."""
    if isinstance(node, SourceNode):
        return node
    edges = ((parent, behind.get((parent, node.name))) for parent in node.parents)
    return replace(node, parents=tuple(parent if cut is None else f"{cut.topic}-source" for parent, cut in edges))


def added_topics(topology: Graph) -> dict[str, str]:
    """The repartition topics that were added, without the application's id, and why."""
    return {str(topic): topic.added for topic in topology.internal_topics() if topic.added}
