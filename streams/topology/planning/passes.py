"""`Passes`: in which passes of a step each node gets records.

A step passes over its nodes several times: first with the records, then, at the end of the step, with what one operator after the
other has held back, parents first. Two passes never alternate, whether records are processed together or one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streams.topology.graph import Node, ProcessorNode

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
        """Finds them.

        Args:
            inside: The nodes, in run order.
            entered: Those at which records enter.
        """
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
