"""The common bases of streams, tables and groups: helpful errors for unknown names, a readable `repr`, and joins of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams.dsl import functions
from streams.dsl.arguments import one_option
from streams.dsl.calls import explain_wrong_arguments
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.options import Joined
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.windows import JoinWindows
from streams.operators.table.value_getter import JoinKind
from streams.topology.graph import InternalTopic, Node, SinkNode, SourceNode
from streams.topology.node_kind import NodeKind


class Facade(AnswersUnknownNames):
    """Shown as `KStream('orders' → map_values)`. A subclass without a port of its own overrides `_shown`."""

    _graph: GraphBuilder
    _port: Port

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        explain_wrong_arguments(cls)

    def _shown(self) -> str:
        return path_of(self._graph, self._port)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"


# --- Shows a stream or a table in one line: `'orders' → filter → map_values`.

_MOST = 6

_METHODS: dict[NodeKind, str | None] = {
    NodeKind.KSTREAM_FLATMAP: "flat_map",
    NodeKind.KSTREAM_FLATMAPVALUES: "flat_map_values",
    **dict.fromkeys((NodeKind.KSTREAM_MAPVALUES, NodeKind.KTABLE_MAPVALUES), "map_values"),
    NodeKind.KSTREAM_KEY_SELECT: "select_key",
    NodeKind.KSTREAM_PROCESSOR: "process",
    NodeKind.KSTREAM_PROCESSVALUES: "process_values",
    NodeKind.KSTREAM_BRANCH: "split",
    NodeKind.KSTREAM_BRANCHCHILD: "branch",
    NodeKind.KSTREAM_TOTABLE: "to_table",
    NodeKind.KSTREAM_LEFTJOIN: "left_join",
    **dict.fromkeys((NodeKind.KSTREAM_JOINTHIS, NodeKind.KSTREAM_JOINOTHER, NodeKind.KTABLE_JOINTHIS), "join"),
    **dict.fromkeys((NodeKind.KTABLE_JOINOTHER, NodeKind.KTABLE_MERGE, NodeKind.KTABLE_FK_JOIN_OUTPUT), "join"),
    NodeKind.KSTREAM_JOINALL: "join_all",
    **dict.fromkeys((NodeKind.KSTREAM_ASOFTHIS, NodeKind.KSTREAM_ASOFOTHER), "as_of_join"),
    NodeKind.COGROUPKSTREAM_AGGREGATE: "cogroup",
    NodeKind.COGROUPKSTREAM_MERGE: "aggregate",
    NodeKind.KTABLE_SOURCE: None,
    NodeKind.KTABLE_TRANSFORMVALUES: "transform_values",
    NodeKind.KTABLE_TOSTREAM: "to_stream",
    NodeKind.KTABLE_SELECT: "group_by",
    **{
        kind: None
        for kind in NodeKind
        if kind.name.startswith("KTABLE_FK_JOIN") and kind.name != "KTABLE_FK_JOIN_OUTPUT"
    },
}
"""Kind of a node -> the method that adds it, if it differs from the kind's last word; None: not the last node of its method."""


def path_of(graph: GraphBuilder, port: Port) -> str:
    """Shows the topics that a stream comes from, and the methods called since then."""
    steps = _steps(graph, port.node)
    shown = steps if len(steps) <= _MOST else ["…", *steps[-_MOST:]]
    return " → ".join([", ".join(map(repr, port.lineage.topics)), *shown])


def _steps(graph: GraphBuilder, name: str) -> list[str]:
    """The methods from the topic to a node, following the first parent of each node."""
    steps: list[str | None] = []
    node: Node | None = graph.topology.nodes[name]
    while node is not None:
        step = _method(node)
        if steps[-1:] != [step]:
            steps.append(step)
        node = _above(graph, node)
    return [step for step in reversed(steps) if step is not None]


def _method(node: Node) -> str | None:
    if isinstance(node, SinkNode):
        return "repartition" if node.repartitions else None
    if isinstance(node, SourceNode):
        return None
    return _METHODS.get(node.kind, node.kind.value.rpartition("-")[2].lower())


def _above(graph: GraphBuilder, node: Node) -> Node | None:
    """The first parent; for the source of a repartition topic, the sink that writes the topic."""
    nodes = graph.topology.nodes
    if node.parents:
        return nodes[node.parents[0]]
    topics = (
        [topic for topic in node.topics if isinstance(topic, InternalTopic)] if isinstance(node, SourceNode) else []
    )
    return next((sink for sink in nodes.values() if isinstance(sink, SinkNode) and sink.topic in topics), None)


@dataclass(frozen=True, slots=True)
class JoinCall:
    """The arguments of `KStream.join`, `left_join` or `outer_join`. Their meaning depends on the other side of the join."""

    left: Port
    kind: JoinKind
    joiner: functions.Function
    windows: object
    joined: object
    key_selector: functions.Function | None
    keywords: dict[str, Any]

    @property
    def method(self) -> str:
        """The name of the method that was called."""
        return "join" if self.kind == "inner" else f"{self.kind}_join"

    @property
    def second_function(self) -> functions.Function | None:
        """The second function, in Kafka Streams' order of arguments for a join with a global table; None if there is only one."""
        return self.windows if callable(self.windows) and not isinstance(self.windows, type) else None

    def check_by_key(self, other: AbstractStream) -> None:
        """Raises `TopologyError` if there is a key selector."""
        if self.key_selector or self.second_function:
            raise TopologyError(
                f"{self.method}() with a {type(other).__name__} takes one function, the joiner: both sides are joined by key, so "
                f"select_key(...) first. key_selector=... is for global tables, and foreign_key=... for a table with a table."
            )

    def table_option(self, *given: object) -> Joined[Any, Any]:
        """Returns the option of a join with a table. Raises `TopologyError` for windows and for an outer join."""
        options = [one for one in given if one is not None]
        if len(options) > 1 or any(isinstance(one, JoinWindows) for one in options):
            raise TopologyError(
                "A join with a table takes no windows: the table's value at the time of the record counts."
            )
        if self.kind == "outer":
            raise TopologyError("A stream has no outer join with a table: updates of the table alone give no result.")
        return one_option(self.method, Joined, options[0] if options else None, self.keywords)


class AbstractStream(Facade):
    """Base of `KStream`, `KTable` and `GlobalKTable`, which belong to one builder; each defines how a stream is joined with it."""

    def _joined_by(self, call: JoinCall) -> Port:
        """Adds the join of a stream, the call's left side, with this one."""
        raise NotImplementedError

    def _check_same_builder(self, other: object) -> None:
        """Raises `TopologyError` unless the other is a stream or table of the same builder."""
        if not isinstance(other, AbstractStream) or other._graph is not self._graph:
            known = isinstance(other, AbstractStream)
            what = "comes from another StreamsBuilder" if known else "is not a stream or table"
            raise TopologyError(
                f"{type(other).__name__} {what}: join and merge take streams and tables of one builder."
            )
