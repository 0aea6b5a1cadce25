"""Windows that are identified by their start: tumbling, hopping, calendar, unlimited and user-defined."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.windowing.kind import Supplier, WindowKind, kind_of, segmented_store
from streams.dsl.options import Materialized
from streams.errors import TopologyError
from streams.model.windows import TimeWindows, Windows
from streams.operators.aggregate.columns.column_aggregate import ColumnAggregate
from streams.operators.aggregate.emit_on_close import WindowAggregateOnClose
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.window_aggregate import WindowAggregate
from streams.serdes.base import Serde
from streams.serdes.windowed import CustomWindowedSerde, TimeWindowedSerde
from streams.topology.specs.base import Parameters

W = TypeVar("W", bound=Windows)


class _ByStart(WindowKind[W]):
    """The store and the operators of all windows that are identified by their start."""

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A window store, which retains a window for its size plus grace."""
        size_ms, grace_ms = self.windows.size_ms, self.windows.grace_ms
        why = f"their size plus grace, {size_ms} + {grace_ms} ms"
        return segmented_store(name, StoreKind.TIMESTAMPED_WINDOW, how, size_ms + grace_ms, why, size_ms + grace_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """One operator for each way of emitting."""
        operator = WindowAggregate if open_store is None else WindowAggregateOnClose
        return partial(operator, store, self.windows, functions, open_store, caching=how.caching)


@kind_of.register(TimeWindows)
class TumblingOrHopping(_ByStart[TimeWindows]):
    """`TimeWindows`, which have one size, so that a window's end need not be stored."""

    @property
    def parameters(self) -> Parameters:
        """Size, advance and grace."""
        return (
            ("size_ms", self.windows.size_ms),
            ("advance_ms", self.windows.advance_ms),
            ("grace_ms", self.windows.grace_ms),
        )

    def key_serde(self, inner: Serde) -> Serde:
        """Key and start."""
        return TimeWindowedSerde(inner, self.windows.size_ms)

    def by_record(self, fields: FieldAggregates) -> str | None:
        """They take columns."""
        return None

    def column_operator(self, fields: FieldAggregates, store: str, how: Materialized) -> Supplier:
        """Groups are folded in columns."""
        return partial(ColumnAggregate, store, fields.aggregates, self.windows, caching=how.caching, bare=fields.bare)


@kind_of.register(Windows)
class Custom(_ByStart[Windows]):
    """`CalendarWindows`, `UnlimitedWindows`, and user-defined classes, which compute the ends of their windows."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        missing = [name for name in ("size_ms", "grace_ms") if not hasattr(windows, name)]
        if missing:
            raise TopologyError(
                f"{type(windows).__qualname__} has no {' and no '.join(missing)}: windows of your own say their longest size "
                f"(size_ms) and how long they take late records (grace_ms), as attributes or properties."
            )

    @property
    def parameters(self) -> Parameters:
        """The windows' `repr` and grace; a memory address in the `repr` is refused, since it would change with each start."""
        text = repr(self.windows)
        if " at 0x" in text:
            raise TopologyError(
                f"The windows {text} are known by a memory address, so no state would fit them at the next start: give "
                f"{type(self.windows).__qualname__} a __repr__ that says what makes them what they are; a frozen dataclass has "
                f"one."
            )
        return (("windows", text), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        """Key and start; the windows give the end."""
        return CustomWindowedSerde(inner, self.windows)
