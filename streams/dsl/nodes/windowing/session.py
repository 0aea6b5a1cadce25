"""Sessions (KIP-94)."""

from __future__ import annotations

from functools import partial

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.windowing.kind import Supplier, WindowKind, kind_of, own_class, segmented_store
from streams.dsl.options import Materialized
from streams.model.windows import SessionWindows
from streams.operators.aggregate.columns.session_columns import SessionColumnAggregate
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.session_aggregate import SessionAggregate
from streams.serdes.base import Serde
from streams.serdes.windowed import SessionWindowedSerde
from streams.topology.specs.base import Parameters


@kind_of.register(SessionWindows)
class Session(WindowKind[SessionWindows]):
    """`SessionWindows`."""

    @property
    def parameters(self) -> Parameters:
        """Gap and grace."""
        return (("gap_ms", self.windows.gap_ms), ("grace_ms", self.windows.grace_ms))

    def key_serde(self, inner: Serde) -> Serde:
        """Key, end and start."""
        return SessionWindowedSerde(inner)

    def store(self, name: str, how: Materialized) -> StoreSpec:
        """A session store, which by default retains sessions for as long as they can change."""
        gap_ms, grace_ms = self.windows.gap_ms, self.windows.grace_ms
        why = f"their gap plus grace, {gap_ms} + {grace_ms} ms"
        return segmented_store(name, StoreKind.SESSION, how, gap_ms + grace_ms, why, gap_ms + grace_ms)

    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """One operator for both ways of emitting."""
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
        """Built-in aggregates take columns."""
        return own_class(fields)

    def column_operator(self, fields: FieldAggregates, store: str, how: Materialized) -> Supplier:
        """Sessions are merged in columns."""
        return partial(
            SessionColumnAggregate,
            store,
            self.windows,
            fields,
            caching=how.caching,
            asked_for_retention=how.retention is not None,
        )
