"""What the nodes of joins are whose left side is a stream: with streams, tables and global tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.model.windows import JoinWindows
from streams.operators.join.as_of_join import AsOfJoin
from streams.operators.join.stream_join_all import StreamJoinAll
from streams.operators.join.stream_self_join import StreamSelfJoin
from streams.operators.join.stream_stream_join import StreamStreamJoin
from streams.operators.join.stream_table_join import GraceTableJoin, StreamGlobalJoin, StreamTableJoin
from streams.operators.processor import AnyProcessor
from streams.operators.table.value_getter import JoinKind, ValueGetter
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, Parameters


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """A join of two streams in time, whichever nodes it takes.

    Attributes:
        join_kind: Which side may be missing.
        windows: How far apart two records may be.
        joiner: `(key, left value, right value) -> value`.
        key_serde: Of the keys on both sides.
    """

    join_kind: JoinKind
    windows: JoinWindows
    joiner: Callable[[Any, Any, Any], Any]
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The windows, and the sort of join unless it is an inner one."""
        return (
            ("before_ms", self.windows.before_ms),
            ("after_ms", self.windows.after_ms),
            ("grace_ms", self.windows.grace_ms),
            *((("kind", self.join_kind),) if self.join_kind != "inner" else ()),
        )


@dataclass(frozen=True, slots=True)
class StreamJoinSpec(NodeSpec):
    """One side of a join of two streams. Its stores: the left side's, the right side's, and the outer join buffer.

    Attributes:
        join: What both sides have in common.
        is_left: Which side this is.
        state_name: Name of the state that both sides share.
    """

    join: StreamJoin
    is_left: bool
    state_name: str

    @property
    def kind(self) -> NodeKind:
        """By the side."""
        return NodeKind.KSTREAM_JOINTHIS if self.is_left else NodeKind.KSTREAM_JOINOTHER

    @property
    def parameters(self) -> Parameters:
        """Those of the join."""
        return self.join.parameters

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the stores of both sides; the third one is missing in an inner join."""
        left, right, *outer = stores
        join, windows = self.join, self.join.windows
        left_outer, right_outer = join.join_kind != "inner", join.join_kind == "outer"
        return StreamStreamJoin(
            this_store=left if self.is_left else right,
            other_store=right if self.is_left else left,
            state_name=self.state_name,
            before_ms=windows.before_ms,
            after_ms=windows.after_ms,
            grace_ms=windows.grace_ms,
            joiner=join.joiner,
            is_left=self.is_left,
            unjoined_store=outer[0] if outer else None,
            key_serde=join.key_serde,
            outer=left_outer if self.is_left else right_outer,
            other_outer=right_outer if self.is_left else left_outer,
        )


@dataclass(frozen=True, slots=True)
class StreamSelfJoinSpec(NodeSpec):
    """Both sides of a stream that is joined with itself. Its stores: that of the records, and the outer join buffer.

    Attributes:
        join: The join.
    """

    kind = NodeKind.KSTREAM_JOINTHIS
    join: StreamJoin

    @property
    def parameters(self) -> Parameters:
        """Those of the join."""
        return self.join.parameters

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the store; the second one is missing in an inner join."""
        records, *outer = stores
        join, windows = self.join, self.join.windows
        return StreamSelfJoin(
            records,
            windows.before_ms,
            windows.after_ms,
            windows.grace_ms,
            join.joiner,
            outer[0] if outer else None,
            join.key_serde,
            (join.join_kind == "outer", join.join_kind != "inner"),
        )


@dataclass(frozen=True, slots=True)
class JoinAll:
    """A join of several streams in time, whichever nodes it takes.

    Attributes:
        streams: Names of all the streams, in the order of the results.
        windows: How far apart records may be.
        joiner: `(key, {name of the stream: value}) -> value`.
    """

    streams: tuple[str, ...]
    windows: JoinWindows
    joiner: Callable[[Any, dict[str, Any]], Any]

    @property
    def parameters(self) -> Parameters:
        """The windows."""
        return (("difference_ms", self.windows.after_ms), ("grace_ms", self.windows.grace_ms))


@dataclass(frozen=True, slots=True)
class JoinAllSpec(NodeSpec):
    """One stream's side of a join of several. Its stores: one for each stream, in the order of the join's streams.

    Attributes:
        join: What all sides have in common.
        stream: Name of the stream whose side this is.
        state_name: Name of the state that all sides share.
    """

    kind = NodeKind.KSTREAM_JOINALL
    join: JoinAll
    stream: str
    state_name: str

    @property
    def parameters(self) -> Parameters:
        """Those of the join."""
        return self.join.parameters

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the stores of all streams."""
        join = self.join
        by_stream = dict(zip(join.streams, stores, strict=True))
        times = join.windows.after_ms, join.windows.grace_ms
        return StreamJoinAll(self.stream, by_stream, self.state_name, *times, join.joiner)


@dataclass(frozen=True, slots=True)
class AsOf:
    """A join of each left record with the newest right one that is not newer than itself, whichever nodes it takes.

    Attributes:
        within_ms: How much older the right record may be.
        grace_ms: How late a record may be.
        is_left_join: Whether a left record that finds nothing is joined with None.
        joiner: `(key, left value, right value) -> value`.
        key_serde: Of the keys on both sides.
    """

    within_ms: int
    grace_ms: int
    is_left_join: bool
    joiner: Callable[[Any, Any, Any], Any]
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The times, and the sort of join."""
        return (("within_ms", self.within_ms), ("grace_ms", self.grace_ms), ("left", self.is_left_join))


@dataclass(frozen=True, slots=True)
class AsOfJoinSpec(NodeSpec):
    """One side of an as-of join. Its stores: the right records, and the left ones that wait.

    Attributes:
        join: What both sides have in common.
        is_left: Which side this is.
        state_name: Name of the state that both sides share.
    """

    join: AsOf
    is_left: bool
    state_name: str

    @property
    def kind(self) -> NodeKind:
        """By the side."""
        return NodeKind.KSTREAM_ASOFTHIS if self.is_left else NodeKind.KSTREAM_ASOFOTHER

    @property
    def parameters(self) -> Parameters:
        """Those of the join."""
        return self.join.parameters

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over both stores."""
        right, waiting = stores
        join = self.join
        return AsOfJoin(
            right,
            waiting,
            join.key_serde,
            self.state_name,
            join.within_ms,
            join.grace_ms,
            join.joiner,
            is_left=self.is_left,
            left_join=join.is_left_join,
        )


@dataclass(frozen=True, slots=True)
class StreamTableJoinSpec(NodeSpec):
    """A stream that looks each record up in a table. Its stores: those of the table.

    Attributes:
        table: How the table is looked up.
        joiner: `(key, stream value, table value) -> value`.
        is_left_join: Whether a record that finds nothing is joined with None.
    """

    table: ValueGetter
    joiner: Callable[..., Any]
    is_left_join: bool

    @property
    def kind(self) -> NodeKind:
        """By whether a record that finds nothing gives a result."""
        return NodeKind.KSTREAM_LEFTJOIN if self.is_left_join else NodeKind.KSTREAM_JOIN

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator that opens the table's stores itself."""
        return StreamTableJoin(self.table, self.joiner, self.is_left_join)


@dataclass(frozen=True, slots=True)
class GraceTableJoinSpec(StreamTableJoinSpec):
    """The same, waiting for late updates of a versioned table. Its stores: those of the table, and the records that wait.

    Attributes:
        grace_ms: How long a record waits.
        key_serde: Of the keys of what waits.
    """

    grace_ms: int
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """How long records wait."""
        return (("grace_ms", self.grace_ms),)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the last of the stores, which opens the table's itself."""
        waiting = stores[-1]
        return GraceTableJoin(self.table, self.joiner, self.is_left_join, self.grace_ms, waiting, self.key_serde)


@dataclass(frozen=True, slots=True)
class GlobalTableJoinSpec(StreamTableJoinSpec):
    """The same with a global table, in which a key of the record's choice is looked up. It has no stores of its own.

    Attributes:
        selector: `(key, value) -> table key`.
    """

    selector: Callable[[Any, Any], Any]

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator that opens the global table itself."""
        return StreamGlobalJoin(self.table, self.joiner, self.is_left_join, self.selector)
