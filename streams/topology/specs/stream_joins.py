"""The specs of joins whose left side is a stream: with streams, tables and global tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.model.waiting import LEFT, RIGHT
from streams.operators.columnar import BatchProcessor
from streams.operators.join.as_of import AsOfJoin, AsOfJoinTogether
from streams.operators.join.columns.joined_objects import JoinedObjects
from streams.operators.join.columns.stream_join import StreamJoinTogether, StreamSelfJoinTogether
from streams.operators.join.join_all import StreamJoinAll, StreamJoinAllTogether
from streams.operators.join.stream_join import (
    AsOf,
    JoinAll,
    JoinSide,
    StreamJoin,
    StreamSelfJoin,
    StreamStreamJoin,
    joined_fields,
)
from streams.operators.join.stream_table_join import GraceTableJoin, StreamGlobalJoin, StreamTableJoin
from streams.operators.join.table_batches import TableBatches
from streams.operators.processor import AnyProcessor
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, Parameters


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
        return NodeKind.KSTREAM_JOINTHIS if self.is_left else NodeKind.KSTREAM_JOINOTHER

    @property
    def parameters(self) -> Parameters:
        return self.join.parameters

    @property
    def takes_null_keys(self) -> bool:
        return self.join.join_kind != "inner"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the stores of both sides; the third one is missing in an inner join."""
        left, right, *buffer = stores
        side, own, other = (LEFT, left, right) if self.is_left else (RIGHT, right, left)
        return StreamStreamJoin(self.join, JoinSide(side, own, other, self.state_name), *buffer)

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return StreamJoinTogether

    @property
    def takes_encoded(self) -> bool:
        """If results are made of the bytes of values."""
        return JoinedObjects.of(self.join.fields) is not None

    @property
    def reads(self) -> str:
        """Whether results are made of the bytes of values, and why not."""
        return _reads(self.join.joiner)


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
        return self.join.parameters

    @property
    def takes_null_keys(self) -> bool:
        return self.join.join_kind != "inner"

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return StreamSelfJoinTogether

    @property
    def takes_encoded(self) -> bool:
        """If results are made of the bytes of values."""
        return JoinedObjects.of(self.join.fields) is not None

    @property
    def reads(self) -> str:
        """Whether results are made of the bytes of values, and why not."""
        return _reads(self.join.joiner)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the store; the second one is missing in an inner join."""
        records, *buffer = stores
        return StreamSelfJoin(self.join, records, *buffer)


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
        return self.join.parameters

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return StreamJoinAllTogether

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the stores of all streams."""
        return StreamJoinAll(self.join, self.stream, stores, self.state_name)


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
        return NodeKind.KSTREAM_ASOFTHIS if self.is_left else NodeKind.KSTREAM_ASOFOTHER

    @property
    def parameters(self) -> Parameters:
        return self.join.parameters

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return AsOfJoinTogether

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        right, waiting = stores
        return AsOfJoin(self.join, self.is_left, right, waiting, self.state_name)


@dataclass(frozen=True, slots=True)
class StreamTableJoinSpec(NodeSpec):
    """A join that looks each record of a stream up in a table. Its stores: those of the table.

    Attributes:
        table: How to look rows of the table up.
        joiner: `(key, stream value, table value) -> value`.
        is_left_join: Whether a record without a match is joined with None.
    """

    table: ValueGetter
    joiner: Callable[..., Any]
    is_left_join: bool

    @property
    def kind(self) -> NodeKind:
        return NodeKind.KSTREAM_LEFTJOIN if self.is_left_join else NodeKind.KSTREAM_JOIN

    @property
    def takes_null_keys(self) -> bool:
        return self.is_left_join

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return TableBatches

    @property
    def takes_encoded(self) -> bool:
        """If results are made of the bytes of values."""
        return JoinedObjects.of(joined_fields(self.joiner)) is not None

    @property
    def reads(self) -> str:
        """Whether results are made of the bytes of values, and why not."""
        return _reads(self.joiner)

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
        return (("grace_ms", self.grace_ms),)

    @property
    def batches(self) -> type[BatchProcessor] | str:
        """No: each record may make others due."""
        return "records that wait for late updates of the table are joined as stream time moves"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the last of the stores, which opens the table's itself."""
        waiting = stores[-1]
        return GraceTableJoin(self.table, self.joiner, self.is_left_join, self.grace_ms, waiting, self.key_serde)


@dataclass(frozen=True, slots=True)
class GlobalTableJoinSpec(StreamTableJoinSpec):
    """The same with a global table, in which a selected key is looked up. It has no stores of its own.

    Attributes:
        selector: `(key, value) -> table key`.
    """

    selector: Callable[[Any, Any], Any]

    @property
    def takes_encoded(self) -> bool:
        return False

    @property
    def reads(self) -> str:
        return "the selector and the joiner take values"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator that opens the global table itself."""
        return StreamGlobalJoin(self.table, self.joiner, self.is_left_join, self.selector)


def _reads(joiner: Callable[..., Any]) -> str:
    selected = joined_fields(joiner)
    if selected is None:
        return "the joiner is a function, which takes values"
    return "the joiner computes fields" if JoinedObjects.of(selected) is None else "fields of JSON are copied as bytes"
