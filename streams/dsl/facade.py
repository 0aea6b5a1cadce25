"""What streams, tables and groups have in common as users meet them: unknown names are answered, and a repr says what it is."""

from __future__ import annotations

from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.shown import way
from streams.spelling.answers import AnswersUnknownNames


class Facade(AnswersUnknownNames):
    """Shown as `KStream('orders' → map_values)`; subclasses without a port of their own say what they show."""

    _graph: GraphBuilder
    _port: Port

    def _shown(self) -> str:
        return way(self._graph, self._port)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"
