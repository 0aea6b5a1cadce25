"""No windows: one aggregate for each key, over all time."""

from __future__ import annotations

from functools import partial

from state.stores.spec import StoreSpec
from streams.dsl.nodes.materialize import key_value_store
from streams.dsl.nodes.windowing.kind import Supplier, WindowKind
from streams.dsl.options import Materialized
from streams.operators.aggregate.columns.column_aggregate import ColumnAggregate
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.stream_aggregate import StreamAggregate
from streams.serdes.base import Serde
from streams.topology.specs.base import Parameters


class Undivided(WindowKind[None]):
    """A group that is not divided into windows."""

    @property
    def parameters(self) -> Parameters:
        """None."""
        return ()

    def key_serde(self, inner: Serde) -> Serde:
        """The records' own."""
        return inner

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A table's store."""
        return key_value_store(name, how)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """Every update is a result; nothing closes."""
        return partial(StreamAggregate, store, functions, caching=how.caching)

    def by_record(self, fields: FieldAggregates) -> str | None:
        """They take columns."""
        return None

    def column_operator(self, fields: FieldAggregates, store: str, how: Materialized) -> Supplier:
        """Groups are folded in columns."""
        return partial(ColumnAggregate, store, fields.aggregates, self.windows, caching=how.caching, bare=fields.bare)
