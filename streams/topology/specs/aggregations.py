"""The spec of aggregations of grouped streams, over all time or in windows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from streams.model.windows import GroupingWindows, Windows
from streams.operators.processor import AnyProcessor
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import ONE_BY_ONE, CachingTableSpec, Parameters

if TYPE_CHECKING:
    from typing_extensions import Self


FUNCTIONS: Final = (
    "aggregates with functions: built-in aggregates, such as agg.sum('n') or agg.max_by('name', by='n'), take columns"
)
OF_COGROUP: Final = "aggregates with functions, one for each stream of the cogroup"
RANKS: Final = "ranks whole values: for the best one alone, agg.max_by('name', by='n') takes columns"
_DISTINCT: Final = f"counts distinct values, each of which it looks up: {ONE_BY_ONE}"


class AggregateOperator(Protocol):
    """Makes the operator of an aggregation, such as a `partial` of its class."""

    def __call__(self, *, caching: bool, send_old: bool) -> AnyProcessor: ...


@dataclass(frozen=True, slots=True)
class AggregationSpec(CachingTableSpec):
    """An aggregation. Its stores are the results and, for results on close, the index of open windows.

    Attributes:
        windows: The windows; None: over all time.
        parameters: The grouping, windows and built-in aggregates.
        operator: Makes the operator.
        fields: The fields to read for an aggregation of columns, or the reason why records are aggregated one by one.
        distinct: Whether distinct values are counted. Of whole records, they are counted one by one.
    """

    kind: NodeKind = field()
    windows: GroupingWindows | None
    parameters: Parameters = field()
    operator: AggregateOperator
    fields: tuple[str, ...] | str = FUNCTIONS
    distinct: bool = False

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator. `operator` already contains the names of the stores."""
        return self.operator(caching=self.caching, send_old=self.send_old)

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True, because it adds each record that comes."""
        return True

    @property
    def late_after_ms(self) -> int | None:
        """The grace of windows that close."""
        return self.windows.grace_ms if self.windows is not None and self.windows.closes else None

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields, if there is a cache or if windows have one result, on close; otherwise None.

        Without a cache every update is forwarded with its record, and columns are folded all at once.
        """
        return None if isinstance(self.fields, str) or not (self.caching or self.on_close) else self.fields

    @property
    def takes_several(self) -> bool:
        """Over all time, and in windows that are identified by their start."""
        return self.windows is None or isinstance(self.windows, Windows)

    @property
    def single(self) -> str:
        """A reason if distinct values are counted without columns, or if a cogroup emits on close in windows with a start."""
        if self.distinct and self.projection is None:
            return _DISTINCT
        by_start = isinstance(self.windows, Windows)
        if self.kind is not NodeKind.COGROUPKSTREAM_AGGREGATE or not by_start or not self.on_close:
            return ""
        return "the streams of a cogroup close windows, each by its own stream time"

    @property
    def joint(self) -> bool:
        return self.kind is NodeKind.COGROUPKSTREAM_AGGREGATE and not self.single

    @property
    def on_close(self) -> bool:
        """Whether a window emits its result only when it closes."""
        return ("emit", "on_close") in self.parameters

    def forwards_at_end(self, stores: tuple[str, ...]) -> bool:
        """True with a cache, without windows or in windows identified by their start, unless results come when these close."""
        by_start = self.windows is None or isinstance(self.windows, Windows)
        return self.caching and by_start and not self.on_close

    @property
    def remark(self) -> str:
        """That whole records are taken one by one after all, where distinct values are counted."""
        return _DISTINCT if self.distinct else ""

    # Values are read while the functions run.
    takes_encoded = True

    @property
    def whole_records(self) -> str:
        """Why the aggregation does not read columns. If it could, why it gets whole records."""
        if isinstance(self.fields, str):
            return self.fields
        return (
            "gets whole records instead of columns"
            if self.caching or self.on_close
            else "emits every update (caching=False) with its record"
        )

    def by_record(self) -> Self:
        return replace(self, fields="something else takes its records one by one, too")
