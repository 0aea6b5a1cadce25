"""`units`: decides which nodes of a task run together, and in which order, so that batches give the results of single records.

Kafka Streams passes each record through all nodes, depth first, before it takes the next one. A task here passes all records of a
step through one unit of nodes after the other. Every node then gets the same records in the same order and sees the same rows of
its stores, if these cases are kept apart:

* Nodes that use a store in the same pass, where one of them changes it. If one operator can process the batches of all of them in
  the order of the step (the two sides of a join), they are a group. If the others only look rows up, and the table can show its
  rows as of each record, they follow the table in the same unit. Otherwise each record passes the unit depth first.
* A node that gets several results of one record from different nodes. Batches keep the results of different records in order;
  those of one record come in the order of the edges that they take (`_Arrivals`). That order differs between records if a node
  where the paths part may have several results of one record. Example: it makes x and y of a record, and A and B pass both on to C.
  Depth first, C gets x from A, x from B, y from A, y from B. As batches, x and y from A would come first. Then records go depth
  first from that node to the node where the paths meet.
* Sinks of one topic, which meet in the topic.

A node that makes results record by record makes objects of all of them. It and the stateless nodes below it are one unit, whose
records pass these nodes part by part.

A unit includes all nodes on the paths between its nodes, so units have an order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import TypeAlias

from streams.topology.graph import Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.planning.task_input import TaskInput
from streams.topology.specs.base import CachingTableSpec

# --- `Passes`: in which passes of a step each node gets records.
#
# A step passes over its nodes several times: first with the records, then, at the end of the step, with the results that one
# operator after the other has held back, parents first. Two passes never alternate, whether records are processed as batches or
# depth first.

RECORDS = ""
"""The name of the pass of the step's records. A pass of results at the end of the step has the name of their node."""


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of the nodes of a task.

    Attributes:
        received: The passes in which each node gets records.
        forwarded: The passes in which each node forwards results.
        entries: For each node, the nodes from which records reach it in the pass of the step's records, directly or as results.
    """

    received: Mapping[str, frozenset[str]]
    forwarded: Mapping[str, frozenset[str]]
    entries: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, inside: Mapping[str, Node], entered: Collection[str]) -> Passes:
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
        """Whether neither of two nodes sees, within one pass, what the other one changes in a store that both use."""
        looking, changing = (one, other) if store in one.spec.looks_up else (other, one)
        if store in changing.spec.looks_up:
            return True  # both only read
        if store not in looking.spec.looks_up:
            return self.works_in(one).isdisjoint(self.works_in(other))
        # A cache changes rows as last forwarded only at the end.
        at_end = looking.spec.sees_forwarded and changing.spec.forwards_at_end(changing.stores)
        return self.works_in(looking).isdisjoint((changing.name,) if at_end else self.works_in(changing))

    def works_in(self, node: ProcessorNode) -> frozenset[str]:
        """The passes in which a node may use its stores."""
        return self.received[node.name] | {node.name}


# --- The units.

Edges: TypeAlias = Mapping[str, Collection[str]]
"""Name -> the names that come before it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that process all records of a pass before the next unit does.

    Attributes:
        nodes: The nodes in run order.
        groups: The same nodes in the order in which they process batches, in groups that process jointly; most units are one group
            of one node. Empty: each record passes all nodes, depth first, before the next one.
        reason: Why there are no groups.
        in_parts: Whether the later groups only pass on results of the first group, so that one part of the records can pass all
            groups before the next part.
        ranks: Parent and node -> the rank of results from the parent among all results of one record; 0 for most.
    """

    nodes: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...] = ()
    reason: str = ""
    in_parts: bool = False
    ranks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def timed(self) -> tuple[tuple[str, ...], ...]:
        """The nodes whose CPU time is counted together, under the name of the first one."""
        return self.groups or tuple(filter(None, (self.nodes,)))


def units(nodes: Mapping[str, Node], head: Collection[str], entries: Sequence[TaskInput]) -> tuple[Unit, ...]:
    """The units of a task, in the order in which they run."""
    inside = {name: node for name, node in nodes.items() if name not in head and not isinstance(node, SourceNode)}
    return _Search(inside, {entry.node for entry in entries}).found()


def why_single(node: Node) -> str | None:
    """Why a node always processes single records; None if it need not."""
    if not isinstance(node, ProcessorNode):
        return None
    if node.wrapper is not None:
        return "is wrapped, and wrappers see whole records one by one"
    return node.spec.single or None


class _Sets:
    """Disjoint sets of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._first = {name: name for name in names}

    def of(self, name: str) -> str:
        """The name that stands for the set."""
        return self._first[name]

    def join(self, names: Iterable[str]) -> None:
        joined = {self._first[name] for name in names}
        first = min(joined)
        self._first = {name: first if one in joined else one for name, one in self._first.items()}

    def sets(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, first in self._first.items():
            found.setdefault(first, []).append(name)
        return found


class _Arrivals:
    """The edges on which the results of one record reach a group of nodes, in the order that they have depth first.

    Args:
        inside: All nodes.
        children: The children of each node.
        group: The nodes, in run order.
        same: Returns one name for nodes that forward their results together.
    """

    def __init__(
        self,
        inside: Mapping[str, Node],
        children: Mapping[str, Sequence[str]],
        group: Sequence[str],
        same: Callable[[str], str],
    ) -> None:
        self._inside, self._children, self._group, self._same = inside, children, group, same
        self._found: dict[str, tuple[tuple[str, str], ...] | None] = {}

    def ranks(self) -> dict[tuple[str, str], int] | None:
        """The rank of each edge; None if the results of one record come in different orders."""
        before: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for name in self._inside:
            edges = self._of(name)
            if edges is None:
                return None
            for at, edge in enumerate(edges):
                before.setdefault(edge, set()).update(edges[:at])
        try:
            return {edge: place for place, edge in enumerate(TopologicalSorter(before).static_order())}
        except CycleError:
            return None

    def _of(self, name: str) -> tuple[tuple[str, str], ...] | None:
        """The edges that results of one record of a node reach, in order; None if the order varies."""
        if name not in self._found:
            self._found[name] = None
            self._found[name] = self._in_turn(name)
        return self._found[name]

    def _in_turn(self, name: str) -> tuple[tuple[str, str], ...] | None:
        edges: list[tuple[str, str]] = []
        dropped = 0
        for child in self._children[name]:
            below = self._of(child)
            if below is None:
                return None
            own = ((self._same(name), child),) if child in self._group else ()
            edges += own + below
            dropped += bool(own + below) and self._takes_dropped(child)
        edges = [edge for edge, before in zip(edges, [None, *edges], strict=False) if edge != before]
        several = len(edges) > 1 and not self._has_one_result(name)
        mixed = dropped and len(edges) > 1
        # One operator gets the records of a whole group, and the records of its first node come first.
        places = [self._group.index(child) for _, child in edges]
        in_order = len(set(edges)) == len(edges) and places == sorted(places)
        return tuple(edges) if in_order and not several and not mixed else None

    def _takes_dropped(self, name: str) -> bool:
        node = self._inside[name]
        return isinstance(node, ProcessorNode) and node.takes_dropped

    def _has_one_result(self, name: str) -> bool:
        """Whether a node has at most one result of a record. At the end of a step, each result is a record of its own."""
        node = self._inside[name]
        if not isinstance(node, ProcessorNode):
            return True
        return node.wrapper is None and (node.spec.one_result or node.spec.forwards_at_end(node.stores))


class _Search:
    def __init__(self, inside: Mapping[str, Node], entered: Collection[str]) -> None:
        self._inside = inside
        self._passes = Passes.of(inside, entered)
        self._parents = {
            name: [parent for parent in node.parents if isinstance(inside.get(parent), ProcessorNode)]
            for name, node in inside.items()
        }
        self._children: dict[str, list[str]] = {name: [] for name in inside}
        for name, parents in self._parents.items():
            for parent in parents:
                self._children[parent].append(name)
        self._ranks: dict[tuple[str, str], int] = {}
        self._above: dict[str, set[str]] = {}
        for name, parents in self._parents.items():
            self._above[name] = {*parents, *(one for parent in parents for one in self._above[parent])}
        self._units = _Sets(inside)
        self._groups = _Sets(inside)
        self._followers: dict[str, set[str]] = {name: set() for name in inside}
        """Node -> the tables whose rows it looks up as of each record."""
        self._passing: set[str] = set()
        """Stateless nodes that pass results on part by part."""
        self._reasons: dict[str, str] = {}
        """Node of a unit -> why the records of the unit go depth first."""

    def found(self) -> tuple[Unit, ...]:
        self._share_stores()
        for group in self._groups.sets().values():
            self._order(group)
        self._share_topics()
        self._pass_on()
        while True:
            order, circle = _in_order(self._units, self._parents)
            if not circle:
                whole = self._units.sets()
                return tuple(self._unit(whole[one]) for one in order)
            self._units.join(circle)

    def _share_stores(self) -> None:
        users: dict[str, list[ProcessorNode]] = {}
        for node in self._inside.values():
            if isinstance(node, ProcessorNode):
                for store in dict.fromkeys((*node.spec.uses(node.stores), *node.spec.looks_up)):
                    for other in users.setdefault(store, []):
                        if self._jointly(node, other):
                            self._join(node, other)
                        elif not self._passes.apart(store, node, other):
                            self._share(store, node, other)
                    users[store].append(node)

    def _share(self, store: str, one: ProcessorNode, other: ProcessorNode) -> None:
        names = one.name, other.name
        self._units.join(names)
        self._meet(names, apart=True)
        if (table := self._shows(store, one, other)) is not None:
            self._followers[one.name if table is other else other.name].add(table.name)
        else:
            self._reasons[one.name] = f"'{one.name}' shares the store '{store}' with '{other.name}'"

    def _join(self, one: ProcessorNode, other: ProcessorNode) -> None:
        self._units.join((one.name, other.name))
        self._groups.join((one.name, other.name))

    def _jointly(self, one: ProcessorNode, other: ProcessorNode) -> bool:
        """Whether one operator processes the records of both nodes."""
        connected = one.name in self._above[other.name] or other.name in self._above[one.name]
        wrapped = one.wrapper is not None or other.wrapper is not None
        return one.spec.joint and type(one.spec) is type(other.spec) and not connected and not wrapped

    def _shows(self, store: str, one: ProcessorNode, other: ProcessorNode) -> ProcessorNode | None:
        """Which of the two nodes is a table whose rows the other one can look up as of each record; None if neither is."""
        looking, table = (one, other) if store in one.spec.looks_up else (other, one)
        if store not in looking.spec.looks_up or not table.spec.shows_updates:
            return None
        if looking.name in self._above[table.name] or why_single(looking) is not None or why_single(table) is not None:
            return None
        # A table that gets records in only one pass has nothing pending when it gets them.
        received = self._passes.received
        alone = received[table.name] == {RECORDS} and self._passes.works_in(looking) & self._passes.works_in(table) == {
            RECORDS
        }
        return table if alone else None

    def _order(self, group: Sequence[str]) -> None:
        """Notes the order in which results of one record reach a group on several paths; depth first if the order varies."""
        senders = [(parent, name) for name in group for parent in self._parents[name]]
        if not any(self._of_one_record(one, other) for one, other in combinations(senders, 2)):
            return
        ranks = _Arrivals(self._inside, self._children, group, self._groups.of).ranks()
        if ranks is None:
            self._meet(group)
        else:
            self._ranks |= {(parent, name): ranks[self._groups.of(parent), name] for parent, name in senders}

    def _meet(self, group: Sequence[str], apart: bool = False) -> None:
        """Notes the nodes from which results of one record reach a group on several paths (`apart`: only to different nodes)."""
        senders = [(parent, name) for name in group for parent in self._parents[name]]
        for one, other in combinations(senders, 2):
            if apart and (one[1] == other[1] or self._behind(one, other) or self._behind(other, one)):
                continue
            if self._of_one_record(one, other):
                self._units.join({*group, *self._partings(one[0], other[0])})
                self._reasons[other[1]] = f"'{other[1]}' gets results of one record from several nodes"

    def _behind(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether the records on one edge have passed through the node at the end of the other edge."""
        return other[1] == one[0] or other[1] in self._above[one[0]]

    def _of_one_record(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether two edges carry results of one record in one pass. At the end of the step, all results have the same origin."""
        sent = [self._passes.sent(parent, self._inside[name]) for parent, name in (one, other)]
        both = sent[0] & sent[1]
        entries = self._passes.entries
        return bool(both - {RECORDS}) or (RECORDS in both and not entries[one[0]].isdisjoint(entries[other[0]]))

    def _partings(self, one: str, other: str) -> set[str]:
        """The last nodes that lead to both nodes, from which the paths to them part."""
        common = (self._above[one] | {one}) & (self._above[other] | {other})
        return {name for name in common if not any(name in self._above[below] for below in common)}

    def _share_topics(self) -> None:
        """Notes the sinks that may write to one topic in one pass."""
        sinks = [node for node in self._inside.values() if isinstance(node, SinkNode)]
        received = self._passes.received
        for one, other in combinations(sinks, 2):
            dynamic = next((sink.name for sink in (one, other) if sink.topic is None), None)
            if (dynamic or str(one.topic) == str(other.topic)) and received[one.name] & received[other.name]:
                topic = f"'{one.name}' and '{other.name}' write to the topic '{one.topic}'"
                self._reasons[one.name] = f"'{dynamic}' chooses the topic of each record" if dynamic else topic
                self._units.join((one.name, other.name))
                self._meet((one.name, other.name))

    def _pass_on(self) -> None:
        """Joins nodes that have results record by record with the stateless nodes that pass these on."""
        for name, node in self._inside.items():
            stateless = node.stateless if isinstance(node, ProcessorNode) else True
            above = self._parents[name]
            if (
                stateless
                and len(above) == len(node.parents) == 1
                and (above[0] in self._passing or self._each(above[0]))
            ):
                self._passing.add(name)
                self._units.join((above[0], name))

    def _each(self, name: str) -> bool:
        """Whether a node has results record by record, in a unit that takes batches."""
        node = self._inside[name]
        spec = node.spec if isinstance(node, ProcessorNode) else None
        uncached = isinstance(spec, CachingTableSpec) and not spec.caching
        reason = self._reason(self._units.sets()[self._units.of(name)])
        return (uncached or why_single(node) is not None) and reason is None

    def _reason(self, nodes: Iterable[str]) -> str | None:
        return next((self._reasons[name] for name in nodes if name in self._reasons), None)

    def _unit(self, names: list[str]) -> Unit:
        """Makes the unit of these nodes, which are in run order."""
        nodes = tuple(names)
        reason = self._reason(nodes)
        if reason is not None:
            return Unit(nodes, (), reason)
        before = {name: {*self._parents[name], *self._followers[name]} & {*nodes} for name in nodes}
        order, circle = _in_order(self._groups, before)
        if circle:
            return Unit(nodes, (), f"{' and '.join(map(repr, sorted(circle)))} depend on each other's results")
        groups = tuple(tuple(self._groups.sets()[one]) for one in order)
        in_parts = len(groups) > 1 and self._passing.issuperset(name for (name, *_) in groups[1:])
        return Unit(nodes, groups, "", in_parts, {edge: rank for edge, rank in self._ranks.items() if edge[1] in names})


def _in_order(sets: _Sets, before: Edges) -> tuple[list[str], set[str]]:
    """Orders the sets by what must come before what. If that is impossible, also returns sets that form a circle."""
    waiting: dict[str, set[str]] = {}
    for name, names in before.items():
        own = sets.of(name)
        waiting.setdefault(own, set()).update(one for one in map(sets.of, names) if one != own)
    order: list[str] = []
    while waiting:
        ready = next((one for one, others in waiting.items() if others.isdisjoint(waiting)), None)
        if ready is None:
            return order, _circle(waiting)
        del waiting[ready]
        order.append(ready)
    return order, set()


def _circle(waiting: Edges) -> set[str]:
    path: list[str] = []
    one = next(iter(waiting))
    while one not in path:
        path.append(one)
        one = min(other for other in waiting[one] if other in waiting)
    return set(path[path.index(one) :])
