"""A table under construction: its store, what it is made of, and whether its updates hold old values.

Rules (Kafka Streams: `KTableImpl.enableSendingOldValues`, `valueGetterSupplier`): a table has a store only if it has a
name, is looked up, or its old values are needed; a filtered or mapped one without a name never has: it is computed from the
tables above at each look-up. A joined one is computed, too, unless both sides are made of one table and its old values are
needed: what can be computed then was never sent (the other side has changed with the same update), which only compat mode
puts up with. Changes of a node come late, when something below asks; so it is replaced in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streams.dsl.build.graph_builder import GraphBuilder
from streams.operators.table.value_getter import StoreValueGetter, ValueGetter
from streams.topology.specs.base import TableSpec


@dataclass
class TableNode:
    """A table under construction.

    Attributes:
        graph: Where it is built.
        nodes: The operators that can fill `Change.old`, by name.
        store: Its store; None while it has none.
        materialize: Makes one; None where it cannot be had later.
        parents: The tables that it is made of.
        computed: How it is looked up without a store.
        from_stored: Makes the table's values of those in its store, where they differ.
        history_ms: How far back its own versioned store remembers; None: it has none.
        joined: Made of two tables, which need stores for old values to be known at all.
        related: Joined of two sides that are made of one table, or of which one is made of the other.
        forwards_all: Each update of the table above goes on, whatever its value.
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
        """Whether its updates are those of a versioned table, so that some may be of the past (KIP-914)."""
        if self.store is not None:
            return self.history_ms is not None
        return any(parent.versioned for parent in self.parents)

    @property
    def history(self) -> int | None:
        """How far back it can be looked up, ms; None: only as it is now."""
        if self.store is not None:
            return self.history_ms
        return self.parents[0].history if len(self.parents) == 1 and self.computed is not None else None

    def send_old_values(self, force: bool) -> bool:
        """Makes its updates hold the old value.

        Args:
            force: Give a table above a store, if that is what it takes.

        Returns:
            Whether they do now.
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
        """Whether its old values, where they are sent, are those that went on before."""
        if self.store is not None:
            return True
        return not self.related and all(parent.old_values_are_exact for parent in self.parents)

    @property
    def filters_updates(self) -> bool:
        """Whether some updates of the tables that it is made of do not go on, depending on their values."""
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
        """Its store; made now if there was none."""
        if self.store is None:
            assert self.materialize is not None, "a table without a store knows how to make one"
            self.store = self.materialize()
        return self.store

    def view(self) -> ValueGetter:
        """How operators look it up."""
        if self.store is None and self.computed is not None:
            return self.computed()
        return StoreValueGetter(self.require_store(), self.from_stored, self.history_ms is not None)

    def disable_caching(self) -> None:
        """Switches the caches off, its own and those of the tables it is made of, so that each update goes on as it comes."""
        for name in self.nodes:
            self.graph.change_spec(name, self._spec(name).without_caching())
        for parent in self.parents:
            parent.disable_caching()

    def _spec(self, name: str) -> TableSpec:
        spec = self.graph.operator(name).spec
        assert isinstance(spec, TableSpec), "a table is filled by operators of tables"
        return spec
