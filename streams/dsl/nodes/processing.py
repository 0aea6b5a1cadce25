"""Nodes that process records one by one: processors, `enrich` with its calls, retries, `deduplicate`, and dropped records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import derived_key, forwarded_types
from streams.dsl.options import Produced, Retry
from streams.errors import TopologyError
from streams.model.timestamps import RetriedTimestampExtractor
from streams.model.windows import Duration, to_ms
from streams.operators.attempts import Attempts
from streams.operators.calls import CallRules, UserClient
from streams.operators.late import FixedKeyProcessor, PassThrough, RetryRoute, UserProcessor
from streams.operators.process.suppliers import check_supplier
from streams.operators.processor import Processor
from streams.serdes.base import Serde, kept
from streams.serdes.internal import ChangeSerde, CombinedKeySerde
from streams.serdes.json import JsonIdSerde, JsonSerde
from streams.topology.graph import Failed, InternalTopic, ProcessorNode, SinkNode, SourceNode, Topic
from streams.topology.naming import check_topic, stateful_name, stateless_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec, Parameters
from streams.topology.specs.streams import DeduplicateSpec, EnrichSpec, RetryingProcessorSpec, UserProcessorSpec

OnError: TypeAlias = Literal["fail"] | Retry
"""What happens to a record for which a processor fails; `fail`: the processing policy decides."""


def add_process(
    graph: GraphBuilder,
    port: Port,
    supplier: Callable[[], Processor],
    stores: Sequence[str],
    name: str | None,
    on_error: OnError = "fail",
) -> Port:
    """Adds a processor that may change keys and values."""
    spec = UserProcessorSpec(NodeKind.KSTREAM_PROCESSOR, checked_supplier(supplier))
    made = _add(graph, port, spec, stores, name, on_error)
    key_type, value_type = forwarded_types(supplier)
    key_serde = derived_key(key_type, graph.topology.default_key_serde, made.node)
    return replace(made, key_serde=key_serde, value_serde=graph.serde_of_values(value_type), needs_repartition=True)


def add_process_values(
    graph: GraphBuilder,
    port: Port,
    supplier: Callable[[], Processor],
    stores: Sequence[str],
    name: str | None,
    on_error: OnError = "fail",
) -> Port:
    """Adds a processor that may only change values, so its records stay in their task."""
    fixed = checked_supplier(supplier, FixedKeyProcessor)
    made = _add(graph, port, UserProcessorSpec(NodeKind.KSTREAM_PROCESSVALUES, fixed), stores, name, on_error)
    value_serde = graph.serde_of_values(forwarded_types(supplier)[1])
    return replace(made, key_serde=port.key_serde, value_serde=value_serde)


def _add(
    graph: GraphBuilder, port: Port, spec: UserProcessorSpec, stores: Sequence[str], name: str | None, on_error: OnError
) -> Port:
    if isinstance(on_error, Retry):
        return _add_retrying(graph, port, spec, stores, name, on_error)
    if on_error != "fail":
        raise TopologyError(f"process(on_error=...) must be 'fail' or a Retry, not {on_error!r}.")
    # Never part of the head, even without stores: a processor may schedule calls, and store state in its context.
    key_serde = graph.key_serde(port.key_serde)
    names, global_names = split_stores(graph, stores)
    parameters: Parameters = tuple((f"store:{store}", True) for store in (*names, *global_names))
    return graph.stateful(
        spec,
        port,
        name or stateful_name(spec.kind, port.lineage, parameters),
        stores=names,
        global_stores=global_names,
        key_serde=key_serde,
    )


def _add_retrying(
    graph: GraphBuilder, port: Port, spec: UserProcessorSpec, stores: Sequence[str], name: str | None, retry: Retry
) -> Port:
    """Adds a processor and its retry topics. Retried records come back to the processor, in the task of their key."""
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    placed = graph.colocated(port, name, key_serde, value_serde)
    retries = Retries.begin(graph, placed, name, retry, "process")
    names, global_names = split_stores(graph, stores)
    waiting = retries.add_store(graph, key_serde) if retry.keep_order else None
    made = graph.stateful(
        RetryingProcessorSpec(spec.kind, spec.supplier, retries.attempts, waiting),
        placed,
        retries.name,
        others=(retries.port,),
        stores=names if waiting is None else (*names, waiting),
        global_stores=global_names,
        key_serde=key_serde,
    )
    retries.end(graph)
    return made


def split_stores(graph: GraphBuilder, stores: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divides names of stores into the names of the task's stores and the names of global stores."""
    names, known = tuple(dict.fromkeys(stores)), graph.topology.global_tables
    return tuple(name for name in names if name not in known), tuple(name for name in names if name in known)


def checked_supplier(
    supplier: Callable[[], Processor], run: Callable[[Callable[[], Processor]], UserProcessor] = UserProcessor
) -> Callable[[], UserProcessor]:
    """The supplier of a node that runs a user's processors. Raises `TopologyError` if `supplier` does not return processors."""
    check_supplier(supplier)
    return partial(run, supplier)


# --- The nodes around an operator that retries: the source of its retry topics, and the sinks that write them.
#
# ::
#
#     port ────────▶ operator ────▶ results
#     source ──────▶    │
#       ▲               └─ failed ─▶ route ─▶ sink 1 ─▶ retry topic 1 ─┐
#       │                              ├────▶ sink 2 ─▶ retry topic 2 ─┤
#       │                              └────▶ dead letters             │
#       └──────────────── once its delay has passed ◀──────────────────┘


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of one operator, while its nodes are added. `port` is the source of the retried records."""

    name: str
    retry: Retry
    topics: tuple[InternalTopic, ...]
    port: Port

    @classmethod
    def begin(cls, graph: GraphBuilder, port: Port, name: str | None, retry: Retry, method: str) -> Retries:
        """Adds the source of the retry topics. `port` is the operator's other input.

        The operator needs a name, and keys without windows, because retried records of windowed keys would go to another task.
        """
        if name is None:
            raise TopologyError(
                f"{method}(on_error=Retry(...)) needs a name, such as named='ship': the retry topics are named after it, and "
                f"the next version of the program must find their records again."
            )
        key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
        if hasattr(key_serde, "serialize_base_key"):
            raise TopologyError(
                f"'{name}' cannot retry records whose keys are windows: retried records are placed by their whole key. Make "
                f"another key first, such as select_key(lambda key, value: key.key)."
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
        """The retry topics, as the operator needs them."""
        return Attempts(tuple(map(str, self.topics)))

    def add_store(self, graph: GraphBuilder, key_serde: Serde) -> str:
        """Adds the store of the records that wait for a failed record of their key, and returns its name."""
        return graph.store(StoreSpec(f"{self.name}-waiting", StoreKind.KEY_VALUE), key_serde, JsonSerde())

    def end(self, graph: GraphBuilder) -> None:
        """Adds the nodes that write failed records to the retry topics and to the dead letters."""
        route, dead = f"{self.name}-retry", f"{self.name}-dead-letters-sink"
        key_serde, value_serde = self.port.key_serde, self.port.value_serde
        assert key_serde is not None, "see begin"
        assert value_serde is not None, "see begin"
        sinks = (dead, *(f"{topic}-sink" for topic in self.topics))
        graph.topology.add(
            ProcessorNode(
                name=route,
                spec=OperatorSpec(NodeKind.KSTREAM_RETRY, partial(RetryRoute, sinks), one_by_one=True),
                parents=(self.name,),
                key_serde=key_serde,
                value_serde=value_serde,
                takes_dropped=True,
            )
        )
        topics: tuple[Topic, ...] = (self.retry.dead_letters, *self.topics)
        for sink, topic, delay_ms in zip(sinks, topics, (None, *self.retry.delays_ms), strict=True):
            failed = Failed(delay_ms, None if delay_ms is None else self.retry.dead_letters)
            serdes = (key_serde, value_serde) if delay_ms is None else (kept(key_serde), kept(value_serde))
            graph.topology.add(SinkNode(sink, (route,), topic, None, *serdes, failed=failed))


# --- `enrich`: checks the arguments, and adds the operator to a head, where many records are read at once.

EnrichOnError: TypeAlias = "Literal['fail', 'drop'] | Retry | functions.Function"

CONCURRENCY = 16
TIMEOUT_MS = 30_000
"""The default timeout of async functions."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The form of a user's function: whether it is a class (or a partial of one) whose objects are called, and what is called."""

    is_factory: bool
    called: functions.Function
    is_async: bool

    @classmethod
    def of(cls, function: functions.Function) -> _Shape:
        made = function.func if isinstance(function, partial) else function
        if isinstance(made, type):
            if not any("__call__" in vars(base) for base in made.__mro__):
                raise TopologyError(
                    f"enrich({made.__name__}): objects of this class cannot be called; give it a __call__."
                )
            call: Any = made.__call__
            # It is an object of the class that is called, so `self` needs no argument.
            return cls(True, partial(call, None), inspect.iscoroutinefunction(call))
        if not callable(function):
            raise TopologyError(f"enrich takes a function, or a class whose objects are called, not {function!r}.")
        called = made if inspect.isroutine(made) else type(made).__call__
        return cls(False, function, inspect.iscoroutinefunction(called))


@dataclass(frozen=True, slots=True)
class EnrichOptions:
    """The user's settings of `KStream.enrich`."""

    batch_size: int | None
    concurrency: int | None
    timeout: Duration | None
    retries: int
    backoff: Duration
    on_error: EnrichOnError

    def rules(self, shape: _Shape, stop: bool) -> CallRules:
        """Checks the settings and fills in defaults; `stop`: the first failed record ends the calls."""
        batch_size, is_async = self.batch_size, shape.is_async
        timeout = None if self.timeout is None else to_ms(self.timeout, "enrich(timeout=...)")
        return CallRules(
            is_async=is_async,
            takes_key=functions.takes_key(shape.called, many=batch_size is not None),
            batch_size=None if batch_size is None else _whole(batch_size, "batch_size", 1),
            concurrency=_whole(self.concurrency, "concurrency", 1, CONCURRENCY) if is_async else 1,
            timeout_ms=_whole(timeout, "timeout", 1, TIMEOUT_MS) if is_async else None,
            retries=_whole(self.retries, "retries", 0),
            backoff_ms=_whole(to_ms(self.backoff, "enrich(backoff=...)"), "backoff", 0),
            stop=stop,
        )

    def check_sort(self, function: functions.Function, shape: _Shape) -> None:
        """Refuses settings for concurrency with a plain function, which runs in the reader's thread and cannot be stopped."""
        if shape.is_async:
            return
        name = getattr(function, "__name__", type(function).__name__)
        if self.batch_size is None:
            raise TopologyError(
                f"enrich({name}): a function that is called for each record must be `async def`, so that calls run side by side. "
                f"Or give a batch_size, and the function gets a list of values; for a plain function of one value there is "
                f"map_values."
            )
        if self.concurrency is not None or self.timeout is not None:
            raise TopologyError(
                f"enrich({name}): concurrency and timeout are for `async def` functions; a plain one is called for one batch after "
                f"the other, and cannot be stopped. Let its client have a timeout."
            )


def add_enrich(
    graph: GraphBuilder, port: Port, function: functions.Function, options: EnrichOptions, name: str | None
) -> Port:
    """Adds the node to the stream's head or, after a repartition topic, to the head of the next sub-topology."""
    shape = _Shape.of(function)
    options.check_sort(function, shape)
    failing = _on_error(options.on_error)
    rules = options.rules(shape, stop=failing == "fail")
    placed = graph.in_reader(port, name, graph.key_serde(port.key_serde), graph.value_serde(port.value_serde))
    client = UserClient(function, shape.is_factory, shape.is_async)
    if not isinstance(failing, Retry):
        return graph.stateless(EnrichSpec(client, rules, failing), placed, name, new_value=True)
    retries = Retries.begin(graph, placed, name, failing, "enrich")
    spec = EnrichSpec(client, rules, retries.attempts)
    made = graph.stateless(spec, placed, retries.name, others=(retries.port,), new_value=True)
    retries.end(graph)
    return made


def _whole(number: int | None, what: str, least: int, default: int | None = None) -> int:
    number = default if number is None else number
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise TopologyError(f"enrich({what}=...) must be a whole number of at least {least}, not {number!r}.")
    return number


def _on_error(on_error: EnrichOnError) -> Literal["fail", "drop"] | Retry | Callable[[Any, Any, Exception], Any]:
    if isinstance(on_error, Retry):
        if on_error.keep_order:
            raise TopologyError(
                "enrich(on_error=Retry(keep_order=True)): enrich calls for many records at the same time, so a later record of a "
                "key may have its answer before an earlier one fails. Leave keep_order out, or make the call in a processor: "
                "process_values(..., on_error=Retry(keep_order=True))."
            )
        return on_error
    if not isinstance(on_error, str):
        return functions.on_error(on_error)
    if on_error not in ("fail", "drop"):
        raise TopologyError(
            f"enrich(on_error=...) must be 'fail', 'drop', a Retry or a function (value, error) -> value, not {on_error!r}."
        )
    return on_error


# --- `deduplicate`.


def add_deduplicate(
    graph: GraphBuilder,
    port: Port,
    within: Duration,
    by: Callable[[Any, Any], Any] | None,
    grace: Duration,
    key_serde: Serde | None,
    name: str | None,
) -> Port:
    """Adds a node with a window store of the records that have passed."""
    within_ms, grace_ms = to_ms(within, "deduplicate(within=...)"), to_ms(grace, "deduplicate(grace=...)")
    if within_ms <= 0 or grace_ms < 0:
        raise TopologyError(
            f"deduplicate() needs a `within` larger than zero and a `grace` that is not negative, not {within_ms} ms and "
            f"{grace_ms} ms."
        )
    key_serde = graph.key_serde(key_serde, port.key_serde)
    placed = graph.colocated(port, name, key_serde, graph.value_serde(port.value_serde))
    spec = DeduplicateSpec(within_ms, grace_ms, by)
    node = name or stateful_name(spec.kind, placed.lineage, spec.parameters)
    store_spec = StoreSpec(f"{node}-store", StoreKind.WINDOW, retention_ms=within_ms + grace_ms, persistent=None)
    store_key: Serde = key_serde if by is None else CombinedKeySerde(key_serde, JsonIdSerde())
    store = graph.store(store_spec, store_key, JsonSerde())
    return graph.stateful(spec, placed, node, stores=(store,), key_serde=key_serde, value_serde=port.value_serde)


# --- `dropped()`: the stream of the records that an operator dropped.


def add_dropped(graph: GraphBuilder, port: Port, name: str | None) -> Port:
    """Adds a node that receives the records dropped by the operator of `port`."""
    nodes = _dropping(graph, port)
    for node in nodes:
        # An operator on columns has no records to forward, so it becomes one on records.
        graph.change_spec(node.name, node.spec.by_record())
    spec = OperatorSpec(NodeKind.KSTREAM_DROPPED, PassThrough)
    name = name or stateless_name(spec.kind, port.lineage, graph.topology.nodes)
    graph.topology.add(
        ProcessorNode(
            name=name,
            spec=spec,
            parents=tuple(node.name for node in nodes),
            key_serde=(key_serde := _key_serde(graph, nodes[0])),
            value_serde=(value_serde := _value_serde(graph, nodes)),
            takes_dropped=True,
        )
    )
    # A stateless operator drops records in the reader, and may drop others in another attempt.
    in_head = port.in_head and all(node.stateless for node in nodes)
    repeatable = all(node.spec.repeatable for node in nodes)
    # A dropped record is in the task of the operator's input, even if the operator makes new keys.
    needs_repartition = any(node.name in graph.inputs_to_repartition for node in nodes)
    return Port(name, key_serde, value_serde, port.lineage, in_head, needs_repartition, repeatable)


def _dropping(graph: GraphBuilder, port: Port) -> list[ProcessorNode]:
    """The operator that the port belongs to; for a join or cogroup, the operators of all sides."""
    made = graph.topology.nodes[port.node]
    names = made.spec.dropped_by(made.name, made.parents) if isinstance(made, ProcessorNode) else ()
    found = [graph.topology.nodes[name] for name in names]
    nodes = [node for node in found if isinstance(node, ProcessorNode) and (node.spec.drops or not node.stateless)]
    if not nodes:
        raise TopologyError(
            f"'{port.node}' drops nothing: call dropped() directly on the result of a join, an aggregation, a table, "
            f"deduplicate() or enrich(on_error='drop')."
        )
    return nodes


def _key_serde(graph: GraphBuilder, node: ProcessorNode) -> Serde | None:
    """The serde of an operator's input keys."""
    if node.input_key_serde is not None:
        return node.input_key_serde
    if not node.key_changing:
        return node.key_serde
    above = graph.topology.nodes[node.parents[0]]
    return above.key_serde if isinstance(above, ProcessorNode | SourceNode) else None


def _value_serde(graph: GraphBuilder, nodes: list[ProcessorNode]) -> Serde | None:
    """The serde of the operators' input values; None if it is unknown or differs between them."""
    above = [graph.topology.nodes[parent] for node in nodes for parent in node.parents]
    serdes = [node.value_serde if isinstance(node, ProcessorNode | SourceNode) else None for node in above]
    # When a grouped table drops a row, its new value is forwarded.
    serdes = [serde.inner if isinstance(serde, ChangeSerde) else serde for serde in serdes]
    return serdes[0] if all(serde == serdes[0] for serde in serdes) else None


def add_sink(
    graph: GraphBuilder, name: str, topic: str | Callable[..., str], above: Sequence[Port], how: Produced
) -> None:
    """Adds a node that writes to a topic, or each record to the topic that the function returns."""
    keys, values = cast("Serde | None", how.key_serde), cast("Serde | None", how.value_serde)
    sink = SinkNode(
        name,
        tuple(port.node for port in above),
        check_topic(topic) if isinstance(topic, str) else None,
        None if isinstance(topic, str) else functions.topic_extractor(topic),
        graph.key_serde(keys, above[0].key_serde),
        graph.value_serde(values, above[0].value_serde),
        how.partitioner,
    )
    graph.topology.add(sink)
