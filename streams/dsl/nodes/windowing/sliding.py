"""Sliding windows (KIP-450)."""

from __future__ import annotations

from functools import partial

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.windowing.kind import Supplier, WindowKind, kind_of, own_class, segmented_store
from streams.dsl.options import Materialized
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.columns.sliding_columns import SlidingColumnAggregate
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.sliding_aggregate import SlidingAggregate
from streams.serdes.base import Serde
from streams.serdes.windowed import TimeWindowedSerde
from streams.topology.specs.base import Parameters


@kind_of.register(SlidingWindows)
class Sliding(WindowKind[SlidingWindows]):
    """`SlidingWindows`."""

    @property
    def parameters(self) -> Parameters:
        """Time difference and grace."""
        return (("difference_ms", self.windows.difference_ms), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        """Key and start; all windows are of one size."""
        return TimeWindowedSerde(inner, self.windows.difference_ms)

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A window store, in which a record in time may read windows that begin up to two differences before it."""
        difference, grace_ms = self.windows.difference_ms, self.windows.grace_ms
        why = f"twice their time difference plus grace, 2 * {difference} + {grace_ms} ms"
        needed_ms, kept_ms = 2 * difference + grace_ms, 3 * difference + grace_ms
        return segmented_store(name, StoreKind.TIMESTAMPED_WINDOW, how, needed_ms, why, kept_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """One operator for both ways of emitting."""
        return partial(SlidingAggregate, store, self.windows, functions, open_store, caching=how.caching)

    def by_record(self, fields: FieldAggregates) -> str | None:
        """Built-in aggregates take columns."""
        return own_class(fields)

    def column_operator(self, fields: FieldAggregates, store: str, how: Materialized) -> Supplier:
        """Windows are filled in columns."""
        return partial(SlidingColumnAggregate, store, self.windows, fields, caching=how.caching)
