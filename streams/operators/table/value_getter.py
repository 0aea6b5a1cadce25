"""Look-ups of a table's rows by other operators (Kafka Streams: `KTableValueGetter`).

A table without a store of its own is computed from its parent tables at each look-up. A value getter is a description: plain
data that is pickled with its operator. `open` returns the look-up function. Invariant: look-ups only read the stores in
`stores`; the node that opens a value getter must name all of them, so that it runs in the same sub-topology.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streams.model.ownership import may_share
from streams.model.record import ValueAndTimestamp

if TYPE_CHECKING:
    # A plan contains value getters, and needs no libraries of columns.
    from streams.operators.columnar import Int64s, KeyColumn
    from streams.operators.operator import OperatorContext
    from streams.operators.stores.found_rows import FoundRows, TableLookup

JoinKind = Literal["inner", "left", "outer"]
Lookup = Callable[[Any, "int | None"], "ValueAndTimestamp | None"]
"""`lookup(key, as_of)` returns value and timestamp, or None. `as_of`: ms, for versioned tables; None = the newest value."""


class ValueGetter(Protocol):
    """A table as other operators see it."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that look-ups read."""

    @property
    def reads_each(self) -> bool:
        """Whether rows are looked up one after the other (`open`), even if all stores have one row for each key."""

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        """Returns the look-up function, for one step."""

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        """Returns the look-up function for many keys, of the newest values."""


@dataclass(frozen=True)
class StoreValueGetter:
    """A table with a store.

    Attributes:
        store: Name of a timestamped key-value, a versioned, a timestamped window or a session store.
        from_stored: Computes the table's value from the stored one, if they differ (built-in aggregates).
        versioned: Whether the store holds versions, so that it can be read as of a time.
    """

    store: str
    from_stored: Callable[[Any], Any] | None = None
    versioned: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def reads_each(self) -> bool:
        return False

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        store, from_stored, versioned = ctx.store(self.store), self.from_stored, self.versioned
        get = store.forwarded if forwarded and not versioned else store.get

        def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
            found: ValueAndTimestamp | None = get(key, as_of) if versioned else get(key)
            if found is None or from_stored is None:
                return found
            return ValueAndTimestamp(from_stored(found.value), found.timestamp)

        return lookup

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        stored, from_stored = tables[self.store], self.from_stored
        if from_stored is None:
            return stored

        def lookup(keys: KeyColumn, order: Int64s) -> FoundRows:
            found = stored(keys, order)
            rows = zip(found.there.tolist(), found.values, strict=True)
            return found.with_values([from_stored(value) if there else None for there, value in rows])

        return lookup


@dataclass(frozen=True)
class MapValueGetter:
    """A table with mapped or filtered values, without a store.

    Attributes:
        parent: The table above.
        fn: `(key, value) -> value`; a result of None means no row. Not called for None.
        reads: Whether the function leaves values unchanged.
    """

    parent: ValueGetter
    fn: Callable[[Any, Any], Any]
    reads: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def reads_each(self) -> bool:
        return self.parent.reads_each

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        above, fn = self.parent.open(ctx, forwarded), self.fn

        def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
            found = above(key, as_of)
            value = None if found is None else fn(key, found.value)
            return None if found is None or value is None else ValueAndTimestamp(value, found.timestamp)

        return lookup

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        above, fn = self.parent.open_together(tables), self.fn

        def lookup(keys: KeyColumn, order: Int64s) -> FoundRows:
            found = above(keys, order)
            given = found.values if self.reads else found.values_for(fn)
            rows = zip(found.there.tolist(), keys, given, strict=True)
            values = [fn(key, value) if there else None for there, key, value in rows]
            return found.mapped(values, may_share(fn))

        return lookup


@dataclass(frozen=True)
class JoinValueGetter:
    """Two joined tables without a store. It reads only the newest values, as Kafka Streams' getters of joins do.

    Attributes:
        left, right: The tables.
        joiner: `(key, left value, right value) -> value`.
        kind: The kind of join, which decides the sides that may be missing.
    """

    left: ValueGetter
    right: ValueGetter
    joiner: Callable[[Any, Any, Any], Any]
    kind: JoinKind

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    @property
    def reads_each(self) -> bool:
        return self.left.reads_each or self.right.reads_each

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        on_left, on_right, joiner = self.left.open(ctx, forwarded), self.right.open(ctx, forwarded), self.joiner
        needs_left, needs_right = self.kind != "outer", self.kind == "inner"

        def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
            left, right = on_left(key, None), on_right(key, None)
            if (left is None and (needs_left or right is None)) or (right is None and needs_right):
                return None
            value = joiner(key, left and left.value, right and right.value)
            timestamp = max(found.timestamp for found in (left, right) if found is not None)
            return None if value is None else ValueAndTimestamp(value, timestamp)

        return lookup

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        on_left, on_right, joiner = self.left.open_together(tables), self.right.open_together(tables), self.joiner
        needs_left, needs_right = self.kind != "outer", self.kind == "inner"

        def lookup(keys: KeyColumn, order: Int64s) -> FoundRows:
            left, right = on_left(keys, order), on_right(keys, order)
            joins = left.joins(right, needs_left, needs_right)
            rows = zip(joins.tolist(), keys, left.values_for(joiner), right.values_for(joiner), strict=True)
            values = [joiner(key, one, other) if join else None for join, key, one, other in rows]
            return left.joined(right, values, may_share(joiner))

        return lookup
