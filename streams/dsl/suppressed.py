"""`Suppressed`: how long `KTable.suppress` delays updates, and what happens when its buffer is full."""

from __future__ import annotations

from dataclasses import dataclass, replace

from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.tables import TableNode
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.windows import Duration, GroupingWindows, Windows, to_ms
from streams.operators.table.suppress_rules import SuppressRules
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.primitives import BytesSerde
from streams.topology.graph import Graph, ProcessorNode
from streams.topology.naming import stateful_name
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.tables import SuppressSpec, SuppressValueGetter, windows_of


@dataclass(frozen=True)
class BufferConfig(AnswersUnknownNames):
    """The bounds of a buffer, and what to do when one is reached.

    Attributes:
        max_records: The largest number of keys in the buffer; None: no bound.
        max_bytes: The largest number of bytes in the buffer, counted as in `of_max_bytes`; None: no bound.
        emit_early: What happens when the buffer is full. True: the oldest update is emitted early. False: the application fails,
            so that nothing is emitted too early. None: False for `until_window_closes`, True for `until_time_limit`.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    emit_early: bool | None = None

    def __post_init__(self) -> None:
        for bound in (self.max_records, self.max_bytes):
            if bound is not None and bound < 0:
                raise TopologyError(f"A buffer's bound must not be negative, but is {bound}.")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """A buffer without bounds. It is a store, so it need not fit into memory."""
        return cls()

    @classmethod
    def of_max_records(cls, records: int) -> BufferConfig:
        """A buffer of at most this many keys."""
        return cls(max_records=records)

    @classmethod
    def of_max_bytes(cls, size: int) -> BufferConfig:
        """A buffer of at most this many bytes.

        The size of an update is counted as in Kafka Streams: 28 bytes, its key, its new value, the value before the last and the
        value before the first buffered update of the key (once if they are equal), and the names and values of the headers; in
        `compat` mode also the name of the topic that the update was read from.
        """
        return cls(max_bytes=size)

    def shut_down_when_full(self) -> BufferConfig:
        """Returns the same buffer, but the application fails when a bound is reached."""
        return replace(self, emit_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        """Returns the same buffer, but the oldest updates are emitted when a bound is reached."""
        return replace(self, emit_early=True)


# `BufferConfig.max_records(5)` is Kafka Streams' name. Objects have fields of these names, so only the class has these functions.
for _bound, _of in (("max_records", BufferConfig.of_max_records), ("max_bytes", BufferConfig.of_max_bytes)):
    setattr(BufferConfig, _bound, staticmethod(_of))


@dataclass(frozen=True)
class Suppressed(AnswersUnknownNames):
    """How long `KTable.suppress` waits, in the stream time of the updates. Use the class methods (KIP-328).

    For example:

        counts.suppress(Suppressed.until_window_closes())
        table.suppress(Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.of_max_records(1000)))

    Attributes:
        limit_ms: How long to wait in stream time after a key's first delayed update; None: until the window closes.
        buffer: The bounds of the buffer.
    """

    limit_ms: int | None
    buffer: BufferConfig

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """Emits one result for each window, when the window closes; the buffer must not emit early.

        With windows of 60 and a grace of 10, the result of `[0, 60)` is emitted when stream time reaches 70.
        Source: Kafka Streams' `Suppressed.untilWindowCloses`.
        """
        buffer = buffer or BufferConfig.unbounded()
        if buffer.emit_early:
            raise TopologyError(
                "suppress until the window closes gives only final results, so a full buffer cannot emit early: "
                "use shut_down_when_full()."
            )
        return cls(None, buffer.shut_down_when_full())

    @classmethod
    def until_time_limit(cls, limit: Duration, buffer: BufferConfig | None = None) -> Suppressed:
        """Emits at most one update of a key per `limit` of stream time; a full buffer emits its oldest update early.

        The `limit`, a `timedelta` or ms, is counted from a key's first delayed update. With a limit of 60, updates of a key at 0,
        20 and 50 give one result, the last one, when stream time reaches 60. With `shut_down_when_full()`, a full buffer fails
        instead. Source: Kafka Streams' `Suppressed.untilTimeLimit`.
        """
        limit_ms = to_ms(limit, "suppress' time limit")
        if limit_ms < 0:
            raise TopologyError(f"suppress' time limit must not be negative, but is {limit_ms} ms.")
        buffer = buffer or BufferConfig.unbounded()
        return cls(limit_ms, buffer.emit_early_when_full() if buffer.emit_early is None else buffer)


# --- `KTable.suppress`: the node, its buffer, and the waiting time that follows from the windows above.


def add_suppress(port: Port, above: TableNode, how: Suppressed, name: str | None) -> tuple[Port, TableNode]:
    """Adds the node and its stores. The table above must send old values: readers see these while an update is delayed."""
    if not isinstance(how, Suppressed):
        raise TopologyError(
            f"suppress takes Suppressed.until_window_closes() or Suppressed.until_time_limit(...), not {how!r}."
        )
    if above.versioned:
        raise TopologyError(
            f"'{port.node}' is a versioned table, which cannot be suppressed: a read as of a time could not see the updates held "
            f"back. Leave history_retention out."
        )
    above.send_old_values(True)
    if how.limit_ms is not None or above.filters_updates:
        # How records are divided into steps must not change which updates are delayed, from when on, and what advances time here.
        above.disable_caching()
    graph, rules = above.graph, _rules(above.graph.topology, port, how)
    if rules.by_window:
        _update_sessions_at_once(graph, port)
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    spec = SuppressSpec(rules, key_serde, value_serde)
    name = name or stateful_name(spec.kind, port.lineage, spec.parameters)

    def bytes_store(suffix: str, rows: RowFormat | None = None) -> str:
        spec = StoreSpec(f"{name}-{suffix}", StoreKind.KEY_VALUE, persistent=None, rows=rows)
        return graph.store(spec, BytesSerde(), BytesSerde())

    buffer = bytes_store("store", RowFormat.SUPPRESSED)
    places = None if rules.by_window else bytes_store("places")
    stores = (buffer,) if places is None else (buffer, places)
    made = graph.stateful(spec, port, name, stores=stores, key_serde=key_serde, value_serde=value_serde)

    def computed() -> ValueGetter:
        # Otherwise, readers would see an update that is still in a cache above and has not reached this node.
        above.disable_caching()
        return SuppressValueGetter(above.view(), buffer, places, key_serde, value_serde)

    return made, TableNode(graph, (made.node,), None, parents=(above,), computed=computed)


def _rules(topology: Graph, port: Port, how: Suppressed) -> SuppressRules:
    wait_ms, inclusive = how.limit_ms, False
    if wait_ms is None:
        found = list(windows_above(topology, port.node).values())
        if not found:
            raise TopologyError(
                f"'{port.node}' has no windows that could close: suppress it with Suppressed.until_time_limit(...), "
                f"or aggregate in windows first."
            )
        if any(not windows.closes for windows in found):
            raise TopologyError(f"The windows of '{port.node}' never close, so nothing would ever be emitted.")
        # The longest wait, as in Kafka Streams (GraphGraceSearchUtil).
        wait_ms, inclusive = max((windows.wait_ms, windows.inclusive_end) for windows in found)
    buffer = how.buffer
    return SuppressRules(
        wait_ms, how.limit_ms is None, inclusive, buffer.max_records, buffer.max_bytes, buffer.emit_early is True
    )


def windows_above(topology: Graph, name: str) -> dict[str, GroupingWindows]:
    """The windows of the nearest windowed aggregations above, by the names of their nodes."""
    node = topology.nodes[name]
    windows = windows_of(node.spec) if isinstance(node, ProcessorNode) else None
    if windows is not None:
        return {name: windows}
    found: dict[str, GroupingWindows] = {}
    for parent in node.parents:
        found |= windows_above(topology, parent)
    return found


def shared_windows(graph: GraphBuilder, port: Port) -> Windows:
    """The windows by which a table's rows can be grouped. Raises `TopologyError` if its keys share no windows."""
    found = list(windows_above(graph.topology, port.node).values())
    if not found:
        raise TopologyError(
            f"'{port.node}' has no windows to group by: aggregate in windows first, or use group_by(...)."
        )
    first = found[0]
    if not isinstance(first, Windows):
        raise TopologyError(
            f"The keys of '{port.node}' do not share their windows: each has {type(first).__name__} of its own records. "
            f"group_by_window groups tumbling, hopping and calendar windows, and those of your own class."
        )
    if any(other != first for other in found):
        raise TopologyError(
            f"'{port.node}' is joined of tables with several kinds of windows, {first!r} and others: group_by_window needs one."
        )
    return first


def _update_sessions_at_once(graph: GraphBuilder, port: Port) -> None:
    """Disables the cache of aggregations whose windows can merge, because suppress delays their updates itself.

    A cache could remove a session that closes and is merged with a younger one within one step, so the result would depend on how
    records are divided into steps.
    """
    for name, windows in windows_above(graph.topology, port.node).items():
        if windows.merges:
            spec = graph.operator(name).spec
            assert isinstance(spec, AggregationSpec), "sessions are aggregated as streams"
            graph.change_spec(name, spec.without_caching())
