"""The specs of joins of two tables, by key and by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.operators.columnar import BatchProcessor
from streams.operators.join.foreign_key import (
    ForeignKeyResult,
    ForeignKeySubscribe,
    ForeignKeySubscriptions,
    ForeignKeyUpdate,
)
from streams.operators.join.table_batches import TableBatches
from streams.operators.join.table_table_join import TableJoinMerge, TableTableJoin
from streams.operators.operator import OperatorBatches
from streams.operators.processor import AnyProcessor
from streams.operators.table.table_steps import TableSource
from streams.operators.table.value_getter import JoinKind, ValueGetter
from streams.serdes.base import Serde
from streams.serdes.foreign_key import CombinedKeySerde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import CachingTableSpec, NodeSpec, Parameters, TableSpec
from streams.topology.specs.tables import only


@dataclass(frozen=True, slots=True)
class TableJoinSpec(TableSpec):
    """One side of a join of two tables by key. Its stores: those of both tables.

    Attributes:
        join_kind: Which side may be missing.
        is_left: Which side this is.
        other: How the other table is looked up.
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

    def uses(self, stores: tuple[str, ...]) -> tuple[str, ...]:
        """None, because the other side looks up the stores of this one."""
        return ()

    @property
    def batches(self) -> type[BatchProcessor] | str:
        """Together, where only one of the tables changes at a time."""
        if self.related:
            return "one update may change both sides, and each side must see what the other has made of it"
        return "updates of a versioned table may be out of order" if self.versioned else OperatorBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator that opens the other table's stores itself."""
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
    """Merges the results of both sides of a join of two tables. Its store, if it has one: the joined rows."""

    kind = NodeKind.KTABLE_MERGE

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return OperatorBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the store, or without."""
        return TableJoinMerge(only(stores), self.caching, self.send_old)

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The sides: a merge drops nothing itself."""
        return parents


@dataclass(frozen=True, slots=True)
class ForeignKeySubscribeSpec(NodeSpec):
    """Sends a subscription for each row of the left table of a foreign-key join. It has no stores.

    Attributes:
        extractor: `(key, value) -> foreign key` of a left row.
        value_serde: Of the left values.
        is_left_join: Whether a left row stands without a right one.
        versioned: Whether the left table is versioned.
    """

    kind = NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_REGISTRATION
    extractor: Callable[[Any, Any], Any]
    value_serde: Serde
    is_left_join: bool
    versioned: bool

    @property
    def drops(self) -> bool:
        return True

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return "updates of a versioned table may be out of order" if self.versioned else OperatorBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return ForeignKeySubscribe(self.extractor, self.value_serde, self.is_left_join, self.versioned)


@dataclass(frozen=True, slots=True)
class ForeignKeySubscriptionsSpec(NodeSpec):
    """Stores and answers subscriptions. Its stores: the subscriptions, and those of the right table.

    Attributes:
        other: How the right table is looked up.
        key_serde: Of the subscriptions' keys.
    """

    kind = NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_PROCESSOR
    other: ValueGetter
    key_serde: CombinedKeySerde

    @property
    def looks_up(self) -> tuple[str, ...]:
        return self.other.stores

    @property
    def batches(self) -> type[BatchProcessor] | str:
        """Together with the right table's updates."""
        return TableBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the subscriptions, which opens the right table's stores itself."""
        return ForeignKeySubscriptions(stores[0], self.key_serde, self.other)


@dataclass(frozen=True, slots=True)
class ForeignKeyUpdateSpec(NodeSpec):
    """Answers all subscriptions to a right row that changes. Its store: the subscriptions.

    Attributes:
        key_serde: Of the subscriptions' keys.
        versioned: Whether the right table is versioned.
    """

    kind = NodeKind.KTABLE_FK_JOIN_FOREIGN_PROCESSOR
    key_serde: CombinedKeySerde
    versioned: bool

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return "updates of a versioned table may be out of order" if self.versioned else OperatorBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the subscriptions."""
        (subscriptions,) = stores
        return ForeignKeyUpdate(subscriptions, self.key_serde, self.versioned)


@dataclass(frozen=True, slots=True)
class ForeignKeyResultSpec(NodeSpec):
    """Joins the answers with the left rows. Its stores: those of the left table.

    Attributes:
        join_kind: Whether a left row stands without a right one.
        this: How the left table is looked up.
        value_serde: Of the left values.
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
    def batches(self) -> type[BatchProcessor] | str:
        """Together with the left table's updates."""
        return TableBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator that opens the left table's stores itself."""
        return ForeignKeyResult(self.this, self.value_serde, self.joiner, self.join_kind == "left")


@dataclass(frozen=True, slots=True)
class ForeignKeyOutputSpec(CachingTableSpec):
    """The result of a foreign-key join. Its store, if it has one: the joined rows.

    Attributes:
        registration: Name of the node that sends the subscriptions.
    """

    kind = NodeKind.KTABLE_FK_JOIN_OUTPUT
    registration: str

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return TableBatches

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """An operator over the store, or one that only passes updates on."""
        return TableSource(only(stores), self.caching, self.send_old)

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The node that reads left rows, since the other nodes of the join could only drop internal messages."""
        return (self.registration,)
