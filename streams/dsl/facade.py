"""The common base of streams, tables and groups: a helpful error for unknown names, and a readable `repr`."""

from __future__ import annotations

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.shown import way
from streams.spelling.answers import AnswersUnknownNames


class Facade(AnswersUnknownNames):
    """Shown as `KStream('orders' → map_values)`; subclasses without a port of their own override what is shown."""

    _graph: GraphBuilder
    _port: Port

    def _shown(self) -> str:
        return way(self._graph, self._port)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"
