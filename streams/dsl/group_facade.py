"""The `repr` of grouped streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.dsl.facade import Facade
from streams.dsl.nodes.shown import way
from streams.dsl.nodes.windowing import NO_WINDOWS, Windowing

if TYPE_CHECKING:
    from streams.dsl.cogrouped import Parts
    from streams.dsl.grouped import Group


class GroupFacade(Facade):
    """Shown as `KGroupedStream('orders' → select_key)`, followed by the windows if there are any."""

    _group: Group
    _windowing: Windowing = NO_WINDOWS

    def _shown(self) -> str:
        windows = self._windowing.windows
        return way(self._group.graph, self._group._port) + (f", {windows!r}" if windows is not None else "")


class CogroupFacade(Facade):
    """Shown as `CogroupedKStream('clicks'; 'orders')`."""

    _parts: Parts

    def _shown(self) -> str:
        return "; ".join(way(group.graph, group._port) for group, _ in self._parts)
