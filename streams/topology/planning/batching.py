"""Which nodes of a task process a step's records together, and in which passes over the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from streams.topology.graph import Node, ProcessorNode, SinkNode
from streams.topology.planning.task_input import TaskInput

# --- `Passes`: in which passes of a step each node gets records.
#
# A step passes over its nodes several times: first with the records, then, at the end of the step, with what one operator after the
# other has held back, parents first. Two passes never alternate, whether records are processed together or one by one.

RECORDS = ""
"""The pass of the step's records; that of the results at the end of the step has the name of their node."""


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of the nodes of a task.

    Attributes:
        received: The passes in which each node gets records.
        forwarded: The passes in which each node forwards results.
        entries: The nodes whose records, or results of these, reach each node in the pass of the records.
    """

    received: Mapping[str, frozenset[str]]
    forwarded: Mapping[str, frozenset[str]]
    entries: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, inside: Mapping[str, Node], entered: Collection[str]) -> Passes:
        """Finds them."""
        received, forwarded = dict[str, frozenset[str]](), dict[str, frozenset[str]]()
        entries = dict[str, frozenset[str]]()
        passes = cls(received, forwarded, entries)
        for name, node in inside.items():
            parents = [parent for parent in node.parents if isinstance(inside.get(parent), ProcessorNode)]
            above = (passes.sent(parent, node) for parent in parents)
            received[name] = frozenset((RECORDS,) if name in entered else ()).union(*above)
            come = (entries[parent] for parent in parents if RECORDS in passes.sent(parent, node))
            entries[name] = frozenset((name,) if name in entered else ()).union(*come)
            at_end = isinstance(node, ProcessorNode) and node.spec.forwards_at_end(node.stores)
            forwarded[name] = frozenset((name,)) if at_end else received[name] | {name}
        return passes

    def sent(self, parent: str, node: Node) -> frozenset[str]:
        """The passes in which a parent sends records to a node: results, or the records that it drops."""
        dropped = isinstance(node, ProcessorNode) and node.takes_dropped
        return self.received[parent] | {parent} if dropped else self.forwarded[parent]

    def apart(self, store: str, one: ProcessorNode, other: ProcessorNode) -> bool:
        """Whether none of two nodes sees in one pass what the other one does to a store that both use."""
        looking, changing = (one, other) if store in one.spec.looks_up else (other, one)
        if store in changing.spec.looks_up:
            return True  # nobody writes
        if store not in looking.spec.looks_up:
            return self.works_in(one).isdisjoint(self.works_in(other))
        # A look-up sees rows as they were forwarded last, which a cache changes at the end only.
        at_end = changing.spec.forwards_at_end(changing.stores)
        return self.received[looking.name].isdisjoint((changing.name,) if at_end else self.works_in(changing))

    def works_in(self, node: ProcessorNode) -> frozenset[str]:
        """The passes in which a node may use its stores."""
        return self.received[node.name] | {node.name}


# --- Which nodes of a sub-topology process a step's records together (`streams.operators.columnar`), and why others do not.
#
# Records that are processed together pass one node after the other, while records that are processed one by one pass all nodes
# before the next record follows. Results and their order are the same under these conditions, which are checked here: within one
# pass over the nodes (`passes`), no node sees what another one does to shared stores, except within a group that processes its
# records jointly, and a node gets records from one node or group only; each topic is written by one sink; and no user's code looks
# at stream time.

Groups: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Batching:
    """How the task of a sub-topology processes the records of raw and object inputs.

    Attributes:
        groups: Nodes at which records enter, in groups that share stores; empty if records are processed one by one.
        meetings: Nodes that get records in one pass from several nodes, which are put into the order of the step first.
        reason: Why records are processed one by one; None if they are not.
    """

    groups: Groups = ()
    reason: str | None = None
    meetings: tuple[str, ...] = ()


def batching(nodes: Mapping[str, Node], head: Collection[str], entries: Sequence[TaskInput]) -> Batching:
    """Decides how a task processes records."""
    inside = {name: node for name, node in nodes.items() if name not in head}
    processors = [node for node in inside.values() if isinstance(node, ProcessorNode)]
    entered = list(dict.fromkeys(entry.node for entry in entries if entry.transport != "columns"))
    if not entered:
        return Batching()
    passes = Passes.of(inside, {entry.node for entry in entries})
    groups = _groups(entered, inside, passes)
    reason = next(filter(None, (_unfit(group, inside) for group in groups)), None)
    reason = reason or next((_unfit_anywhere(node) for node in processors if _unfit_anywhere(node)), None)
    reason = reason or _shared_stores(groups, processors, passes) or _several_parents(groups, inside, passes)
    reason = reason or _topics(inside)
    if reason:
        return Batching(reason=reason)
    return Batching(
        groups, meetings=tuple(name for name, node in inside.items() if _meet(groups, inside, node, passes))
    )


def _groups(entered: Iterable[str], inside: Mapping[str, Node], passes: Passes) -> Groups:
    """The nodes at which records enter; those with common stores are together, and tables that joins look up for each other."""
    looked_up: dict[str, set[str]] = {}
    for node in inside.values():
        if isinstance(node, ProcessorNode) and not isinstance(node.spec.batches, str):
            for entry in passes.entries[node.name]:
                looked_up.setdefault(entry, set()).update(_changing(node, inside, passes))
    groups: list[tuple[list[str], set[str]]] = []
    for name in entered:
        stores = {*inside[name].stores, *looked_up.get(name, ())}
        linked = [group for group in groups if group[1] & stores]
        for _, others in linked:
            stores |= others
        merged = [*(one for names, _ in linked for one in names), name]
        groups = [group for group in groups if group not in linked]
        groups.append((merged, stores))
    order = {name: at for at, name in enumerate(inside)}
    return tuple(tuple(sorted(names, key=order.__getitem__)) for names, _ in groups)


def _changing(node: ProcessorNode, inside: Mapping[str, Node], passes: Passes) -> set[str]:
    """The stores that a node looks up while records change them, and can see as of each record's place in the step."""
    tables = [one for one in inside.values() if isinstance(one, ProcessorNode) and one.spec.shows_updates]
    return {
        store
        for store in node.spec.looks_up
        for table in tables
        if store in table.spec.uses(table.stores) and not passes.apart(store, node, table)
    }


def _unfit(group: tuple[str, ...], inside: Mapping[str, Node]) -> str | None:
    """Why the nodes of a group cannot process their records together; sinks always can."""
    ways = []
    for name in group:
        node = inside[name]
        if isinstance(node, ProcessorNode):
            way = node.spec.batches
            if isinstance(way, str):
                return f"'{name}': {way}"
            ways.append(way)
    if len(set(ways)) > 1:
        return f"{' and '.join(map(repr, group))} share a store, but process records in different ways"
    return None


def _unfit_anywhere(node: ProcessorNode) -> str | None:
    if node.wrapper is not None:
        return f"'{node.name}' is wrapped, and wrappers see records one by one"
    if node.spec.sees_stream_time:
        return f"'{node.name}' may look at stream time, or be scheduled by it, which moves with each record"
    return None


def _shared_stores(groups: Groups, processors: Iterable[ProcessorNode], passes: Passes) -> str | None:
    """Stores that a node may change in a pass in which nodes outside of its group use them."""
    group_of = {name: group for group in groups for name in group}
    users: dict[str, list[ProcessorNode]] = {}
    for node in processors:
        for store in {*node.spec.uses(node.stores), *node.spec.looks_up}:
            for other in users.setdefault(store, []):
                together = group_of.get(node.name, (node.name,)) == group_of.get(other.name)
                if not (together or passes.apart(store, node, other) or _sees(groups, store, node, other, passes)):
                    return f"'{node.name}' shares the store '{store}' with '{other.name}'"
            users[store].append(node)
    return None


def _sees(groups: Groups, store: str, one: ProcessorNode, other: ProcessorNode, passes: Passes) -> bool:
    """Whether one of two nodes looks up the other one's table as of each record's place in the step."""
    looking, table = (one, other) if store in one.spec.looks_up else (other, one)
    if store not in looking.spec.looks_up or not table.spec.shows_updates or isinstance(looking.spec.batches, str):
        return False
    only_records = passes.received[looking.name] & passes.works_in(table) == {RECORDS}
    return only_records and _in_one_group(groups, {table.name, *passes.entries[looking.name]})


def _in_one_group(groups: Groups, names: Collection[str]) -> bool:
    return any(set(names) <= set(group) for group in groups)


def _meet(groups: Groups, inside: Mapping[str, Node], node: Node, passes: Passes) -> bool:
    """Whether a node gets records from several nodes in the pass of the records, all of them from one group."""
    if not isinstance(node, ProcessorNode) or not node.spec.meets:
        return False
    sent = [passes.sent(parent, node) for parent in node.parents if isinstance(inside.get(parent), ProcessorNode)]
    counts = Counter(one for passes_of_parent in sent for one in passes_of_parent)
    several = {one for one, count in counts.items() if count > 1}
    return several == {RECORDS} and _in_one_group(groups, passes.entries[node.name])


def _several_parents(groups: Groups, inside: Mapping[str, Node], passes: Passes) -> str | None:
    """Nodes that get records in one pass from several nodes of the task, which would no longer alternate."""
    group_of = {name: group for group in groups for name in group}
    for name, node in inside.items():
        parents = [parent for parent in node.parents if isinstance(inside.get(parent), ProcessorNode)]
        above = {group_of.get(parent, (parent,)): parent for parent in parents}
        counts = Counter(one for parent in above.values() for one in passes.sent(parent, node))
        several = max(counts.values(), default=0) > 1 and not _meet(groups, inside, node, passes)
        if several or (above and name in group_of):
            return f"'{name}' gets records from several nodes"
    return None


def _topics(inside: Mapping[str, Node]) -> str | None:
    """Topics that several sinks write, whose records would no longer alternate."""
    sinks = [node for node in inside.values() if isinstance(node, SinkNode)]
    if len(sinks) < 2:
        return None
    for sink in sinks:
        if sink.topic is None:
            return f"'{sink.name}' chooses the topic of each record"
    topic, count = Counter(str(sink.topic) for sink in sinks).most_common(1)[0]
    return f"{count} sinks write to the topic '{topic}'" if count > 1 else None
