"""The operators by their names, for the specs of a topology. Each is imported when a task makes the first one of its kind.

A spec has what planning needs, and names what processes records. So a command that only inspects a topology imports neither the
libraries of columns nor the compiled functions, which would take most of a second. For type checkers, the names are the classes
themselves. At run time, each is a `Late`, which is called like the class and pickled as the class.
"""

# ruff: noqa: PLC0414 - names that others import from here
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streams.operators.aggregate.aggregates import StreamAggregate as StreamAggregate
    from streams.operators.aggregate.aggregates import WindowAggregate as WindowAggregate
    from streams.operators.aggregate.aggregates import WindowAggregateOnClose as WindowAggregateOnClose
    from streams.operators.aggregate.column_aggregate import StreamColumnAggregate as StreamColumnAggregate
    from streams.operators.aggregate.column_aggregate import WindowColumnAggregate as WindowColumnAggregate
    from streams.operators.aggregate.column_aggregate import (
        WindowColumnAggregateOnClose as WindowColumnAggregateOnClose,
    )
    from streams.operators.aggregate.deduplicate import Deduplicate as Deduplicate
    from streams.operators.aggregate.distinct import StreamDistinctAggregate as StreamDistinctAggregate
    from streams.operators.aggregate.distinct import WindowDistinctAggregate as WindowDistinctAggregate
    from streams.operators.aggregate.distinct import WindowDistinctAggregateOnClose as WindowDistinctAggregateOnClose
    from streams.operators.aggregate.session_aggregate import SessionAggregate as SessionAggregate
    from streams.operators.aggregate.sliding_aggregate import SlidingAggregate as SlidingAggregate
    from streams.operators.aggregate.top_columns import StreamTop as StreamTop
    from streams.operators.aggregate.top_columns import WindowTop as WindowTop
    from streams.operators.enrich import Enrich as Enrich
    from streams.operators.join.as_of import AsOfJoin as AsOfJoin
    from streams.operators.join.foreign_key import ForeignKeyResult as ForeignKeyResult
    from streams.operators.join.foreign_key import ForeignKeySubscribe as ForeignKeySubscribe
    from streams.operators.join.foreign_key import ForeignKeySubscriptions as ForeignKeySubscriptions
    from streams.operators.join.foreign_key import ForeignKeyUpdate as ForeignKeyUpdate
    from streams.operators.join.join_all import StreamJoinAll as StreamJoinAll
    from streams.operators.join.stream_join import StreamSelfJoin as StreamSelfJoin
    from streams.operators.join.stream_join import StreamStreamJoin as StreamStreamJoin
    from streams.operators.join.stream_table_join import GraceTableJoin as GraceTableJoin
    from streams.operators.join.stream_table_join import StreamGlobalJoin as StreamGlobalJoin
    from streams.operators.join.stream_table_join import StreamTableJoin as StreamTableJoin
    from streams.operators.join.table_table_join import TableJoinMerge as TableJoinMerge
    from streams.operators.join.table_table_join import TableTableJoin as TableTableJoin
    from streams.operators.process.user_processor import FixedKeyProcessor as FixedKeyProcessor
    from streams.operators.process.user_processor import UserProcessor as UserProcessor
    from streams.operators.process.wrapping import wrapped as wrapped
    from streams.operators.retry import Retrying as Retrying
    from streams.operators.retry import RetryRoute as RetryRoute
    from streams.operators.stateless import Branch as Branch
    from streams.operators.stateless import Filter as Filter
    from streams.operators.stateless import FlatMap as FlatMap
    from streams.operators.stateless import FlatMapValues as FlatMapValues
    from streams.operators.stateless import Map as Map
    from streams.operators.stateless import MapValues as MapValues
    from streams.operators.stateless import PassThrough as PassThrough
    from streams.operators.stateless import Peek as Peek
    from streams.operators.stateless import SelectKey as SelectKey
    from streams.operators.stateless import ToRows as ToRows
    from streams.operators.table.suppress import Suppress as Suppress
    from streams.operators.table.suppress import rows_as_emitted as rows_as_emitted
    from streams.operators.table.table_aggregate import TableAggregate as TableAggregate
    from streams.operators.table.table_aggregate import TableGroupBy as TableGroupBy
    from streams.operators.table.table_aggregate import TableRanks as TableRanks
    from streams.operators.table.table_aggregate import TableTop as TableTop
    from streams.operators.table.table_steps import ExpiringTable as ExpiringTable
    from streams.operators.table.table_steps import TableFilter as TableFilter
    from streams.operators.table.table_steps import TableMapValues as TableMapValues
    from streams.operators.table.table_steps import TableSource as TableSource
    from streams.operators.table.table_steps import TableToStream as TableToStream
    from streams.operators.table.table_steps import TableTransformValues as TableTransformValues
    from streams.operators.table.window_groups import WindowGroupAggregate as WindowGroupAggregate
    from streams.operators.table.window_groups import WindowGroupTop as WindowGroupTop

NAMES: Final = {
    "aggregate.aggregates": "StreamAggregate WindowAggregate WindowAggregateOnClose",
    "aggregate.column_aggregate": "StreamColumnAggregate WindowColumnAggregate WindowColumnAggregateOnClose",
    "aggregate.deduplicate": "Deduplicate",
    "aggregate.distinct": "StreamDistinctAggregate WindowDistinctAggregate WindowDistinctAggregateOnClose",
    "aggregate.session_aggregate": "SessionAggregate",
    "aggregate.sliding_aggregate": "SlidingAggregate",
    "aggregate.top_columns": "StreamTop WindowTop",
    "enrich": "Enrich",
    "join.as_of": "AsOfJoin",
    "join.foreign_key": "ForeignKeyResult ForeignKeySubscribe ForeignKeySubscriptions ForeignKeyUpdate",
    "join.join_all": "StreamJoinAll",
    "join.stream_join": "StreamSelfJoin StreamStreamJoin",
    "join.stream_table_join": "GraceTableJoin StreamGlobalJoin StreamTableJoin",
    "join.table_table_join": "TableJoinMerge TableTableJoin",
    "process.user_processor": "FixedKeyProcessor UserProcessor",
    "process.wrapping": "wrapped",
    "retry": "RetryRoute Retrying",
    "stateless": "Branch Filter FlatMap FlatMapValues Map MapValues PassThrough Peek SelectKey ToRows",
    "table.suppress": "Suppress rows_as_emitted",
    "table.table_aggregate": "TableAggregate TableGroupBy TableRanks TableTop",
    "table.table_steps": "ExpiringTable TableFilter TableMapValues TableSource TableToStream TableTransformValues",
    "table.window_groups": "WindowGroupAggregate WindowGroupTop",
}
"""Module of `streams.operators` -> the names above that it defines."""


class Late:
    """A class or a function that is imported when it is first called.

    Attributes:
        module, name: The module that defines it, and its name.
    """

    __slots__ = ("_found", "module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._found: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._found = self._found or _of(self.module, self.name)
        return found(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        return _of, (self.module, self.name)

    def __repr__(self) -> str:
        return f"<{self.module}.{self.name}, imported when it is called>"


def import_all() -> None:
    """Imports all operators, before a process forks whose children make some of them."""
    for module in NAMES:
        importlib.import_module(f"streams.operators.{module}")


def _of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


if not TYPE_CHECKING:
    globals().update(
        {name: Late(f"streams.operators.{module}", name) for module, names in NAMES.items() for name in names.split()}
    )
