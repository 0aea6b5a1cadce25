"""Adds nodes for streams and tables, and describes the output of each node as a `Port`.

Every call adds its nodes at once (so that children run in the order of the calls) and returns the port after them. A port also
knows whether records are in the task of their key. In the head, keys may change freely, since the shuffle follows. After a stateful
operator, a changed key leaves records in the wrong task until they go through a repartition topic (`colocated`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_

from state.stores.spec import StoreSpec
from streams.dsl.nodes.inferred_types import (
    Type,
    check_fields,
    derived_key,
    derived_value,
    result_type,
    taken,
    without_mark,
)
from streams.errors import TopologyError
from streams.model.typing import Partitioner
from streams.operators.late import wrapped
from streams.operators.wrapped import ProcessorWrapper
from streams.serdes.base import Serde
from streams.topology.graph import (
    GlobalTable,
    Graph,
    InternalTopic,
    Node,
    ProcessorNode,
    RepartitionOptions,
    SinkNode,
    SourceNode,
    StoreNode,
    through_topic,
)
from streams.topology.naming import Lineage, numbered, stateful_name, stateless_name
from streams.topology.specs.base import NodeSpec
from streams.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Port:
    """The output of a node.

    Attributes:
        node: The node's name.
        key_serde, value_serde: The serdes. For objects made by an operator: a `DerivedSerde` if their type is known, else None.
        lineage: The origin of the records, for names.
        in_head: Whether all nodes above are stateless.
        needs_repartition: Whether the key was changed after an operator that is stateful or not repeatable.
        repeatable: Whether all nodes above, since the last topic, are repeatable (`NodeSpec.repeatable`).
    """

    node: str
    key_serde: Serde | None
    value_serde: Serde | None
    lineage: Lineage
    in_head: bool = True
    needs_repartition: bool = False
    repeatable: bool = True


def lineage_of(*ports: Port) -> Lineage:
    """The combined origin of the records of several ports."""
    return reduce(or_, (port.lineage for port in ports))


@dataclass
class GraphBuilder:
    """The topology under construction.

    Attributes:
        topology: The nodes and stores that have been added so far.
        optimize: Whether a self-join uses one store.
        open_splits: Splits that `default_branch()` or `no_default_branch()` has not completed yet.
        inputs_to_repartition: Stateful nodes whose input records are not in the task of their key.
    """

    topology: Graph
    optimize: bool = False
    open_splits: set[str] = field(default_factory=set)
    inputs_to_repartition: set[str] = field(default_factory=set)
    _repartitioned: list[tuple[tuple[Port, Serde, Serde], Port]] = field(default_factory=list)

    def key_serde(self, *candidates: Serde | None) -> Serde:
        """The first named key serde; else a serde for the keys' type; else the builder's default."""
        return taken(candidates, self.topology.default_key_serde)

    def value_serde(self, *candidates: Serde | None) -> Serde:
        """The first named value serde; else a serde for the values' type; else the builder's default."""
        return taken(candidates, self.topology.default_value_serde)

    def serde_of_values(self, kind: Type) -> Serde | None:
        """The serde for values of a type if none is named; None: the builder's default."""
        return derived_value(kind, self.topology.default_value_serde)

    def typed(self, port: Port, fn: Callable[..., object], *serdes: Serde | None) -> Port:
        """The port of a join whose values are the results of `fn`, with a serde for their type if it is known."""
        check_fields(fn, port.node, *serdes)
        return replace(port, value_serde=self.serde_of_values(result_type(fn, *serdes)))

    def source(self, source: SourceNode) -> Port:
        """Adds a source, or finds the existing one that reads the same topics in the same way."""
        for other in self.topology.sources():
            shared = set(source.subscription) & set(other.subscription)
            if shared and replace(other, name=source.name) != source:
                raise TopologyError(
                    f"The topic '{min(shared)}' is read twice in different ways, by '{other.name}' and "
                    f"'{source.name}': subscribe once and use the stream twice, or give both the same topics and the "
                    f"same Consumed."
                )
            if shared:
                return self._source_port(other)
        self.topology.add(source)
        return self._source_port(source)

    def _source_port(self, source: SourceNode) -> Port:
        lineage = Lineage(source.lasting_topics)
        return Port(source.name, source.key_serde, source.value_serde, lineage)

    def stateless(
        self,
        spec: NodeSpec,
        port: Port,
        name: str | None,
        *,
        others: tuple[Port, ...] = (),
        new_key: bool = False,
        new_value: bool = False,
        types: tuple[Type, Type] = (None, None),
    ) -> Port:
        """Adds a stateless operator after one or more ports. New keys and values get a serde for their type if it is known."""
        ports = (port, *others)
        lineage = lineage_of(port, *others)
        name = name or stateless_name(spec.kind, lineage, self.topology.nodes)
        key_serde = None if any(other.key_serde != port.key_serde for other in others) else port.key_serde
        value_serde = None if any(other.value_serde != port.value_serde for other in others) else port.value_serde
        if new_key:
            key_serde = derived_key(types[0], self.topology.default_key_serde, name)
        if new_value:
            value_serde = self.serde_of_values(types[1])
        self.topology.add(
            ProcessorNode(
                name=name,
                spec=spec,
                parents=tuple(dict.fromkeys(parent.node for parent in ports)),
                key_changing=new_key,
                key_serde=without_mark(key_serde),
                value_serde=without_mark(value_serde),
            )
        )
        repeatable = all(parent.repeatable for parent in ports)
        in_head = all(parent.in_head for parent in ports) and (repeatable or not new_key)
        needs_repartition = any(parent.needs_repartition for parent in ports) or (new_key and not in_head)
        return Port(name, key_serde, value_serde, lineage, in_head, needs_repartition, spec.repeatable and repeatable)

    def keyed_by(self, port: Port, key_serde: Serde) -> Port:
        """Sets the serde of the keys that an operator makes, and returns its new port."""
        self.topology.nodes[port.node] = replace(self.operator(port.node), key_serde=key_serde)
        return replace(port, key_serde=key_serde)

    def stateful(
        self,
        spec: NodeSpec,
        port: Port,
        name: str,
        *,
        others: tuple[Port, ...] = (),
        stores: tuple[str, ...] = (),
        global_stores: tuple[str, ...] = (),
        key_serde: Serde,
        value_serde: Serde | None = None,
        input_key_serde: Serde | None = None,
    ) -> Port:
        """Adds a stateful operator after one or more ports; its output stays in its task.

        `input_key_serde` is the serde of the keys that it receives, if it is not the serde of its results' keys.
        """
        lineage = lineage_of(port, *others)
        self.topology.add(
            ProcessorNode(
                name=name,
                spec=spec,
                parents=tuple(dict.fromkeys(parent.node for parent in (port, *others))),
                stores=stores,
                global_stores=global_stores,
                stateless=False,
                key_serde=key_serde,
                value_serde=without_mark(value_serde),
                input_key_serde=input_key_serde or key_serde,
            )
        )
        needs_repartition = any(above.needs_repartition for above in (port, *others))
        if needs_repartition:
            self.inputs_to_repartition.add(name)
        return Port(
            name, key_serde, value_serde, lineage.behind(name), in_head=False, needs_repartition=needs_repartition
        )

    def store(self, spec: StoreSpec, key_serde: Serde, value_serde: Serde) -> str:
        """Adds a store and returns its name."""
        self.topology.add_store(StoreNode(spec, key_serde, value_serde))
        return spec.name

    def materialize(self, node: str, spec: StoreSpec, key_serde: Serde, value_serde: Serde) -> str:
        """Adds a store to a table's node that had none before, and returns the store's name."""
        self.store(spec, key_serde, value_serde)
        table = self.operator(node)
        self.topology.nodes[node] = replace(table, stores=(*table.stores, spec.name), stateless=False)
        return spec.name

    def remove_store(self, node: str, store: str) -> None:
        """Removes a store that no other node uses."""
        table = self.operator(node)
        self.topology.nodes[node] = replace(table, stores=tuple(name for name in table.stores if name != store))
        del self.topology.stores[store]

    def operator(self, name: str) -> ProcessorNode:
        """Returns the node of an operator by its name."""
        node = self.topology.nodes[name]
        assert isinstance(node, ProcessorNode), "sources and sinks are not operators"
        return node

    def change_spec(self, name: str, spec: NodeSpec) -> None:
        """Replaces the spec of an existing operator."""
        self.topology.nodes[name] = replace(self.operator(name), spec=spec)

    def colocated(self, port: Port, name: str | None, key_serde: Serde, value_serde: Serde) -> Port:
        """Returns the port, or a port after a new repartition topic if the records are not in the tasks of their keys.

        Another call without a name for the same port returns the port after the existing repartition topic.
        """
        if port.needs_repartition:
            return self._behind_topic(port, name, key_serde, value_serde)
        known = self.topology.repartition_options.get(port.node, ())
        options = RepartitionOptions(name, key_serde, value_serde)
        self.topology.repartition_options[port.node] = (*known, options)
        return port

    def in_reader(self, port: Port, name: str | None, key_serde: Serde, value_serde: Serde) -> Port:
        """Returns the port, or a port after a new repartition topic if an operator added here would not run in a reader."""
        return port if port.in_head else self._behind_topic(port, name, key_serde, value_serde)

    def _behind_topic(self, port: Port, name: str | None, key_serde: Serde, value_serde: Serde) -> Port:
        if name is not None:
            return self.repartition(port, name, key_serde, value_serde)
        asked = (port, key_serde, value_serde)
        for known, behind in self._repartitioned:  # a list: serdes of users may not be hashable
            if known == asked:
                return behind
        behind = self.repartition(port, stateful_name("KSTREAM-REPARTITION", port.lineage), key_serde, value_serde)
        self._repartitioned.append((asked, behind))
        return behind

    def repartition(
        self,
        port: Port,
        name: str,
        key_serde: Serde,
        value_serde: Serde,
        *,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        asked_for: bool = False,
    ) -> Port:
        """Adds a repartition topic: a sink that ends one sub-topology, and a source that begins another.

        `asked_for`: whether the program has called `repartition` itself.
        """
        topic = InternalTopic(name, partitions)
        sink, source = f"{topic}-sink", f"{topic}-source"
        if sink in self.topology.nodes:
            raise TopologyError(
                f"Two repartition topics are called '{topic}': give one of them a different name with "
                f"Repartitioned(name=...), Grouped(name=...), Joined(name=...), StreamJoined(name=...) or enrich(named=...)."
            )
        for node in through_topic(topic, port.node, key_serde, value_serde, partitioner, asked_for):
            self.topology.add(node)
        return Port(source, key_serde, value_serde, port.lineage.behind(str(topic)))

    def numbered(self, name: str) -> str:
        """Returns the name, with a number if another node has it."""
        return numbered(name, self.topology.nodes)

    def keyed_as(self, port: Port, asked: Serde | None) -> Serde:
        """The serde that decides the task of a port's records.

        Records that come directly from a topic or a stateful operator are placed by the serde of their origin. Records that the
        head or a repartition topic places are placed by the requested serde.
        """
        from_source = isinstance(self.topology.nodes[port.node], SourceNode)
        if (from_source or not port.in_head) and not port.needs_repartition:
            return self.key_serde(port.key_serde)
        return self.key_serde(asked, port.key_serde)


# --- Completes all nodes and stores of a topology: wraps processors, and decides which stores are on disk.


def finalize(graph: Graph, wrapper: ProcessorWrapper | None, persistent: bool) -> Topology:
    """Returns the topology, which later calls of the builder do not change.

    `wrapper` wraps each processor, including the engine's. Wrappers see records, so nothing is then processed as columns.
    `persistent`: whether stores without a setting of their own are on disk instead of in memory.
    """
    nodes, tables = _keeping_null_keys(graph), dict(graph.global_tables)
    if wrapper is not None:
        nodes = {name: _wrapped_node(node, wrapper) for name, node in nodes.items()}
        tables = {name: _wrapped_table(table, wrapper) for name, table in tables.items()}
    return Topology(
        graph.default_key_serde,
        graph.default_value_serde,
        nodes=nodes,
        stores={name: _decided(store, persistent) for name, store in graph.stores.items()},
        global_tables={name: replace(table, store=_decided(table.store, persistent)) for name, table in tables.items()},
        lake_sinks=dict(graph.lake_sinks),
        ingests=dict(graph.ingests),
        repartition_options=dict(graph.repartition_options),
        declared_at=dict(graph.declared_at),
    )


def _keeping_null_keys(graph: Graph) -> dict[str, Node]:
    """All nodes. A repartition is marked if some join below it, however far, takes records without a key (as in Kafka Streams)."""
    nodes = dict(graph.nodes)
    above: set[str | InternalTopic] = set()  # the nodes and repartition topics that lead to such a join
    for node in reversed(graph.nodes.values()):
        if isinstance(node, SourceNode):
            above |= {topic for topic in node.topics if node.name in above and isinstance(topic, InternalTopic)}
        elif isinstance(node, SinkNode) and node.topic in above:
            above |= set(node.parents)
            nodes[node.name] = replace(node, keeps_null_keys=True)
        elif isinstance(node, ProcessorNode) and (node.name in above or node.spec.takes_null_keys):
            above |= set(node.parents)
    return nodes


def _wrapped_node(node: Node, wrapper: ProcessorWrapper) -> Node:
    if not isinstance(node, ProcessorNode):
        return node
    return replace(node, spec=node.spec.by_record(), wrapper=wrapper)


def _wrapped_table(table: GlobalTable, wrapper: ProcessorWrapper) -> GlobalTable:
    if table.supplier is None:
        return table
    return replace(table, supplier=partial(wrapped, wrapper, table.name, table.supplier))


def _decided(store: StoreNode, persistent: bool) -> StoreNode:
    if store.spec.persistent is not None:
        return store
    return replace(store, spec=replace(store.spec, persistent=persistent))
