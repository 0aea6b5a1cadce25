"""The common base of the parts of `KStream`: the graph under construction, and the stream's position in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast

from streams.dsl.nodes.abstract_stream import AbstractStream, StreamBase
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.errors import TopologyError
from streams.model.typing import K, V
from streams.wording import a_kind_of

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


class KStreamPart(StreamBase, Generic[K, V]):
    """A stream behind one node of the graph."""

    def __init__(self, graph: GraphBuilder, port: Port) -> None:
        self._graph = graph
        self._port = port

    def _stream(self, port: Port) -> KStream[Any, Any]:
        """The stream behind another node of the same graph."""
        return cast("KStream[Any, Any]", type(self)(self._graph, port))

    def _check_stream(self, other: object) -> None:
        """Raises `TopologyError` unless the other is a stream of the same builder."""
        self._check_same_builder(other)
        if not isinstance(other, StreamBase):
            raise TopologyError(f"This argument takes a stream, not {a_kind_of(other)}: a table has to_stream().")

    def _check_same_builder(self, other: object) -> None:
        """Raises `TopologyError` unless the other is a stream or table of the same builder."""
        if not isinstance(other, AbstractStream) or other._graph is not self._graph:
            known = isinstance(other, AbstractStream)
            what = "comes from another StreamsBuilder" if known else "is no stream or table"
            raise TopologyError(
                f"{type(other).__name__} {what}: join and merge take streams and tables of one builder."
            )
