"""Builds a case's topology through the public DSL, node by node. What it does not know raises ``CaseError``.

Stateful nodes get names made of their position: generated names are refused where two operators are alike, and a case
may well hold two. A name is not a store's name: a case says ``store`` where a table is to be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from streams import (
    CogroupedKStream,
    Consumed,
    EmitStrategy,
    GlobalKTable,
    Joined,
    JoinWindows,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Materialized,
    Repartitioned,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    StreamJoined,
    StreamsBuilder,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
    Topology,
)
from streams.dsl.stores import Stores
from tests.conformance.aggregates import Aggregator, aggregator, joiner, reducer
from tests.conformance.build_options import suppressed, windows_of
from tests.conformance.case import CaseError
from tests.conformance.functions import predicate, value_function
from tests.conformance.json_values import CompactJsonSerde
from tests.conformance.processors import supplier_of

Node: TypeAlias = dict[str, Any]


def build(topology: Sequence[Node], optimize: bool = False) -> Topology:
    """The topology of a case; `optimize` as in its configuration.

    Raises:
        CaseError: an operation, a function or a parameter is unknown.
        TopologyError: the DSL refuses it.
    """
    return build_together({"": topology}, optimize)


def build_together(topologies: Mapping[str, Sequence[Node]], optimize: bool = False) -> Topology:
    """One topology of several cases that have nothing in common: each one's names begin with its own prefix."""
    built = _Builder(optimize)
    for prefix, topology in topologies.items():
        built.begin(prefix)
        for position, node in enumerate(topology):
            built.add(f"{prefix}n{position}", dict(node))
    return built.builder.build()


class _Builder:
    """The DSL objects that stand behind the ids so far."""

    def __init__(self, optimize: bool) -> None:
        serde = CompactJsonSerde()
        self.builder = StreamsBuilder(default_key_serde=serde, default_value_serde=serde, optimize=optimize)
        self.begin("")

    def begin(self, prefix: str) -> None:
        """Begin a case."""
        self.prefix = prefix
        self.made: dict[str, Any] = {}

    def named(self, given: str | None) -> str | None:
        """The name of a store or a topic that the case gives."""
        return None if given is None else f"{self.prefix}{given}"

    def add(self, name: str, node: Node) -> None:
        """Add one node; every parameter must be used."""
        operation, node_id = node.pop("op"), node.pop("id")
        node.pop("comment", None)
        self.name = name
        method = getattr(self, f"op_{operation}", None)
        if method is None:
            raise CaseError(f"unknown operation {operation!r}")
        made = method(node)
        if node:
            raise CaseError(f"{operation!r} has unknown parameters {sorted(node)}")
        if made is not None:
            self.made[node_id] = made

    def input(self, node: Node, *kinds: type[Any], parameter: str = "in") -> Any:
        """The object that a parameter names, of one of these kinds."""
        return self.check(self.made[node.pop(parameter)], *kinds)

    def check(self, found: Any, *kinds: type[Any]) -> Any:
        """The object, if it is of one of these kinds."""
        if not isinstance(found, kinds):
            raise CaseError(f"a {type(found).__name__} is no input here, but {[kind.__name__ for kind in kinds]}")
        return found

    def materialized(self, node: Node, **more: Any) -> Materialized:
        """How a table is kept: every update goes out; a name, and retention, if the case has one."""
        history = node.pop("history_retention_ms", None)
        if history is not None:
            more["history_retention"] = history
        return Materialized(
            name=self.named(node.pop("store", None)), retention=node.pop("retention_ms", None), caching=False, **more
        )

    # Sources and sinks ------------------------------------------------------------------------------------------------

    def op_stream(self, node: Node) -> Any:
        return self.builder.stream(node.pop("topic"))

    def op_table(self, node: Node) -> Any:
        return self.builder.table(node.pop("topic"), Consumed(name=self.name), self.materialized(node))

    def op_global_table(self, node: Node) -> Any:
        return self.builder.global_table(node.pop("topic"), Consumed(name=self.name), self.materialized(node))

    def op_to(self, node: Node) -> None:
        self.input(node, KStream).to(node.pop("topic"))

    # Streams ----------------------------------------------------------------------------------------------------------

    def op_filter(self, node: Node) -> Any:
        return self._filter(node, "filter")

    def op_filter_not(self, node: Node) -> Any:
        return self._filter(node, "filter_not")

    def _filter(self, node: Node, method: str) -> Any:
        above, holds = self.input(node, KStream, KTable), predicate(node.pop("predicate"))
        return getattr(above, method)(holds, **self._of_table(above, node))

    def op_map_values(self, node: Node) -> Any:
        above, fn = self.input(node, KStream, KTable), value_function(node.pop("fn"))
        return above.map_values(fn, **self._of_table(above, node))

    def _of_table(self, above: Any, node: Node) -> dict[str, Any]:
        """What an operation on a table is given besides its function."""
        if isinstance(above, KStream):
            return {}
        return {"named": self.name, "materialized": self.materialized(node)}

    def op_map(self, node: Node) -> Any:
        key_fn, value_fn = value_function(node.pop("key_fn")), value_function(node.pop("value_fn"))
        return self.input(node, KStream).map(lambda key, value: (key_fn(key, value), value_fn(key, value)))

    def op_select_key(self, node: Node) -> Any:
        return self.input(node, KStream).select_key(value_function(node.pop("fn")))

    def op_flat_map_values(self, node: Node) -> Any:
        fn = value_function(node.pop("fn"))

        def values(key: Any, value: Any) -> list[Any]:
            made = fn(key, value)
            return made if isinstance(made, list) else []

        return self.input(node, KStream).flat_map_values(values)

    def op_flat_map(self, node: Node) -> Any:
        fn = value_function(node.pop("fn"))

        def pairs(key: Any, value: Any) -> list[Any]:
            made = fn(key, value)
            return (
                [pair for pair in made if isinstance(pair, list) and len(pair) == 2] if isinstance(made, list) else []
            )

        return self.input(node, KStream).flat_map(pairs)

    def op_merge(self, node: Node) -> Any:
        streams = [self.check(self.made[one], KStream) for one in node.pop("in")]
        merged = streams[0]
        for other in streams[1:]:
            merged = merged.merge(other)
        return merged

    def op_branch(self, node: Node) -> None:
        split = self.input(node, KStream).split()
        given = node.pop("branches")
        ended = False
        for branch in given:
            if "predicate" in branch:
                split = split.branch(predicate(branch["predicate"]))
            else:
                ended = True
        streams = split.default_branch() if ended else split.no_default_branch()
        self.made.update(zip((branch["id"] for branch in given), streams.values(), strict=True))

    def op_peek(self, node: Node) -> Any:
        return self.input(node, KStream).peek(lambda key, value: None)

    def op_repartition(self, node: Node) -> Any:
        return self.input(node, KStream).repartition(
            Repartitioned(name=self.named(node.pop("name", None)) or self.name)
        )

    def op_to_table(self, node: Node) -> Any:
        above = self.input(node, KStream)
        return above.to_table(self.materialized(node), self.name)

    def op_process(self, node: Node) -> Any:
        above = self.input(node, KStream)
        store = self.named(node.pop("store", None)) or f"{self.name}-processor-store"
        supplier, keeps_state = supplier_of(node, store)
        if not keeps_state:
            return above.process(supplier, (), self.name)
        self.builder.add_state_store(Stores.key_value_store(store, CompactJsonSerde(), CompactJsonSerde()))
        return above.process(supplier, (store,), self.name)

    # Grouping and aggregations ----------------------------------------------------------------------------------------

    def op_group_by_key(self, node: Node) -> Any:
        return self.input(node, KStream).group_by_key()

    def op_group_by(self, node: Node) -> Any:
        above, key_fn = self.input(node, KStream, KTable), value_function(node.pop("key_fn"))
        if isinstance(above, KStream):
            return above.group_by(key_fn)
        value_fn = value_function(node.pop("value_fn"))
        return above.group_by(lambda key, value: (key_fn(key, value), value_fn(key, value)), named=self.name)

    def op_windowed_by(self, node: Node) -> Any:
        above = self.input(node, KGroupedStream, CogroupedKStream)
        windowed = above.windowed_by(windows_of(dict(node.pop("windows"))))
        emit = node.pop("emit", None)
        if emit is None:
            return windowed
        strategies = {"on_update": EmitStrategy.on_window_update, "on_close": EmitStrategy.on_window_close}
        if emit not in strategies:
            raise CaseError(f"unknown emit {emit!r}")
        return windowed.emit_strategy(strategies[emit]())

    def op_count(self, node: Node) -> Any:
        above = self.input(node, KGroupedStream, TimeWindowedKStream, SessionWindowedKStream, KGroupedTable)
        return above.count(self.name, self.materialized(node, value_serde=CompactJsonSerde()))

    def op_reduce(self, node: Node) -> Any:
        above = self.input(node, KGroupedStream, TimeWindowedKStream, SessionWindowedKStream, KGroupedTable)
        if isinstance(above, KGroupedTable):
            adder, subtractor = reducer(node.pop("adder")), reducer(node.pop("subtractor"))
            return above.reduce(adder, subtractor, self.name, self.materialized(node))
        return above.reduce(reducer(node.pop("fn")), self.name, self.materialized(node))

    def op_aggregate(self, node: Node) -> Any:
        above, how = self.made[node.pop("in")], aggregator(node.pop("aggregator"))
        last: dict[str, Any] = {"named": self.name, "materialized": self.materialized(node)}
        if isinstance(above, KGroupedStream | TimeWindowedKStream):
            return above.aggregate(how.initial, how.add, **last)
        if isinstance(above, SessionWindowedKStream):
            return above.aggregate(how.initial, how.add, how.merge, **last)
        if isinstance(above, KGroupedTable):
            return above.aggregate(how.initial, how.add, how.subtract, **last)
        if isinstance(above, SessionWindowedCogroupedKStream):
            return above.aggregate(how.initial, how.merge, **last)
        return self.check(above, CogroupedKStream, TimeWindowedCogroupedKStream).aggregate(how.initial, **last)

    def op_cogroup(self, node: Node) -> Any:
        groups = [self.check(self.made[one], KGroupedStream) for one in node.pop("in")]
        adders: list[Aggregator] = [aggregator(one) for one in node.pop("aggregators")]
        if len(groups) != len(adders):
            raise CaseError(f"{len(groups)} groups but {len(adders)} aggregators")
        cogrouped = groups[0].cogroup(adders[0].add)
        for group, adder in zip(groups[1:], adders[1:], strict=True):
            cogrouped = cogrouped.cogroup(group, adder.add)
        return cogrouped

    # Tables -----------------------------------------------------------------------------------------------------------

    def op_suppress(self, node: Node) -> Any:
        return self.input(node, KTable).suppress(suppressed(node), self.name)

    def op_to_stream(self, node: Node) -> Any:
        return self.input(node, KTable).to_stream()

    # Joins ------------------------------------------------------------------------------------------------------------

    def op_join(self, node: Node) -> Any:
        return self._join(node, "join")

    def op_left_join(self, node: Node) -> Any:
        return self._join(node, "left_join")

    def op_outer_join(self, node: Node) -> Any:
        return self._join(node, "outer_join")

    def _join(self, node: Node, method: str) -> Any:
        left = self.input(node, KStream, KTable, parameter="left")
        right = self.input(node, KStream, KTable, GlobalKTable, parameter="right")
        how = getattr(left, method)
        table_table = isinstance(left, KTable)
        join = joiner(node.pop("joiner", "pair"), with_key=not table_table)
        if table_table:
            more: dict[str, Any] = {"named": self.name, "materialized": self.materialized(node)}
            if "foreign_key" in node:
                more["foreign_key"] = value_function(node.pop("foreign_key"))
            return how(self.check(right, KTable), join, **more)
        if isinstance(right, KStream):
            windows = JoinWindows(node.pop("before_ms"), node.pop("after_ms"), node.pop("grace_ms"))
            return how(right, join, windows, StreamJoined(name=self.name))
        if isinstance(right, GlobalKTable):
            selector = value_function(node.pop("key_selector"))
            return how(right, join, key_selector=selector, joined=Joined(name=self.name))
        return how(right, join, joined=Joined(name=self.name, grace=node.pop("grace_ms", None)))
