"""The contract of a kind of windows, and the registry of kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import singledispatch
from typing import Any, Generic, TypeAlias, TypeVar

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.options import Materialized
from streams.errors import TopologyError
from streams.model.aggregates import BUILT_IN
from streams.model.windows import to_ms
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.processor import AnyProcessor
from streams.serdes.base import Serde
from streams.topology.specs.base import Parameters

Supplier: TypeAlias = Callable[..., AnyProcessor]
"""Makes an operator; it also takes `send_old` and `caching`."""

W = TypeVar("W")


class WindowKind(ABC, Generic[W]):
    """How an aggregation in a kind of windows is stored and computed.

    Args:
        windows: The windows.
    """

    def __init__(self, windows: W) -> None:
        self.windows = windows

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The windows' parameters in names and in the topology hash."""

    @abstractmethod
    def key_serde(self, inner: Serde) -> Serde:
        """The serde of the results' keys; `inner` is that of the records' keys."""

    @abstractmethod
    def store(self, name: str, how: Materialized) -> StoreSpec:
        """The store of the results. Raises `TopologyError` if it would forget windows that are still open."""

    @abstractmethod
    def operator(
        self, functions: AggregationFunctions, store: str, open_store: str | None, how: Materialized
    ) -> Supplier:
        """The function that makes the operator.

        Args:
            functions: The functions of the aggregation.
            store: The name of the store of the results.
            open_store: The name of the index of open windows, for emission on close; None: results are emitted with every update.
            how: The user's options.
        """

    def by_record(self, fields: FieldAggregates) -> str | None:
        """Why built-in aggregates take whole records, one by one; None if they take columns.

        Args:
            fields: The aggregates.
        """
        return "has windows of a class that computes their bounds for one record at a time"

    def column_operator(self, fields: FieldAggregates, store: str, how: Materialized) -> Supplier:
        """The function that makes the operator of built-in aggregates that take columns; it takes records, too.

        Args:
            fields: The aggregates.
            store: The name of the store of the results.
            how: The user's options.
        """
        raise NotImplementedError


@singledispatch
def kind_of(windows: object) -> WindowKind[Any]:
    """The kind of the windows.

    Raises:
        TopologyError: The argument is not a definition of windows.
    """
    raise TopologyError(
        f"windowed_by takes TimeWindows, SlidingWindows, SessionWindows, CalendarWindows, UnlimitedWindows or Windows of "
        f"your own, not {type(windows).__name__}."
    )


def segmented_store(name: str, kind: StoreKind, how: Materialized, needed_ms: int, why: str, kept_ms: int) -> StoreSpec:
    """The specification of a store of windows.

    Args:
        name: The store's name.
        kind: The store's kind.
        how: The user's options, whose retention overrides `kept_ms`.
        needed_ms: The smallest retention that keeps all open windows, ms.
        why: The reason for `needed_ms`, for the error.
        kept_ms: The default retention, ms.

    Raises:
        TopologyError: The user's retention is too short.
    """
    retention = kept_ms if how.retention is None else to_ms(how.retention, "Retention")
    if retention < needed_ms:
        raise TopologyError(
            f"The store '{name}' must keep its windows for at least {why}, but its retention is {retention} ms: leave it "
            f"out, or give it more."
        )
    return StoreSpec(
        name,
        kind,
        retention_ms=retention,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
    )


def own_class(fields: FieldAggregates) -> str | None:
    """Why aggregates that are not all built in take whole records where accumulators are merged or copied; None if all are."""
    own = (one for one in fields.aggregates.values() if type(one) not in BUILT_IN)
    return next((f"has an aggregate of your own, {type(one).__name__}" for one in own), None)
