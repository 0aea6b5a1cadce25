"""The specs of tables: sources, `filter` and the like, aggregations of tables, and `suppress`.

Invariant: if a table's store is optional, the spec is the same with and without a store; only the node's `stores` differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streams.model.windows import GroupingWindows, Windows
from streams.operators.late import (
    ExpiringTable,
    Suppress,
    TableAggregate,
    TableFilter,
    TableMapValues,
    TableSource,
    TableTop,
    TableTransformValues,
    WindowGroupAggregate,
    WindowGroupTop,
    rows_as_emitted,
)
from streams.operators.processor import AnyProcessor, ValueTransformer
from streams.operators.table.suppress_rules import SuppressRules
from streams.operators.table.value_getter import Lookup, ValueGetter
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.base import CachingTableSpec, NodeSpec, Parameters, TableSpec

if TYPE_CHECKING:
    from streams.operators.operator import OperatorContext
    from streams.operators.stores.found_rows import TableLookup


def only(stores: tuple[str, ...]) -> str | None:
    """The optional store of a table; None: the table has no store."""
    return stores[0] if stores else None


@dataclass(frozen=True, slots=True)
class TableSourceSpec(CachingTableSpec):
    """A table whose rows are the records of its input. If it has a store, that has the rows.

    Attributes:
        kind: Whether the table is read from a topic or made from a stream.
        versioned: Whether its store holds versions.
    """

    kind: NodeKind = field()
    versioned: bool = field(default=False, kw_only=True)

    @property
    def single(self) -> str:
        return "each update of a versioned table finds its place in the history" if self.versioned else ""

    @property
    def shows_updates(self) -> bool:
        return not self.versioned

    def forwards_at_end(self, stores: tuple[str, ...]) -> bool:
        """True with a cache, which a versioned table does not have."""
        return self.caching and bool(stores) and not self.versioned

    # Rows are stored as they came.
    takes_encoded = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over the store, or one that only passes updates on."""
        return TableSource(only(stores), self.caching, self.send_old)


@dataclass(frozen=True, slots=True)
class ExpiringTableSpec(CachingTableSpec):
    """A table whose rows expire. Its stores are the rows and their deadlines.

    Attributes:
        kind: Whether the table is read from a topic or made from a stream.
        key_serde: The serde of the table's keys, which are part of the deadlines' keys.
        ttl_ms: How long a row stays.
    """

    kind: NodeKind = field()
    key_serde: Serde
    ttl_ms: int

    @property
    def parameters(self) -> Parameters:
        return (("ttl_ms", self.ttl_ms),)

    single = "each update sets the deadline of its row"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        rows, deadlines = stores
        return ExpiringTable(rows, deadlines, self.key_serde, self.ttl_ms, self.caching, self.send_old)


@dataclass(frozen=True, slots=True)
class TableFilterSpec(CachingTableSpec):
    """A filtered table. If it has a store, that has the rows that have passed.

    Attributes:
        predicate: `(key, value) -> bool`.
        negate: Whether it is `filter_not`.
        knows_old: Whether updates of the table above hold the old value.
        versioned: Whether the table above is versioned.
        passed_on: Name of the store of the keys whose rows were forwarded, if old values may differ from the forwarded ones. The
            table has no other store then.
    """

    kind = NodeKind.KTABLE_FILTER
    predicate: Callable[[Any, Any], bool]
    negate: bool
    knows_old: bool
    versioned: bool
    passed_on: str | None = field(default=None, kw_only=True)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return TableFilter(
            self.predicate,
            self.negate,
            None if self.passed_on is not None else only(stores),
            self.knows_old,
            self.versioned,
            self.caching,
            self.send_old,
            self.passed_on,
        )


@dataclass(frozen=True, slots=True)
class TableMapValuesSpec(CachingTableSpec):
    """A table with mapped values. If it has a store, that has the mapped rows.

    Attributes:
        mapper: `(key, value) -> value`.
    """

    kind = NodeKind.KTABLE_MAPVALUES
    mapper: Callable[[Any, Any], Any]

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return TableMapValues(self.mapper, only(stores), self.caching, self.send_old)


@dataclass(frozen=True, slots=True)
class TransformValuesSpec(CachingTableSpec):
    """A table whose values a user's transformer computes. Its stores are the user's, then the optional one of the rows.

    Attributes:
        supplier: Makes a new transformer on each call.
        user_stores: The stores that the transformer uses.
    """

    kind = NodeKind.KTABLE_TRANSFORMVALUES
    supplier: Callable[[], ValueTransformer]
    user_stores: tuple[str, ...]

    # The transformer's context has the stream time.
    sees_stream_time = True

    single = "calls a transformer for each update"

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True if the transformer has stores, because nobody knows what it writes there."""
        return bool(self.user_stores)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return TableTransformValues(self.supplier, only(stores[len(self.user_stores) :]), self.caching, self.send_old)


@dataclass(frozen=True, slots=True)
class GroupWindows:
    """The windows by which a table is grouped, if they close.

    Attributes:
        windows: The windows.
        keep_ms: How long after a window's end its rows are kept, ms.
    """

    windows: Windows
    keep_ms: int

    @property
    def parameters(self) -> Parameters:
        """The part of names: how late an update may be."""
        return (("grace_ms", self.windows.grace_ms),)


def windows_of(spec: NodeSpec) -> GroupingWindows | None:
    """The windows by which an operator aggregates; None if there are none."""
    if isinstance(spec, TableAggregateSpec | TableTopSpec):
        return None if spec.groups is None else spec.groups.windows
    return spec.windows if isinstance(spec, AggregationSpec) else None


@dataclass(frozen=True, slots=True)
class TableAggregateSpec(CachingTableSpec):
    """An aggregation of a grouped table. Its stores are the aggregates and, if the groups are windows, the index of windows.

    Attributes:
        kind: Whether it is a reduction.
        initializer: `() -> aggregate`; None for a reduction, whose first value becomes the first aggregate.
        adder: `(key, value, aggregate) -> aggregate`, for a value that is added.
        subtractor: `(key, value, aggregate) -> aggregate`, for a value that is removed.
        groups: The windows, if the groups are windows.
    """

    kind: NodeKind = field()
    initializer: Callable[[], Any] | None
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    groups: GroupWindows | None = field(default=None, kw_only=True)
    counts_updates = True

    @property
    def parameters(self) -> Parameters:
        return () if self.groups is None else self.groups.parameters

    def forwards_at_end(self, stores: tuple[str, ...]) -> bool:
        return self.caching

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        functions = (self.initializer, self.adder, self.subtractor, self.caching, self.send_old)
        if self.groups is None:
            (aggregates,) = stores
            return TableAggregate(aggregates, *functions)
        aggregates, index = stores
        return WindowGroupAggregate(aggregates, index, self.groups.windows.grace_ms, self.groups.keep_ms, *functions)


@dataclass(frozen=True, slots=True)
class TableTopSpec(CachingTableSpec):
    """The best rows of each group. Its stores are the lists, all rows by rank and, if the groups are windows, the index of windows.

    Attributes:
        n: How many rows.
        largest: Whether the largest score is the best.
        score: `(value) -> score`.
        key_serde: The serde of the groups' keys.
        row_serde: The serde of the rows' values.
        ties: Whether the list also has the rows that are equal to the n-th.
        groups: The windows, if the groups are windows.
    """

    kind = NodeKind.KTABLE_TOP
    counts_updates = True
    n: int
    largest: bool
    score: Callable[[Any], Any]
    key_serde: Serde
    row_serde: Serde
    ties: bool = False
    groups: GroupWindows | None = field(default=None, kw_only=True)

    @property
    def parameters(self) -> Parameters:
        more: Parameters = (("ties", True),) if self.ties else ()
        return (("n", self.n), ("largest", self.largest), *more, *(self.groups.parameters if self.groups else ()))

    single = "each update finds its place among the rows of its group"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        others = (
            self.key_serde,
            self.row_serde,
            self.n,
            self.score,
            self.largest,
            self.ties,
            self.caching,
            self.send_old,
        )
        if self.groups is None:
            lists, rows = stores
            return TableTop(lists, rows, *others)
        lists, rows, index = stores
        return WindowGroupTop(lists, rows, index, self.groups.windows.grace_ms, self.groups.keep_ms, *others)


@dataclass(frozen=True, slots=True)
class SuppressSpec(TableSpec):
    """Delays updates of a table. Its stores are the updates by place and, unless places follow from keys, the places.

    Example: with a time limit of 10 ms, updates of key a at 1 and 4 are held back, and only the second one is forwarded, when
    stream time reaches 11. In windows that close, an update waits for its window's end and grace.

    Attributes:
        rules: How long to delay updates.
        key_serde: The serde of the table's keys.
        value_serde: The serde of its values.
    """

    kind = NodeKind.KTABLE_SUPPRESS
    rules: SuppressRules
    key_serde: Serde
    value_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The rules: until when updates are delayed."""
        return (("until", "window_closes" if self.rules.by_window else "time_limit"), ("ms", self.rules.wait_ms))

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over both stores. There is no second one if updates are placed by their windows."""
        buffer, *places = stores
        return Suppress(
            buffer, places[0] if places else None, self.key_serde, self.value_serde, self.rules, self.send_old
        )


@dataclass(frozen=True)
class SuppressValueGetter:
    """A suppressed table as other operators see it: as last emitted.

    Attributes:
        parent: The table above.
        buffer: The store of the buffered updates.
        places: The store of their places; None: these follow from the keys.
        key_serde: The serde of the table's keys.
        value_serde: The serde of its values.
    """

    parent: ValueGetter
    buffer: str
    places: str | None
    key_serde: Serde
    value_serde: Serde

    @property
    def stores(self) -> tuple[str, ...]:
        own = (self.buffer,) if self.places is None else (self.buffer, self.places)
        return (*self.parent.stores, *own)

    reads_each = True

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        above = self.parent.open(ctx, forwarded)
        return rows_as_emitted(ctx, above, self.buffer, self.places, self.key_serde, self.value_serde)

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        raise NotImplementedError("the buffer is looked up key by key")
