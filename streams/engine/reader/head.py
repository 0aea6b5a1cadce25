"""The operators of the head, which run in a reader. A whole piece passes one operator after the other, as in a task.

Kafka Streams passes a record through all operators before the next one, depth first, and a task must see the results of one record
in that order. So each result has a position (`ColumnarBatch.order`) that says how it was made: the number of the record in the
piece, then for each level of the graph the number of the result among its operator's, and the child that it went to. Sorted by
position, results are in depth-first order, and so are the rows that leave the head.

Example: a `flat_map` with the children A and B makes two results of record 7. Their positions sort as (7, 0, A), (7, 0, B),
(7, 1, A), (7, 1, B), although A processes both of its results before B begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from streams.engine.graph.node import (
    Edge,
    Inbox,
    NodeContext,
    NodeRunner,
    Punctuations,
    changing_nodes,
    own_batch,
    owners,
    process_group,
)
from streams.engine.graph.step_context import StepContext
from streams.errors import RecordFailedError, TopologyError
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology

_POSITION_BITS: Final = 62
_WAY_BITS: Final = 40
"""The bits of a position below the record's number, if they suffice: 22 are left for that number, so pieces may be large."""
_RESULT_BITS: Final = 4, 20
"""The least and the most bits for the number of a result."""
_LEAST_RECORD_BITS: Final = 6


@dataclass(frozen=True, slots=True)
class _Level:
    """The bits of a position for the nodes of one depth.

    Attributes:
        results: The number of bits for the number of a result.
        result_shift: Where these bits begin.
        child_shift: Where the child's number begins.
    """

    results: int
    result_shift: int
    child_shift: int


class Ways:
    """The layout of the positions of results.

    Attributes:
        inside: The operators that do not work on columns, in run order.
        bits: The number of bits below the record's number.
        branch_shift: Where the number of the source's child begins.
        most_records: The most records of a piece.

    Raises:
        TopologyError: The graph branches too often.
    """

    def __init__(self, sub: SubTopology) -> None:
        self._sub = sub
        on_columns = {step.node for step in sub.columns.steps}
        self.inside = {
            name: node
            for name, node in sub.nodes.items()
            if name in sub.head and name not in on_columns and isinstance(node, ProcessorNode)
        }
        self._depths: dict[str, int] = {}
        for name in (*(source.name for source in sub.sources), *self.inside):
            above = (self._depths[parent] for parent in sub.nodes[name].parents if parent in self._depths)
            self._depths[name] = 1 + max(above, default=-1)
        levels = range(1 + max(self._depths.values()))
        at = {level: [name for name, depth in self._depths.items() if depth == level] for level in levels}
        children = [max((len(sub.children(name)) - 1).bit_length() for name in at[level]) for level in levels]
        self._ends: dict[str, int] = {}
        """How many edges lead out of the head from each operator, directly or through others."""
        for name in reversed(self.inside):
            self._ends[name] = sum(self._ends.get(child, 1) for child in sub.children(name))
        several = [any(map(self._has_several, at[level])) for level in levels]
        least, most = _RESULT_BITS
        each = max(least, min(most, (_WAY_BITS - sum(children)) // max(1, sum(several))))
        shift, self._levels = 0, dict[int, _Level]()
        for level in reversed(levels):
            results = each * several[level]
            self._levels[level] = _Level(results, shift + children[level], shift)
            shift += children[level] + results
        if shift > _POSITION_BITS - _LEAST_RECORD_BITS:
            raise TopologyError(
                f"The operators before the stateful ones of sub-topology {sub.name!r} branch at {len(levels)} levels, too "
                f"often to keep the order of their results. Write some of the results to a topic with repartition(), and "
                f"continue after it."
            )
        self.bits = shift
        self.most_records = 1 << (_POSITION_BITS - shift)
        self.branch_shift = self._levels[0].child_shift

    def through(self, name: str, child: str) -> int:
        """The bits that an edge adds to a position."""
        return self._sub.children(name).index(child) << self._levels[self._depths[name]].child_shift

    def numbering(self, name: str) -> Callable[[Int64s], Int64s] | None:
        """Returns a function that numbers an operator's results in their positions; None if a record has at most one result."""
        level = self._levels[self._depths[name]]
        return partial(_numbered, level=level) if self._has_several(name) else None

    def _has_several(self, name: str) -> bool:
        """Whether a record may have several results that go different ways after the operator."""
        node = self.inside.get(name)
        return node is not None and self._ends[name] > 1 and not (node.wrapper is None and node.spec.one_result)


def _numbered(order: Int64s, level: _Level) -> Int64s:
    """Numbers equal positions from 0 on. If there are more than the bits allow, the last ones share a number."""
    return order | np.minimum(number_in_runs(order), (1 << level.results) - 1) << level.result_shift


def number_in_runs(numbers: Int64s) -> Int64s:
    """Counts from 0 on within each run of equal numbers."""
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    return np.arange(len(numbers)) - np.repeat(starts, np.diff(np.append(starts, len(numbers))))


@dataclass(frozen=True, slots=True)
class _HeadEdge:
    """Takes results to an operator of the head, or out of the head.

    Attributes:
        through: The bits that the edge adds to a position.
        place: Returns the source record of a position.
        receive: Takes the batch.
        holds: Whether results of some records may come after results of later records.
    """

    through: int
    place: Callable[[int], Any]
    receive: Callable[[ColumnarBatch], None]
    holds: bool

    def add(self, batch: ColumnarBatch) -> None:
        if not len(batch):
            return
        if self.holds and (batch.order[1:] < batch.order[:-1]).any():
            batch = batch.take(np.argsort(batch.order, kind="stable"))
        order = batch.order | self.through if self.through else batch.order
        self.receive(
            ColumnarBatch(batch.keys, batch.values, batch.timestamps, order, batch.headers, self.place, batch.held)
        )


class Head:
    """The operators of a head that do not work on columns.

    Args:
        outside: For each edge out of the head, takes its results.
        place: Returns the source record with a number in the piece.
    """

    def __init__(
        self,
        sub: SubTopology,
        run: StepContext,
        ways: Ways,
        outside: Mapping[tuple[str, str], Callable[[ColumnarBatch], None]],
        place: Callable[[int], Any],
    ) -> None:
        self._run, self._ways = run, ways
        self._place: Callable[[int], Any] = lambda position: place(position >> ways.bits)
        self._inboxes = {name: Inbox() for name in ways.inside}
        punctuations = Punctuations({}, run.now_ms)
        self.nodes: dict[str, NodeRunner] = {}
        for name, node in ways.inside.items():
            context = NodeContext(name, (), run, punctuations)
            context.numbering = ways.numbering(name)
            self.nodes[name] = NodeRunner.of(name, node.processor(), context, run)
        changing = changing_nodes({name: runner.processor for name, runner in self.nodes.items()}, sub.children)
        for name, runner in self.nodes.items():
            edges: dict[str, Edge] = {
                child: self._edge(
                    name, child, self._inboxes[child].add if child in ways.inside else outside[name, child]
                )
                for child in sub.children(name)
            }
            runner.context.connect({}, edges, sub.takers_of_dropped(name), changing)
            runner.processor.init(runner.context)
        self.sources = {
            source.name: {
                child: self._edge(source.name, child, self._inboxes[child].add)
                for child in sub.children(source.name)
                if child in ways.inside
            }
            for source in sub.sources
        }
        """The edges to the operators that take the records of a source."""
        self._owners = {source: owners(list(edges), changing) for source, edges in self.sources.items()}

    def _edge(self, name: str, child: str, receive: Callable[[ColumnarBatch], None]) -> _HeadEdge:
        node = self._ways.inside.get(name)
        holds = node is not None and not node.spec.repeatable
        return _HeadEdge(self._ways.through(name, child), self._place, receive, holds)

    def process(self, source: str, batch: ColumnarBatch) -> None:
        """Passes the records of a piece through all operators that follow a source. Their positions are their numbers in the piece.

        Raises:
            RecordFailedError: The policy for a failed record is to stop. No earlier record has failed in any operator.
        """
        try:
            self._process(source, batch)
        except RecordFailedError as error:
            # Operators that are not repeatable may give other results the second time.
            if error.offset is not None and all(node.spec.repeatable for node in self._ways.inside.values()):
                self.discard()
                rows, _ = self._place(0)
                earlier = np.flatnonzero(np.array(rows.offsets)[batch.order] < error.offset)
                if len(earlier):
                    self.process(source, batch.take(earlier))
            raise

    def _process(self, source: str, batch: ColumnarBatch) -> None:
        batch = replace(batch, order=batch.order << self._ways.bits)
        for child, edge in self.sources[source].items():
            edge.add(own_batch(batch) if child in self._owners[source] else batch)
        for name, runner in self.nodes.items():
            process_group([runner], [self._inboxes[name]], self._run)
            runner.context.attempt(runner.processor.flush)
            runner.context.hand_on()

    def close(self) -> None:
        for runner in self.nodes.values():
            runner.processor.close()
        self.discard()

    def discard(self) -> None:
        """Forgets the records of a pass that has failed."""
        for name, runner in self.nodes.items():
            runner.context.discard()
            self._inboxes[name].take()
