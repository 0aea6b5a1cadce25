"""What the kinds of windows mean for an aggregation: its parameters, stores, key serde and operator.

Built-in aggregates work on columns in tumbling and hopping windows that emit updates (and without windows); everywhere
else they are functions like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.aggregating import Aggregation
from streams.model.custom_windows import UnlimitedWindows, Windows
from streams.dsl.build.graph_builder import GraphBuilder
from streams.dsl.build.materialize import key_value_store, session_store, window_store
from streams.dsl.options import Materialized
from streams.model.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from streams.errors import TopologyError
from streams.operators.aggregate.stream_aggregate import StreamAggregate
from streams.operators.aggregate.columns.built_in import BuiltIn
from streams.operators.processor import Processor
from streams.operators.aggregate.session_aggregate import SessionAggregate
from streams.operators.aggregate.sliding_aggregate import SlidingAggregate
from streams.operators.aggregate.window_aggregate import WindowAggregate
from streams.operators.aggregate.emit_on_close import WindowAggregateOnClose
from streams.serdes.base import Serde
from streams.serdes.primitives import BytesSerde
from streams.serdes.windowed import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde
from streams.topology.graph import Parameters

AnyWindows: TypeAlias = TimeWindows | Windows | SlidingWindows | SessionWindows
Supplier: TypeAlias = Callable[..., Processor]

_ON_UPDATE = EmitStrategy.on_window_update()


@dataclass(frozen=True)
class Windowing:
    """Windows, and when their results are emitted; None: no windows."""

    windows: AnyWindows | None = None
    emit: EmitStrategy = _ON_UPDATE

    def __post_init__(self) -> None:
        if self.emit.on_close and isinstance(self.windows, UnlimitedWindows):
            raise TopologyError("UnlimitedWindows never close, so nothing would ever be emitted on close.")

    @property
    def on_columns(self) -> bool:
        """Whether built-in aggregates work on columns."""
        return self.windows is None or (isinstance(self.windows, TimeWindows) and not self.emit.on_close)

    @property
    def parameters(self) -> Parameters:
        """What names and the topology hash know of it."""
        windows = self.windows
        if windows is None:
            return ()
        sizes: Parameters
        if isinstance(windows, TimeWindows):
            sizes = (("size_ms", windows.size_ms), ("advance_ms", windows.advance_ms))
        elif isinstance(windows, SlidingWindows):
            sizes = (("difference_ms", windows.difference_ms),)
        elif isinstance(windows, SessionWindows):
            sizes = (("gap_ms", windows.gap_ms),)
        else:
            sizes = (("windows", _stable_repr(windows)),)
        closes: Parameters = (("emit", "on_close"),) if self.emit.on_close else ()
        return (*sizes, ("grace_ms", windows.grace_ms), *closes)

    def key_serde(self, inner: Serde) -> Serde:
        """The serde of the results' keys."""
        windows = self.windows
        if windows is None:
            return inner
        if isinstance(windows, SessionWindows):
            return SessionWindowedSerde(inner)
        if isinstance(windows, SlidingWindows):
            return TimeWindowedSerde(inner, windows.difference_ms)
        if isinstance(windows, TimeWindows):
            return TimeWindowedSerde(inner, windows.size_ms)
        return CustomWindowedSerde(inner, windows)

    def add_stores(
        self, graph: GraphBuilder, name: str, how: Materialized, key_serde: Serde, value_serde: Serde
    ) -> tuple[str, ...]:
        """Adds the store of the results and, for emission on close, the index of open windows; gives their names."""
        windows = self.windows
        if windows is None:
            return (graph.store(key_value_store(name, how), key_serde, value_serde),)
        spec = (
            session_store(name, how, windows)
            if isinstance(windows, SessionWindows)
            else window_store(name, how, windows)
        )
        stores = (graph.store(spec, key_serde, value_serde),)
        if not self.emit.on_close:
            return stores
        index = StoreSpec(f"{name}-open", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)
        return (*stores, graph.store(index, BytesSerde(), BytesSerde()))

    def supplier(self, what: Aggregation, stores: tuple[str, ...], how: Materialized) -> Supplier:
        """What makes the operator; it also takes ``send_old``."""
        windows, caching = self.windows, how.caching
        if what.built_in and self.on_columns:
            # Brings numba along, which takes longer to import than all the rest of the DSL.
            from streams.operators.aggregate.columns.column_aggregate import ColumnAggregate

            assert windows is None or isinstance(windows, TimeWindows), "only those work on columns"
            return partial(ColumnAggregate, stores[0], what.built_in, windows, caching=caching, bare=what.bare)
        what = _by_functions(what)
        assert what.aggregator is not None, "built-in aggregates are functions by now"
        functions = (what.initializer, what.aggregator)
        if windows is None:
            return partial(StreamAggregate, stores[0], *functions, caching=caching)
        view, opened = what.result, stores[1] if self.emit.on_close else None
        if isinstance(windows, SessionWindows):
            assert what.merger is not None, "sessions are aggregated with a merger"
            return partial(
                SessionAggregate,
                stores[0],
                windows,
                *functions,
                what.merger,
                open_store=opened,
                view=view,
                caching=caching,
                asked_for_retention=how.retention is not None,
            )
        if isinstance(windows, SlidingWindows):
            return partial(
                SlidingAggregate, stores[0], windows, *functions, open_store=opened, view=view, caching=caching
            )
        if opened is not None:
            return partial(WindowAggregateOnClose, stores[0], opened, windows, *functions, view=view, caching=caching)
        return partial(WindowAggregate, stores[0], windows, *functions, view=view, caching=caching)


def _by_functions(what: Aggregation) -> Aggregation:
    """The aggregation with functions in place of built-in aggregates."""
    if not what.built_in:
        return what
    built_in = BuiltIn(what.built_in, what.bare)
    return replace(
        what,
        initializer=built_in.initial,
        aggregator=built_in.add,
        merger=built_in.merge,
        result=built_in.result,
    )


def _stable_repr(windows: Windows) -> str:
    """The text by which windows of one's own are known; a memory address in it would be another one at each start."""
    text = repr(windows)
    if " at 0x" in text:
        raise TopologyError(
            f"The windows {text} are known by a memory address, so no state would fit them at the next start: give "
            f"{type(windows).__qualname__} a __repr__ that says what makes them what they are; a frozen dataclass has one."
        )
    return text
