"""User-defined processors within the DSL: `KStream.process` and `process_values`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from streams.dsl.nodes.derived_serdes import derived_key
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.result_types import forwarded_types
from streams.dsl.nodes.retry import Retries
from streams.dsl.options.retry import Retry
from streams.errors import TopologyError
from streams.operators.process.fixed_key import FixedKeyProcessor
from streams.operators.process.signatures import check_supplier
from streams.operators.process.user_processor import UserProcessor
from streams.operators.processor import Processor
from streams.topology.naming import stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import Parameters
from streams.topology.specs.streams import RetryingProcessorSpec, UserProcessorSpec

OnError: TypeAlias = Literal["fail"] | Retry
"""What becomes of a record that a processor fails on; `fail`: the processing policy decides."""


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
    graph: GraphBuilder,
    port: Port,
    spec: UserProcessorSpec,
    stores: Sequence[str],
    name: str | None,
    on_error: OnError,
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
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
    )


def _add_retrying(
    graph: GraphBuilder,
    port: Port,
    spec: UserProcessorSpec,
    stores: Sequence[str],
    name: str | None,
    retry: Retry,
) -> Port:
    """Adds a processor between its retry topics: their records come back to it, in the task of their key."""
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
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
    )
    retries.end(graph)
    return made


def split_stores(graph: GraphBuilder, stores: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divides the names of stores into those of the task's own stores and those of global stores."""
    names, known = tuple(dict.fromkeys(stores)), graph.topology.global_tables
    return tuple(name for name in names if name not in known), tuple(name for name in names if name in known)


def checked_supplier(
    supplier: Callable[[], Processor], run: Callable[[Callable[[], Processor]], UserProcessor] = UserProcessor
) -> Callable[[], UserProcessor]:
    """Returns the supplier of the node of a user's processor. Raises `TopologyError` if `supplier` does not return processors.

    Args:
        supplier: The user's supplier.
        run: Wraps a user's processor as a node.
    """
    check_supplier(supplier)
    return partial(run, supplier)
