"""The specs of joins: streams with streams, tables and global tables, and tables with tables by key or by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from streams.model.expressions import Expression, ValueFields
from streams.model.record import LEFT, RIGHT
from streams.operators.join.joins import AsOf, JoinAll, JoinSide, StreamJoin, joined_fields
from streams.operators.join.taken_fields import parts_of
from streams.operators.late import (
    AsOfJoin,
    ForeignKeyResult,
    ForeignKeySubscribe,
    ForeignKeySubscriptions,
    ForeignKeyUpdate,
    GraceTableJoin,
    StreamGlobalJoin,
    StreamJoinAll,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoinMerge,
    TableSource,
    TableTableJoin,
)
from streams.operators.processor import AnyProcessor
from streams.operators.table.value_getter import JoinKind, ValueGetter
from streams.serdes.base import Serde
from streams.serdes.internal import CombinedKeySerde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import CachingTableSpec, NodeSpec, Parameters, TableSpec
from streams.topology.specs.streams import of_values
from streams.topology.specs.tables import only


@dataclass(frozen=True, slots=True)
class _StreamJoinSpec(NodeSpec):
    """What the nodes of a join of two streams have in common.

    Attributes:
        join: The kind of join, the windows, the joiner and the key serde.
    """

    join: StreamJoin

    @property
    def parameters(self) -> Parameters:
        return self.join.parameters

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True: the join keeps each record, and joins it with later ones."""
        return True

    @property
    def takes_null_keys(self) -> bool:
        return self.join.join_kind != "inner"

    @property
    def takes_encoded(self) -> bool:
        """True if results are copied from the bytes of values."""
        return self.gives_texts

    @property
    def gives_texts(self) -> bool:
        return parts_of(self.join.fields) is not None

    @property
    def remark(self) -> str:
        """Whether results are copied from the bytes of values. If not, why the joiner needs decoded values."""
        return _reads(self.join.joiner)


@dataclass(frozen=True, slots=True)
class StreamJoinSpec(_StreamJoinSpec):
    """One side of a join of two streams. Its stores: the left records, the right records and the outer join buffer.

    Attributes:
        is_left: Which side this is.
        state_name: Name of the state that both sides share.
    """

    is_left: bool
    state_name: str

    @property
    def kind(self) -> NodeKind:
        return NodeKind.KSTREAM_JOINTHIS if self.is_left else NodeKind.KSTREAM_JOINOTHER

    joint = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over the stores of both sides. An inner join has no third store."""
        left, right, *buffer = stores
        side, own, other = (LEFT, left, right) if self.is_left else (RIGHT, right, left)
        return StreamStreamJoin(self.join, JoinSide(side, own, other, self.state_name), *buffer)


@dataclass(frozen=True, slots=True)
class StreamSelfJoinSpec(_StreamJoinSpec):
    """Both sides of a stream that is joined with itself. Its stores: the records and the outer join buffer."""

    kind = NodeKind.KSTREAM_JOINTHIS

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over the stores. An inner join has no second store."""
        records, *buffer = stores
        return StreamSelfJoin(self.join, records, *buffer)


@dataclass(frozen=True, slots=True)
class JoinAllSpec(NodeSpec):
    """One stream's side of a join of several streams. It has a store for each stream, in the order of `join.streams`.

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

    joint = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return StreamJoinAll(self.join, self.stream, stores, self.state_name)

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True: the join keeps each record, and joins it with later ones."""
        return True


@dataclass(frozen=True, slots=True)
class AsOfJoinSpec(NodeSpec):
    """One side of an as-of join. Its stores: the right records, and the left records that wait.

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

    joint = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        right, waiting = stores
        return AsOfJoin(self.join, self.is_left, right, waiting, self.state_name)

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True: the join keeps each record."""
        return True


@dataclass(frozen=True, slots=True)
class StreamTableJoinSpec(NodeSpec):
    """A join that looks up each record of a stream in a table. Its stores are the table's stores.

    Attributes:
        table: How to look up rows of the table.
        joiner: `(key, stream value, table value) -> value`.
        is_left_join: Whether a record without a row is joined with None.
    """

    one_result = True
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
    def looks_up(self) -> tuple[str, ...]:
        return self.table.stores

    @property
    def takes_encoded(self) -> bool:
        """True if results are copied from the bytes of values."""
        return self.gives_texts

    @property
    def gives_texts(self) -> bool:
        return parts_of(joined_fields(self.joiner)) is not None

    @property
    def remark(self) -> str:
        """Whether results are copied from the bytes of values. If not, why the joiner needs decoded values."""
        return _reads(self.joiner)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator that opens the table's stores itself."""
        return StreamTableJoin(self.table, self.joiner, self.is_left_join)


@dataclass(frozen=True, slots=True)
class GraceTableJoinSpec(StreamTableJoinSpec):
    """A stream-table join whose records wait for late updates of a versioned table.

    Its stores are the table's stores, then the store of the waiting records.

    Attributes:
        grace_ms: How long a record waits, in stream time.
        key_serde: The serde of the keys of waiting records.
    """

    grace_ms: int
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        return (("grace_ms", self.grace_ms),)

    gives_texts = False

    single = "records that wait for late updates of the table are joined as stream time moves"

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True: the join keeps each record until it is due."""
        return True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over the store of waiting records. It opens the table's stores itself."""
        waiting = stores[-1]
        return GraceTableJoin(self.table, self.joiner, self.is_left_join, self.grace_ms, waiting, self.key_serde)


@dataclass(frozen=True, slots=True)
class GlobalTableJoinSpec(StreamTableJoinSpec):
    """A join that computes a table key for each record, and looks it up in a global table. It has no stores.

    Attributes:
        selector: `(key, value) -> table key`.
        expression: The expression or `fields(...)` that the selector computes; None: the selector is a function.
    """

    selector: Callable[[Any, Any], Any]
    expression: Expression | ValueFields | None

    @property
    def gives_texts(self) -> bool:
        """Whether neither the selector nor the joiner needs decoded values."""
        return of_values(self.expression) is not None and parts_of(joined_fields(self.joiner)) is not None

    @property
    def remark(self) -> str:
        """Whether results are copied from the bytes of values. If not, why decoded values are needed."""
        if of_values(self.expression) is None:
            return "the selector takes values: write it as an expression, such as col('user')"
        return _reads(self.joiner)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator that opens the global table itself."""
        expression = of_values(self.expression)
        return StreamGlobalJoin(self.table, self.joiner, self.is_left_join, self.selector, expression)


RELATED: Final = "one update may change both sides, and each side must see what the other has made of it"


def _reads(joiner: Callable[..., Any]) -> str:
    selected = joined_fields(joiner)
    if selected is None:
        return "the joiner is a function, which takes values"
    return "the joiner computes fields" if parts_of(selected) is None else "fields of JSON are copied as bytes"


# --- The specs of joins of two tables, by key and by a foreign key.


@dataclass(frozen=True, slots=True)
class TableJoinSpec(TableSpec):
    """One side of a join of two tables by key. Its stores are both tables' stores.

    Attributes:
        join_kind: The kind of join, which decides the sides that may be missing.
        is_left: Which side this is.
        other: How to look up rows of the other table.
        joiner: `(key, left value, right value) -> value`.
        versioned: Whether this side's table is versioned.
        related: Whether one update may change both sides.
    """

    join_kind: JoinKind
    is_left: bool
    other: ValueGetter
    joiner: Callable[[Any, Any, Any], Any]
    versioned: bool
    related: bool

    @property
    def kind(self) -> NodeKind:
        return NodeKind.KTABLE_JOINTHIS if self.is_left else NodeKind.KTABLE_JOINOTHER

    @property
    def parameters(self) -> Parameters:
        return (("kind", self.join_kind),)

    @property
    def looks_up(self) -> tuple[str, ...]:
        return self.other.stores

    sees_forwarded = True

    def uses(self, stores: tuple[str, ...]) -> tuple[str, ...]:
        """No stores: each side's node only reads the other side's stores."""
        return ()

    @property
    def single(self) -> str:
        """The reason, if one update may change both tables."""
        return RELATED if self.related else ""

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator that opens the other table's stores itself."""
        left_alone, right_alone = self.join_kind != "inner", self.join_kind == "outer"
        return TableTableJoin(
            self.other,
            self.joiner,
            self.is_left,
            left_alone if self.is_left else right_alone,
            right_alone if self.is_left else left_alone,
            self.versioned,
            self.related,
            self.send_old,
        )


@dataclass(frozen=True, slots=True)
class TableJoinMergeSpec(CachingTableSpec):
    """Merges the results of both sides of a join of two tables. It may have a store of the joined rows.

    Attributes:
        passed_on: Name of the store of the keys whose rows were forwarded; None: there is no such store. An inner join has it if
            one update may change both sides and there is no store of joined rows.
        only_strict: Whether only strict mode uses the store of joined rows, for old values.
    """

    passed_on: str | None = field(default=None, kw_only=True)
    only_strict: bool = field(default=False, kw_only=True)

    kind = NodeKind.KTABLE_MERGE

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        store = None if self.passed_on is not None else only(stores)
        return TableJoinMerge(store, self.caching, self.send_old, self.passed_on, self.only_strict)

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes of both sides, because a merge itself drops nothing."""
        return parents


@dataclass(frozen=True, slots=True)
class ForeignKeySubscribeSpec(NodeSpec):
    """Sends a subscription for each row of the left table of a foreign-key join. It has no stores.

    Attributes:
        extractor: `(key, value) -> foreign key` of a left row.
        value_serde: The serde of the left values.
        is_left_join: Whether a left row without a right row has a result.
        versioned: Whether the left table is versioned.
    """

    kind = NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_REGISTRATION
    extractor: Callable[[Any, Any], Any]
    value_serde: Serde
    is_left_join: bool
    versioned: bool

    drops = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return ForeignKeySubscribe(self.extractor, self.value_serde, self.is_left_join, self.versioned)


@dataclass(frozen=True, slots=True)
class ForeignKeySubscriptionsSpec(NodeSpec):
    """Stores subscriptions, and answers them. Its stores: the subscriptions, then the right table's stores.

    Attributes:
        other: How to look up rows of the right table.
        key_serde: The serde of the subscriptions' keys.
    """

    kind = NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_PROCESSOR
    other: ValueGetter
    key_serde: CombinedKeySerde

    @property
    def looks_up(self) -> tuple[str, ...]:
        return self.other.stores

    sees_forwarded = True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator over the store of subscriptions. It opens the right table's stores itself."""
        return ForeignKeySubscriptions(stores[0], self.key_serde, self.other)


@dataclass(frozen=True, slots=True)
class ForeignKeyUpdateSpec(NodeSpec):
    """Answers all subscriptions to a right row when it changes. Its store has the subscriptions.

    Attributes:
        key_serde: The serde of the subscriptions' keys.
        versioned: Whether the right table is versioned.
    """

    kind = NodeKind.KTABLE_FK_JOIN_FOREIGN_PROCESSOR
    key_serde: CombinedKeySerde
    versioned: bool

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        (subscriptions,) = stores
        return ForeignKeyUpdate(subscriptions, self.key_serde, self.versioned)


@dataclass(frozen=True, slots=True)
class ForeignKeyResultSpec(NodeSpec):
    """Joins the answers with the left rows. Its stores are the left table's stores.

    Attributes:
        join_kind: With `left`, a left row without a right row has a result, too.
        this: How to look up rows of the left table.
        value_serde: The serde of the left values.
        joiner: `(key, left value, right value) -> value`.
    """

    kind = NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_RESPONSE_RESOLVER
    join_kind: JoinKind
    this: ValueGetter
    value_serde: Serde
    joiner: Callable[[Any, Any, Any], Any]

    @property
    def parameters(self) -> Parameters:
        return (("kind", self.join_kind),)

    @property
    def looks_up(self) -> tuple[str, ...]:
        return self.this.stores

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes an operator that opens the left table's stores itself."""
        return ForeignKeyResult(self.this, self.value_serde, self.joiner, self.join_kind == "left")


@dataclass(frozen=True, slots=True)
class ForeignKeyOutputSpec(CachingTableSpec):
    """The result of a foreign-key join. It may have a store of the joined rows.

    Attributes:
        registration: Name of the node that sends the subscriptions.
    """

    kind = NodeKind.KTABLE_FK_JOIN_OUTPUT
    registration: str

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return TableSource(only(stores), self.caching, self.send_old)

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The node that reads left rows, because the other nodes of the join can only drop internal messages."""
        return (self.registration,)
