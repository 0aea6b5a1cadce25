"""What the aggregation of a grouped stream is, over all time or in windows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from streams.model.windows import GroupingWindows
from streams.operators.processor import AnyProcessor
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import CachingTableSpec, Parameters

if TYPE_CHECKING:
    from typing_extensions import Self


class AggregateOperator(Protocol):
    """Makes the operator of an aggregation, such as a `partial` of its class."""

    def __call__(self, *, caching: bool, send_old: bool) -> AnyProcessor:
        """A new operator."""


@dataclass(frozen=True, slots=True)
class AggregationSpec(CachingTableSpec):
    """An aggregation. Its stores: the results, and the index of open windows for results on close.

    Attributes:
        kind: The sort of aggregation.
        windows: The windows; None: over all time.
        parameters: How it is grouped, its windows, and its built-in aggregates.
        operator: Makes the operator.
        fields: The fields that it reads where it works on columns; None: it works on records.
    """

    kind: NodeKind = field()
    windows: GroupingWindows | None
    parameters: Parameters = field()
    operator: AggregateOperator
    fields: tuple[str, ...] | None = None

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the stores, whose names it has already."""
        return self.operator(caching=self.caching, send_old=self.send_old)

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields, with caching.

        Without a cache every update goes on at its place among the step's records, ahead of which columns are processed.
        """
        return self.fields if self.caching else None

    def by_record(self) -> Self:
        """The same, without columns."""
        return replace(self, fields=None)
