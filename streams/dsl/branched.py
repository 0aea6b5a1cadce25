"""`split()`: divides a stream into several; each record goes to the first branch whose predicate is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypedDict, Unpack

from streams.dsl import functions
from streams.dsl.arguments import one_option
from streams.dsl.facade import Facade
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import check_fields
from streams.dsl.options import NameLike, Option
from streams.errors import TopologyError
from streams.model.typing import K, KeyValuePredicate, V, ValuePredicate
from streams.operators.stateless import Branch, PassThrough
from streams.topology.naming import numbered
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


@dataclass(frozen=True, init=False, repr=False)
class Branched(Option, Generic[K, V]):
    """The name of a branch, and what to do with the branch's stream.

    Attributes:
        name: The branch's name in the resulting dict, after the split's name; default: its number, 0 for the default branch.
        function: Receives the branch's stream and returns the stream that takes its place in the dict.
        consumer: Receives the branch's stream, which is then left out of the dict.
    """

    name: str | None = None
    function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None
    consumer: Callable[[KStream[K, V]], object] | None = None

    @overload
    def __init__(
        self,
        name: str | None = None,
        function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
        consumer: Callable[[KStream[K, V]], object] | None = None,
    ) -> None: ...

    @overload
    def __init__(self, function: Callable[[KStream[K, V]], KStream[K, V] | None], /) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)

    def _check(self) -> None:
        super()._check()
        if self.function is not None and self.consumer is not None:
            raise TopologyError(
                "A branch has either a function or a consumer: Branched(function=...) or Branched(consumer=...)."
            )


class BranchedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Branched`."""

    name: str | None
    function: Callable[[KStream[K, V]], KStream[K, V] | None] | None
    consumer: Callable[[KStream[K, V]], object] | None


class BranchedKStream(Facade, Generic[K, V]):
    """A split under construction; `default_branch()` or `no_default_branch()` completes it.

    Example::

        branches = (
            flights.split()
            .branch(lambda flight: flight["dep_delay"] > 60, Branched("late"))
            .default_branch(Branched("on-time"))
        )
        branches["late"].to("late-flights")

    The dict's keys are the names of the branches, prefixed with the split's own name if it has one.
    """

    def __init__(
        self, graph: GraphBuilder, port: Port, name: str | None, stream: Callable[[Port], KStream[K, V]]
    ) -> None:
        self._graph = graph
        self._port = port
        self._prefix = name or ""
        self._name = name or numbered(f"KSTREAM-BRANCH-{port.lineage}", {*graph.topology.nodes, *graph.open_splits})
        self._stream = stream
        self._predicates: list[Callable[[Any, Any], bool] | None] = []
        self._branches: list[tuple[str, Branched[K, V]]] = []
        self._ended = False
        graph.open_splits.add(self._name)

    @overload
    def branch(
        self,
        predicate: ValuePredicate[V],
        branched: Branched[K, V] | NameLike = None,
        **option: Unpack[BranchedKeywords[K, V]],
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self,
        predicate: KeyValuePredicate[K, V],
        branched: Branched[K, V] | NameLike = None,
        **option: Unpack[BranchedKeywords[K, V]],
    ) -> BranchedKStream[K, V]: ...

    def branch(
        self,
        predicate: ValuePredicate[V] | KeyValuePredicate[K, V],
        branched: Branched[K, V] | NameLike = None,
        **option: Any,
    ) -> BranchedKStream[K, V]:
        """Adds a branch for the records that match the predicate and no earlier branch.

        Raises:
            TopologyError: The split is complete, or has a branch of that name.

        Source: Kafka Streams' `BranchedKStream` (KIP-418).
        """
        how = one_option("branch", Branched, branched, option)
        check_fields(predicate, self._port.node, self._port.value_serde)
        return self._add(functions.predicate(predicate), how, str(len(self._branches) + 1))

    def default_branch(
        self, branched: Branched[K, V] | NameLike = None, **option: Unpack[BranchedKeywords[K, V]]
    ) -> dict[str, KStream[K, V]]:
        """Completes the split with a branch for the records that matched no other.

        Raises:
            TopologyError: The split is complete already.
        """
        return self._add(None, one_option("default_branch", Branched, branched, option), "0")._end()

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Completes the split; records that matched no branch are left out.

        Raises:
            TopologyError: The split is complete already, or has no branch.
        """
        return self._end()

    def _add(
        self, predicate: Callable[[Any, Any], bool] | None, branched: Branched[K, V], number: str
    ) -> BranchedKStream[K, V]:
        name = self._prefix + (branched.name or number)
        if self._ended or any(name == other for other, _ in self._branches):
            why = "it has ended" if self._ended else f"it has a branch '{name}' already"
            raise TopologyError(f"The split '{self._name}' cannot take another branch: {why}.")
        self._predicates.append(predicate)
        self._branches.append((name, branched))
        return self

    def _end(self) -> dict[str, KStream[K, V]]:
        if not self._branches or self._ended:
            raise TopologyError(f"The split '{self._name}' {'has ended already' if self._ended else 'has no branch'}.")
        self._ended = True
        self._graph.open_splits.discard(self._name)
        nodes = [f"{self._name}-{name.removeprefix(self._prefix)}" for name, _ in self._branches]
        # The children's names are fixed before the children exist: the operator sends to them by name.
        port = self._graph.stateless(
            OperatorSpec(NodeKind.KSTREAM_BRANCH, partial(Branch, self._predicates, nodes)), self._port, self._name
        )
        streams: dict[str, KStream[K, V]] = {}
        for node, (name, branched) in zip(nodes, self._branches, strict=True):
            stream = self._stream(
                self._graph.stateless(OperatorSpec(NodeKind.KSTREAM_BRANCHCHILD, PassThrough), port, node)
            )
            if branched.consumer is not None:
                branched.consumer(stream)
                continue
            result = stream if branched.function is None else branched.function(stream)
            if result is not None:
                streams[name] = result
        return streams
