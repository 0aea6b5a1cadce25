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
RANKS_TEXTS: Final = (
    "ranks JSON texts by columns of scores: for the best one alone, agg.max_by('name', by='n') takes columns"
)
_DISTINCT: Final = f"counts distinct values, each of which it looks up: {ONE_BY_ONE}"


class AggregateOperator(Protocol):
    """Makes the operator of an aggregation. Usually it is a `partial` of the operator's class."""

    def __call__(self, *, caching: bool, send_old: bool) -> AnyProcessor: ...


@dataclass(frozen=True, slots=True)
class AggregationSpec(CachingTableSpec):
    """An aggregation. Its stores: the results and, if it emits on close, the index of open windows.

    Attributes:
        windows: The windows; None: over all time.
        parameters: The grouping, windows and built-in aggregates.
        operator: Makes the operator.
        fields: The fields that an aggregation of columns reads; or, as a text, why it does not read columns.
        distinct: Whether it counts distinct values. If it gets whole records, it counts these one by one.
    """

    kind: NodeKind = field()
    windows: GroupingWindows | None
    parameters: Parameters = field()
    operator: AggregateOperator
    fields: tuple[str, ...] | str = FUNCTIONS
    distinct: bool = False

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator. `self.operator` already knows the names of the stores."""
        return self.operator(caching=self.caching, send_old=self.send_old)

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True: the aggregation adds each record."""
        return True

    @property
    def late_after_ms(self) -> int | None:
        """The grace period of windows that close, ms; otherwise None."""
        return self.windows.grace_ms if self.windows is not None and self.windows.closes else None

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields, if the aggregation has a cache or emits on close; otherwise None.

        Columns are aggregated all at once, so they only have the last update of each group. Without a cache, every record's update
        is forwarded.
        """
        return None if isinstance(self.fields, str) or not (self.caching or self.on_close) else self.fields

    @property
    def takes_several(self) -> bool:
        """True over all time, and in windows that are identified by their start."""
        return self.windows is None or isinstance(self.windows, Windows)

    @property
    def single(self) -> str:
        """The reason, if distinct values are counted without columns, or a cogroup emits on close in windows with a start."""
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
        """True with a cache, over all time or in windows identified by their start, unless they emit on close."""
        by_start = self.windows is None or isinstance(self.windows, Windows)
        return self.caching and by_start and not self.on_close

    @property
    def remark(self) -> str:
        """For counts of distinct values: if the aggregation gets whole records after all, it takes them one by one."""
        return _DISTINCT if self.distinct else ""

    # Values are decoded while the functions run.
    takes_encoded = True

    @property
    def whole_records(self) -> str:
        """Why the aggregation cannot read columns; or, if it could, why it gets whole records."""
        if isinstance(self.fields, str):
            return self.fields
        return (
            "gets whole records instead of columns"
            if self.caching or self.on_close
            else "emits every update (caching=False) with its record"
        )

    def by_record(self) -> Self:
        return replace(self, fields="something else takes its records one by one, too")
