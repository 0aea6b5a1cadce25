"""The nodes around an operator that retries: the source of its retry topics, and the sinks that write them.

::

    port ────────▶ operator ────▶ results
    source ──────▶    │
      ▲               └─ failed ─▶ route ─▶ sink 1 ─▶ retry topic 1 ─┐
      │                              ├────▶ sink 2 ─▶ retry topic 2 ─┤
      │                              └────▶ dead letters             │
      └──────────────── once its delay has passed ◀──────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.options.retry import Retry
from streams.errors import TopologyError
from streams.model.timestamps import RetriedTimestampExtractor
from streams.operators.retry.attempts import Attempts
from streams.operators.retry.route import RetryRoute
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.topology.graph import Failed, InternalTopic, ProcessorNode, SinkNode, SourceNode, Topic
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of one operator, while its nodes are added.

    Attributes:
        name: The operator's name.
        retry: The user's policy.
        topics: The retry topics.
        port: The records that come back.
    """

    name: str
    retry: Retry
    topics: tuple[InternalTopic, ...]
    port: Port

    @classmethod
    def begin(cls, graph: GraphBuilder, port: Port, name: str | None, retry: Retry, method: str) -> Retries:
        """Adds the source of the retry topics.

        Args:
            graph: The topology under construction.
            port: The operator's other input.
            name: The operator's name, if the user has given one.
            retry: The policy.
            method: The method that adds the operator, for messages.

        Raises:
            TopologyError: The operator has no name, or keys of windows, whose records would come back to another task.
        """
        if name is None:
            raise TopologyError(
                f"{method}(on_error=Retry(...)) needs a name, such as named='ship': the retry topics are called after it, and hold "
                f"records that must be found again by the next version of the program."
            )
        key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
        if hasattr(key_serde, "serialize_base_key"):
            raise TopologyError(
                f"'{name}' cannot retry records whose keys are windows: retried records are placed by their whole key. Make "
                f"another key in front, such as select_key(lambda key, value: key.key)."
            )
        topics = tuple(
            InternalTopic(f"{name}-retry-{number}", delay_ms=delay) for number, delay in enumerate(retry.delays_ms, 1)
        )
        times = RetriedTimestampExtractor()
        source = SourceNode(f"{name}-retry-source", topics, key_serde, value_serde, times, retries=True)
        graph.topology.add(source)
        return cls(name, retry, topics, Port(source.name, key_serde, value_serde, port.lineage))

    @property
    def attempts(self) -> Attempts:
        """The topics, for the operator."""
        return Attempts(tuple(map(str, self.topics)))

    def add_store(self, graph: GraphBuilder, key_serde: Serde) -> str:
        """Adds the store with the lines of waiting records, and returns its name."""
        return graph.store(StoreSpec(f"{self.name}-waiting", StoreKind.KEY_VALUE), key_serde, JsonSerde())

    def end(self, graph: GraphBuilder) -> None:
        """Adds what takes the records that the operator fails on."""
        route, dead = f"{self.name}-retry", f"{self.name}-dead-letters-sink"
        key_serde, value_serde = self.port.key_serde, self.port.value_serde
        assert key_serde is not None, "see begin"
        assert value_serde is not None, "see begin"
        sinks = (dead, *(f"{topic}-sink" for topic in self.topics))
        graph.topology.add(
            ProcessorNode(
                name=route,
                spec=OperatorSpec(NodeKind.KSTREAM_RETRY, partial(RetryRoute, sinks)),
                parents=(self.name,),
                key_serde=key_serde,
                value_serde=value_serde,
                takes_dropped=True,
            )
        )
        topics: tuple[Topic, ...] = (self.retry.dead_letters, *self.topics)
        for sink, topic, delay_ms in zip(sinks, topics, (None, *self.retry.delays_ms), strict=True):
            failed = Failed(delay_ms, None if delay_ms is None else self.retry.dead_letters)
            graph.topology.add(SinkNode(sink, (route,), topic, None, key_serde, value_serde, failed=failed))
