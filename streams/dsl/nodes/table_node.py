"""A table under construction: its store, the tables it derives from, and whether its updates have old values.

Rules (Kafka Streams: `KTableImpl.enableSendingOldValues`, `valueGetterSupplier`): a table has a store only if it has a name, is
looked up, or its old values are needed. A filtered or mapped table without a name never has one, but is computed from the tables
above at each look-up. A joined table is computed, too, unless both sides derive from one table and its old values are needed: the
computed old value would never have been sent (the other side has changed with the same update), which only compat mode accepts.
Such needs become known late, when an operator below is added, so the node is then replaced in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.operators.table.value_getter import StoreValueGetter, ValueGetter
from streams.topology.specs.base import TableSpec


@dataclass
class TableNode:
    """A table under construction.

    Attributes:
        graph: The graph under construction.
        nodes: The names of the operators that can fill `Change.old`.
        store: The table's store; None if there is none so far.
        materialize: Adds a store; None if that is not possible later.
        parents: The tables that this one derives from.
        computed: How to look rows up without a store.
        from_stored: Converts stored values to the table's values; None: they are the same.
        history_ms: How far back the table's own versioned store can look; None: not versioned.
        joined: Whether this is a join of two tables, which need stores for old values to be known.
        related: Whether this is a join whose sides derive from one table, or one from the other.
        forwards_all: Whether every update of the table above is forwarded, whatever its value.
    """

    graph: GraphBuilder
    nodes: tuple[str, ...]
    store: str | None
    materialize: Callable[[], str] | None = None
    parents: tuple[TableNode, ...] = ()
    computed: Callable[[], ValueGetter] | None = None
    from_stored: Callable[[Any], Any] | None = None
    history_ms: int | None = None
    joined: bool = False
    related: bool = False
    forwards_all: bool = False
    _sends_old: bool = field(default=False, init=False)

    @property
    def versioned(self) -> bool:
        """Whether updates are those of a versioned table, and so may be out of order (KIP-914)."""
        if self.store is not None:
            return self.history_ms is not None
        return any(parent.versioned for parent in self.parents)

    @property
    def history(self) -> int | None:
        """How far back rows can be looked up, ms; None: only the current rows."""
        if self.store is not None:
            return self.history_ms
        return self.parents[0].history if len(self.parents) == 1 and self.computed is not None else None

    def send_old_values(self, force: bool) -> bool:
        """Adds the old value to the table's updates.

        Args:
            force: Whether to add a store to a table above if necessary.

        Returns:
            Whether updates now have the old value.
        """
        if not self._sends_old and self._can_send_old(force):
            for name in self.nodes:
                self.graph.change_spec(name, self._spec(name).with_old_values())
            self._sends_old = True
        if force and self._sends_old:
            self._materialize_related()
        return self._sends_old

    def _materialize_related(self) -> None:
        if self.store is None and self.related:
            self.require_store()
        elif self.store is None:
            for parent in self.parents:
                parent._materialize_related()

    @property
    def old_values_are_exact(self) -> bool:
        """Whether old values, if sent, are exactly those that were forwarded before."""
        if self.store is not None:
            return True
        return not self.related and all(parent.old_values_are_exact for parent in self.parents)

    @property
    def filters_updates(self) -> bool:
        """Whether some updates of the parents are not forwarded, depending on their values."""
        return bool(self.parents) and (not self.forwards_all or self.parents[0].filters_updates)

    def _can_send_old(self, force: bool) -> bool:
        if self.joined:
            enabled = [parent.send_old_values(True) for parent in self.parents]
            return all(enabled)
        if self.store is not None:
            return True
        if self.computed is not None:
            enabled = [parent.send_old_values(force) for parent in self.parents]
            return all(enabled)
        if force:
            self.require_store()
        return force

    def require_store(self) -> str:
        """The table's store, which is added if there was none."""
        if self.store is None:
            assert self.materialize is not None, "a table without a store knows how to make one"
            self.store = self.materialize()
        return self.store

    def view(self) -> ValueGetter:
        """How operators look rows up."""
        if self.store is None and self.computed is not None:
            return self.computed()
        return StoreValueGetter(self.require_store(), self.from_stored, self.history_ms is not None)

    def disable_caching(self) -> None:
        """Disables the caches of this table and of its parents, so that each update is forwarded at once."""
        for name in self.nodes:
            self.graph.change_spec(name, self._spec(name).without_caching())
        for parent in self.parents:
            parent.disable_caching()

    def _spec(self, name: str) -> TableSpec:
        spec = self.graph.operator(name).spec
        assert isinstance(spec, TableSpec), "a table is filled by operators of tables"
        return spec
