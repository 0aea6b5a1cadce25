"""What an aggregation of grouped streams computes (`Aggregation`), and how each kind of windows stores and computes it.

To add a kind of windows, define a class in `streams.model`, and register a `WindowKind` with `kind_of` here. It provides the
parameters in names and in the topology hash, the store, the serde of the keys, and the operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.dsl.nodes.inferred_types import Type, check_aggregate
from streams.dsl.nodes.stores import key_value_store, store_spec
from streams.dsl.options import Materialized
from streams.errors import TopologyError
from streams.model.agg import BUILT_IN, agg
from streams.model.aggregates import Aggregate, CountDistinct
from streams.model.windows import (
    CalendarWindows,
    EmitStrategy,
    GroupingWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
    to_ms,
)
from streams.operators.aggregate.functions import AggregationFunctions, FieldAggregates
from streams.operators.aggregate.top import ranks_columns
from streams.operators.late import (
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    StreamColumnAggregate,
    StreamDistinctAggregate,
    StreamTop,
    WindowAggregate,
    WindowAggregateOnClose,
    WindowColumnAggregate,
    WindowColumnAggregateOnClose,
    WindowDistinctAggregate,
    WindowDistinctAggregateOnClose,
    WindowTop,
)
from streams.operators.processor import AnyProcessor
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.aggregations import FUNCTIONS, RANKS_TEXTS
from streams.topology.specs.base import Parameters

_WITHOUT_FIELDS = frozenset(
    {
        BooleanSerde,
        BytesSerde,
        Float32Serde,
        Float64Serde,
        Int16Serde,
        Int32Serde,
        Int64Serde,
        StringSerde,
        UuidSerde,
        VoidSerde,
    }
)
"""Serdes whose values have no fields. Subclasses do not count, because their values may have fields."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What to compute for each group.

    Attributes:
        functions: The functions that aggregate record by record.
        fields: The built-in aggregates of fields that `functions` implement; None: the functions are the user's.
        value_serde: The serde of the result, if it does not depend on the user; None: the serde of `Materialized`.
        value_type: The type of the result, according to the user's functions; None: unknown.
        keeps_type: Whether the result has the stream's type (reductions).
        whole: If `fields` is None, the reason why the aggregation takes whole records.
    """

    kind: NodeKind
    functions: AggregationFunctions
    fields: FieldAggregates | None = None
    value_serde: Serde | None = None
    value_type: Type = None
    keeps_type: bool = False
    whole: str = FUNCTIONS

    @property
    def parameters(self) -> Parameters:
        """The parameters that are part of the topology hash."""
        if self.fields is None or self.fields.bare:
            return ()
        return tuple((f"agg:{name}", one.identity) for name, one in self.fields.aggregates.items())

    @property
    def counts_distinct(self) -> bool:
        """Whether it counts distinct values, which need their own store."""
        return self.fields is not None and any(
            isinstance(one, CountDistinct) for one in self.fields.aggregates.values()
        )

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields of a value that the aggregation needs; None: the whole value."""
        if self.fields is None:
            return None
        return tuple(dict.fromkeys(path for one in self.fields.aggregates.values() for path in one.paths))

    @property
    def view(self) -> Callable[[Any], Any] | None:
        """Converts the values in the store to the table's values; None: they are equal."""
        return None if self.fields is None or self.fields.bare else self.fields.result

    def check_values(self, node: str, serde: Serde | None) -> None:
        """Raises `TopologyError` if values of `node` are known not to have the fields, or if the fields cannot be aggregated."""
        if self.fields is not None:
            for one in self.fields.aggregates.values():
                check_aggregate(one, node, serde)
        if self.projection and type(serde) in _WITHOUT_FIELDS:
            field, name = self.projection[0], type(serde).__name__
            raise TopologyError(
                f"An aggregate reads the field {field!r}, but the values of '{node}' are those of {name}, which have no "
                f"fields: read them with JsonSerde, or first turn each into a dict or an object with map_values(...)."
            )


def by_functions(
    kind: NodeKind,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    merger: Callable[[Any, Any, Any], Any] | None = None,
    value_type: Type = None,
) -> Aggregation:
    """An aggregation with the user's functions."""
    return Aggregation(kind, AggregationFunctions(aggregator, initializer, merger), value_type=value_type)


def reduction(reducer: Callable[[Any, Any, Any], Any], merger: Callable[[Any, Any, Any], Any]) -> Aggregation:
    """A reduction; the first value of a key is its first aggregate."""
    return Aggregation(NodeKind.KSTREAM_REDUCE, AggregationFunctions(reducer, None, merger), keeps_type=True)


def counting(value_serde: Serde) -> Aggregation:
    """Counts records; the table's value is the number itself."""
    return _of_fields({"count": agg.count()}, value_serde, bare=True)


def of_fields(aggregates: Mapping[str, Aggregate]) -> Aggregation:
    """An aggregation with built-in aggregates, by their names in the result. Raises `TopologyError` for anything else."""
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(
                f"aggregate({name}=...) takes a built-in aggregate such as agg.sum('field'), or an object of an Aggregate class of "
                f"yours, not {aggregate!r}."
            )
    return _of_fields(dict(aggregates), JsonSerde(), bare=False)


def _of_fields(aggregates: dict[str, Aggregate], value_serde: Serde, bare: bool) -> Aggregation:
    fields = FieldAggregates(aggregates, bare)
    functions = AggregationFunctions(fields.add, fields.initial, fields.merge, fields.result, built_in=True)
    return Aggregation(NodeKind.KSTREAM_AGGREGATE, functions, fields, value_serde)


# --- The aggregation in each kind of windows.

Supplier: TypeAlias = Callable[..., AnyProcessor]
"""Makes an operator. The call also takes `send_old` and `caching`."""

W = TypeVar("W")


class WindowKind(ABC, Generic[W]):
    """Stores and computes an aggregation in one kind of windows."""

    ranks_texts: ClassVar[bool] = False
    """Whether `top` ranks JSON texts by columns of their scores, unless results come on close."""

    def __init__(self, windows: W) -> None:
        self.windows = windows

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The windows' parameters in names and in the topology hash."""

    @abstractmethod
    def key_serde(self, inner: Serde) -> Serde:
        """The serde of the results' keys; `inner` is the serde of the records' keys."""

    @abstractmethod
    def store(self, name: str, how: Materialized) -> StoreSpec:
        """The store of the results. Raises `TopologyError` if it would delete windows that are still open."""

    @abstractmethod
    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """Makes the operator; `open_store` is the index of open windows, None if results are emitted with every update."""

    def by_record(self, fields: FieldAggregates) -> str | None:
        """The reason why built-in aggregates process whole records one by one; None if they process columns."""
        return None

    def column_operator(
        self, fields: FieldAggregates, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """Makes the operator for built-in aggregates that process columns; it accepts records, too."""
        raise NotImplementedError

    def seen_store(self, name: str, how: Materialized) -> StoreSpec:
        """The store of the values that `agg.count_distinct` has seen, for a store of results with this name.

        Raises:
            TopologyError: A value could enter or leave a window without a record, so these windows cannot count distinct values.
        """
        raise TopologyError(
            f"agg.count_distinct counts over all time, or in windows that are known before their records (TimeWindows, "
            f"CalendarWindows), not in {type(self.windows).__name__}, whose windows depend on the records: make the day or "
            f"hour part of the key, "
            f"as in group_by(fields('channel', day=col('at')[0:10])), or collect the values with an aggregate of your own."
        )

    def distinct_operator(
        self, fields: FieldAggregates, store: str, seen: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """Makes the operator for built-in aggregates that include `agg.count_distinct`."""
        raise NotImplementedError


@singledispatch
def kind_of(windows: object) -> WindowKind[Any]:
    """The `WindowKind` of windows. Raises `TopologyError` if the argument is not a definition of windows."""
    raise TopologyError(
        f"windowed_by takes TimeWindows, SlidingWindows, SessionWindows, CalendarWindows, UnlimitedWindows or Windows of "
        f"your own, not {type(windows).__name__}."
    )


def segmented_store(name: str, kind: StoreKind, how: Materialized, needed_ms: int, why: str, kept_ms: int) -> StoreSpec:
    """A store of windows. Raises `TopologyError` if the user's retention would delete windows that are still open.

    `needed_ms` is the smallest retention that keeps all open windows, `why` its reason, `kept_ms` the default retention.
    """
    retention = kept_ms if how.retention is None else to_ms(how.retention, "Retention")
    if retention < needed_ms:
        raise TopologyError(
            f"The store '{name}' must keep its windows for at least {why}, but its retention is {retention} ms: leave the "
            f"retention out, or make it longer."
        )
    return store_spec(name, kind, how, retention)


def own_class(fields: FieldAggregates) -> str | None:
    """Why aggregates process whole records although accumulators are merged or copied: one is user-defined; None: none is."""
    own = (one for one in fields.aggregates.values() if type(one) not in BUILT_IN)
    return next(
        (
            f"has an aggregate of your own, {type(one).__name__}: in sessions and sliding windows, built-in ones take columns"
            for one in own
        ),
        None,
    )


# --- No windows: one aggregate for each key, over all time.


class Unwindowed(WindowKind[None]):
    """A group that is not divided into windows."""

    ranks_texts = True

    @property
    def parameters(self) -> Parameters:
        return ()

    def key_serde(self, inner: Serde) -> Serde:
        return inner

    def store(self, name: str, how: Materialized) -> StoreSpec:
        return key_value_store(name, how)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        operator = StreamTop if ranks_columns(functions) else StreamAggregate
        return partial(operator, store, functions, caching=how.caching)

    def column_operator(
        self, fields: FieldAggregates, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(StreamColumnAggregate, store, fields, caching=how.caching)

    def seen_store(self, name: str, how: Materialized) -> StoreSpec:
        return StoreSpec(f"{name}-seen", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)

    def distinct_operator(
        self, fields: FieldAggregates, store: str, seen: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(StreamDistinctAggregate, store, seen, fields, caching=how.caching)


# --- Windows that are identified by their start: tumbling, hopping, calendar, unlimited and user-defined.

_OWN_WINDOWS: Final = (
    "has windows of a class that computes their bounds for one record at a time: with TimeWindows and CalendarWindows it "
    "takes columns"
)

WithStarts = TypeVar("WithStarts", bound=Windows)


class StartKeyedWindows(WindowKind[WithStarts]):
    """The store and the operators of all windows that are identified by their start."""

    ranks_texts = True

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A window store, which retains a window for its size plus grace."""
        size_ms, grace_ms = self.windows.size_ms, self.windows.grace_ms
        why = f"their size plus grace, {size_ms} + {grace_ms} ms"
        return segmented_store(name, StoreKind.TIMESTAMPED_WINDOW, how, size_ms + grace_ms, why, size_ms + grace_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        with_updates = WindowTop if ranks_columns(functions) else WindowAggregate
        operator = with_updates if open_store is None else WindowAggregateOnClose
        return partial(operator, store, self.windows, functions, open_store, caching=how.caching)

    def by_record(self, fields: FieldAggregates) -> str | None:
        known = type(self.windows) in (TimeWindows, CalendarWindows)
        return None if known else _OWN_WINDOWS

    def column_operator(
        self, fields: FieldAggregates, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        if open_store is not None:
            return partial(WindowColumnAggregateOnClose, store, self.windows, fields, open_store)
        return partial(WindowColumnAggregate, store, self.windows, fields, caching=how.caching)

    def seen_store(self, name: str, how: Materialized) -> StoreSpec:
        """A window store that deletes a window when the store of the results does."""
        retention_ms = self.store(name, how).retention_ms
        return store_spec(f"{name}-seen", StoreKind.WINDOW, how, retention_ms)

    def distinct_operator(
        self, fields: FieldAggregates, store: str, seen: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        operator = WindowDistinctAggregate if open_store is None else WindowDistinctAggregateOnClose
        return partial(operator, store, seen, self.windows, fields, open_store, caching=how.caching)


@kind_of.register(TimeWindows)
class TumblingOrHopping(StartKeyedWindows[TimeWindows]):
    """`TimeWindows`. They all have one size, so a window's end need not be stored."""

    @property
    def parameters(self) -> Parameters:
        return (
            ("size_ms", self.windows.size_ms),
            ("advance_ms", self.windows.advance_ms),
            ("grace_ms", self.windows.grace_ms),
        )

    def key_serde(self, inner: Serde) -> Serde:
        return TimeWindowedSerde(inner, self.windows.size_ms)


@kind_of.register(Windows)
class Custom(StartKeyedWindows[Windows]):
    """`CalendarWindows`, `UnlimitedWindows`, and user-defined classes, which compute the ends of their windows."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        missing = [name for name in ("size_ms", "grace_ms") if not hasattr(windows, name)]
        if missing:
            raise TopologyError(
                f"{type(windows).__qualname__} has no {' and no '.join(missing)}: windows of your own need their longest size "
                f"(size_ms) and how late records may be (grace_ms), as attributes or properties."
            )

    @property
    def parameters(self) -> Parameters:
        """The windows' `repr` and grace. Raises `TopologyError` if the `repr` has a memory address, which changes each start."""
        text = repr(self.windows)
        if " at 0x" in text:
            raise TopologyError(
                f"The windows {text} are identified by a memory address, which changes with every start, so that state would not "
                f"be found again: give {type(self.windows).__qualname__} a __repr__ of its settings; a frozen dataclass has one."
            )
        return (("windows", text), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        return CustomWindowedSerde(inner, self.windows)


# --- Sliding windows (KIP-450).


@kind_of.register(SlidingWindows)
class Sliding(WindowKind[SlidingWindows]):
    @property
    def parameters(self) -> Parameters:
        return (("difference_ms", self.windows.difference_ms), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        return TimeWindowedSerde(inner, self.windows.difference_ms)

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A window store. A record in time may read windows that begin up to two time differences before it."""
        difference, grace_ms = self.windows.difference_ms, self.windows.grace_ms
        why = f"twice their time difference plus grace, 2 * {difference} + {grace_ms} ms"
        needed_ms, kept_ms = 2 * difference + grace_ms, 3 * difference + grace_ms
        return segmented_store(name, StoreKind.TIMESTAMPED_WINDOW, how, needed_ms, why, kept_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(SlidingAggregate, store, self.windows, functions, open_store, caching=how.caching)

    def by_record(self, fields: FieldAggregates) -> str | None:
        return own_class(fields)

    def column_operator(
        self, fields: FieldAggregates, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(
            SlidingAggregate, store, self.windows, fields.functions, open_store, caching=how.caching, fields=fields
        )


# --- Sessions (KIP-94).


@kind_of.register(SessionWindows)
class Session(WindowKind[SessionWindows]):
    @property
    def parameters(self) -> Parameters:
        return (("gap_ms", self.windows.gap_ms), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        return SessionWindowedSerde(inner)

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A session store, which by default retains sessions as long as they can change."""
        gap_ms, grace_ms = self.windows.gap_ms, self.windows.grace_ms
        why = f"their gap plus grace, {gap_ms} + {grace_ms} ms"
        return segmented_store(name, StoreKind.SESSION, how, gap_ms + grace_ms, why, gap_ms + grace_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(
            SessionAggregate,
            store,
            self.windows,
            functions,
            open_store,
            caching=how.caching,
            asked_for_retention=how.retention is not None,
        )

    def by_record(self, fields: FieldAggregates) -> str | None:
        return own_class(fields)

    def column_operator(
        self, fields: FieldAggregates, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        return partial(
            SessionAggregate,
            store,
            self.windows,
            fields.functions,
            open_store,
            caching=how.caching,
            fields=fields,
            asked_for_retention=how.retention is not None,
        )


# --- The windows of an aggregation, if any, and when its results are emitted.
#
# Built-in aggregates of fields process whole columns if the windows allow it. Otherwise they process records one by one, as the
# user's functions do.

_ON_UPDATE = EmitStrategy.on_window_update()


@dataclass(frozen=True)
class Windowing:
    """The windows of an aggregation (None: over all time), and when results are emitted: on close, if the windows close."""

    windows: GroupingWindows | None
    emit: EmitStrategy = _ON_UPDATE
    kind: WindowKind[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Unwindowed(None) if self.windows is None else kind_of(self.windows))
        if self.emit.on_close and not (self.windows is not None and self.windows.closes):
            raise TopologyError(
                f"{type(self.windows).__name__} never close, so nothing would ever be emitted on close."
            )

    def columns(self, what: Aggregation) -> tuple[str, ...] | str:
        """The fields that the aggregation reads as columns, or the reason why it processes whole records one by one."""
        if self.kind.ranks_texts and not self.emit.on_close and ranks_columns(what.functions):
            return RANKS_TEXTS
        if what.fields is None or what.projection is None:
            return what.whole
        if any(one.gives_decimals for one in what.fields.aggregates.values()):
            return "aggregates Decimals, which columns do not hold: whole numbers, such as (price * 100).cast(int), are exact, too"
        return self.kind.by_record(what.fields) or what.projection

    @property
    def parameters(self) -> Parameters:
        """The parameters in names and in the topology hash."""
        closes: Parameters = (("emit", "on_close"),) if self.emit.on_close else ()
        return (*self.kind.parameters, *closes)

    def key_serde(self, inner: Serde) -> Serde:
        """The serde of the results' keys."""
        return self.kind.key_serde(inner)

    def add_stores(
        self, graph: GraphBuilder, name: str, how: Materialized, key_serde: Serde, value_serde: Serde
    ) -> tuple[str, ...]:
        """Adds the store of the results and, for emission on close, the index of open windows; returns their names."""
        store = graph.store(self.kind.store(name, how), key_serde, value_serde)
        if not self.emit.on_close:
            return (store,)
        index = StoreSpec(f"{name}-open", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)
        return store, graph.store(index, BytesSerde(), BytesSerde())

    def add_stores_of(
        self,
        graph: GraphBuilder,
        what: Aggregation,
        name: str,
        how: Materialized,
        key_serde: Serde,
        value_serde: Serde,
    ) -> tuple[str, ...]:
        """Calls `add_stores`, and adds a last store for distinct values if the aggregation counts them. Returns the names."""
        seen = self.kind.seen_store(name, how) if what.counts_distinct else None
        stores = self.add_stores(graph, name, how, key_serde, value_serde)
        return stores if seen is None else (*stores, graph.store(seen, BytesSerde(), JsonSerde()))

    def supplier(self, what: Aggregation, stores: tuple[str, ...], how: Materialized) -> Supplier:
        """Returns the function that makes the operator, which also takes `send_old` and `caching`."""
        open_store = stores[1] if self.emit.on_close else None
        if what.fields is not None and what.counts_distinct:
            return self.kind.distinct_operator(what.fields, stores[0], stores[-1], open_store, how)
        if what.fields is not None and not isinstance(self.columns(what), str):
            return self.kind.column_operator(what.fields, stores[0], open_store, how)
        return self.kind.operator(what.functions, stores[0], open_store, how)


def windowing_of(windows: GroupingWindows) -> Windowing:
    """The user's windows, with emission on every update. Raises `TopologyError` if they are not windows."""
    kind_of(windows)
    return Windowing(windows)


NO_WINDOWS: Final = Windowing(None)
