"""The windows of an aggregation, if any, and when its results are emitted.

Built-in aggregates of fields process whole columns if the windows allow it and every update is emitted; otherwise they process
records one by one like user functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.aggregation import Aggregation
from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.dsl.nodes.windowing import by_start, session, sliding  # noqa: F401 - where the kinds are registered
from streams.dsl.nodes.windowing.kind import Supplier, WindowKind, kind_of
from streams.dsl.nodes.windowing.undivided import Undivided
from streams.dsl.options import Materialized
from streams.errors import TopologyError
from streams.model.windows import EmitStrategy, GroupingWindows
from streams.serdes.base import Serde
from streams.serdes.primitives import BytesSerde
from streams.topology.specs.aggregations import FUNCTIONS
from streams.topology.specs.base import Parameters

_ON_UPDATE = EmitStrategy.on_window_update()


@dataclass(frozen=True)
class Windowing:
    """Windows, and when their results are emitted.

    Attributes:
        windows: The windows; None: over all time.
        emit: Whether results are emitted with every update or on close.
        kind: The kind of the windows.

    Raises:
        TopologyError: The argument is not a definition of windows, or results on close are requested but windows never close.
    """

    windows: GroupingWindows | None
    emit: EmitStrategy = _ON_UPDATE
    kind: WindowKind[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Undivided(None) if self.windows is None else kind_of(self.windows))
        if self.emit.on_close and not (self.windows is not None and self.windows.closes):
            raise TopologyError(
                f"{type(self.windows).__name__} never close, so nothing would ever be emitted on close."
            )

    def columns(self, what: Aggregation) -> tuple[str, ...] | str:
        """The fields that the aggregation reads as columns, or why it takes whole records, one by one."""
        if what.fields is None or what.projection is None:
            return FUNCTIONS
        if self.emit.on_close:
            return "emits on close, with the record that closes a window"
        return self.kind.by_record(what.fields) or what.projection

    @property
    def parameters(self) -> Parameters:
        """The parameters in names and in the topology hash."""
        closes: Parameters = (("emit", "on_close"),) if self.emit.on_close else ()
        return (*self.kind.parameters, *closes)

    def key_serde(self, inner: Serde) -> Serde:
        """The serde of the results' keys."""
        return self.kind.key_serde(inner)

    def add_stores(
        self, graph: GraphBuilder, name: str, how: Materialized, key_serde: Serde, value_serde: Serde
    ) -> tuple[str, ...]:
        """Adds the store of the results and, for emission on close, the index of open windows; returns their names."""
        store = graph.store(self.kind.store(name, how), key_serde, value_serde)
        if not self.emit.on_close:
            return (store,)
        index = StoreSpec(f"{name}-open", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)
        return store, graph.store(index, BytesSerde(), BytesSerde())

    def supplier(self, what: Aggregation, stores: tuple[str, ...], how: Materialized) -> Supplier:
        """The function that makes the operator, which also takes `send_old`."""
        if what.fields is not None and not isinstance(self.columns(what), str):
            return self.kind.column_operator(what.fields, stores[0], how)
        return self.kind.operator(what.functions, stores[0], stores[1] if self.emit.on_close else None, how)


def windowing_of(windows: GroupingWindows) -> Windowing:
    """The user's windows, with results for every update.

    Raises:
        TopologyError: The argument is not a definition of windows.
    """
    kind_of(windows)
    return Windowing(windows)


NO_WINDOWS: Final = Windowing(None)
