"""`Graph`: nodes in the order in which they were added, and the checks of each addition.

Invariants: parents are added before their children, so the order of insertion is a topological one; the children of a node run in
that order, depth first (Kafka Streams' order); names of nodes are unique, and so are names of stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.topology.graph.nodes import (
    DeltaTable,
    GlobalTable,
    Ingest,
    InternalTopic,
    LakeSink,
    Node,
    RepartitionOptions,
    SinkNode,
    SourceNode,
    StoreNode,
)
from streams.users_code import calling_line


@dataclass(frozen=True)
class Graph:
    """Nodes, stores and global tables, which a builder adds and the planner divides. Users get the subclass `Topology`.

    Attributes:
        nodes: All nodes by name, parents first.
        stores: All stores by name, without the stores of global tables.
        global_tables: All global tables by the names of their stores.
        lake_sinks: All sinks outside Kafka by name.
        ingests: All sources outside Kafka by name.
        default_key_serde: The serde for keys without one.
        default_value_serde: The serde for values without one.
        repartition_options: Node -> the options of the groupings and joins below it, in case records have to cross a repartition
            topic.
        repartitioned: If repartition topics were added (`planning.repartitions`): for each source followed by one, the first name
            of its subscription, and why. None: no topics were added.
        declared_at: The line of the program that added each node and store, for messages.
    """

    default_key_serde: Serde
    default_value_serde: Serde
    nodes: dict[str, Node] = field(default_factory=dict)
    stores: dict[str, StoreNode] = field(default_factory=dict)
    global_tables: dict[str, GlobalTable] = field(default_factory=dict)
    lake_sinks: dict[str, LakeSink] = field(default_factory=dict)
    ingests: dict[str, Ingest] = field(default_factory=dict)
    repartition_options: dict[str, tuple[RepartitionOptions, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    repartitioned: Mapping[str, str] | None = None
    declared_at: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def needs_delta(self) -> bool:
        """Whether a source or a sink is a Delta table, for which Spark's session must be started with Delta Lake."""
        reads = any(ingest.delta for ingest in self.ingests.values())
        return reads or any(isinstance(sink.target, DeltaTable) for sink in self.lake_sinks.values())

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that a node forwards to, in the order in which they run."""
        return tuple(node.name for node in self.nodes.values() if name in node.parents)

    def sources(self, names: Iterable[str] | None = None) -> Iterator[SourceNode]:
        """The sources among these nodes, or all sources in the order in which they were added."""
        nodes = self.nodes.values() if names is None else (self.nodes[name] for name in names)
        return (node for node in nodes if isinstance(node, SourceNode))

    def sinks(self) -> Iterator[SinkNode]:
        """The sinks, in the order in which they were added."""
        return (node for node in self.nodes.values() if isinstance(node, SinkNode))

    def add(self, node: Node) -> None:
        """Adds a node. Raises `TopologyError` if its name is taken, or a parent or store is unknown."""
        if node.name in self.nodes:
            raise TopologyError(
                f"Two nodes are called '{node.name}'{self._first(node.name)}. Generated names hold no counter, so that a changed "
                f"topology keeps its state: name one of the two (named=..., Materialized(name=...), StreamJoined(name=...))."
            )
        for parent in node.parents:
            if parent not in self.nodes:
                raise TopologyError(
                    f"Node '{node.name}' has the parent '{parent}', which is not part of this topology."
                )
        for store in node.stores:
            if store not in self.stores:
                known = ", ".join(sorted(self.stores)) or "none"
                raise TopologyError(
                    f"Node '{node.name}' uses the store '{store}', which does not exist. Known: {known}. Add it first, "
                    f"with add_state_store(Stores.key_value_store('{store}', key_serde, value_serde))."
                )
        self.nodes[node.name] = node
        self._declare(node.name)

    def add_store(self, store: StoreNode) -> None:
        """Adds a store. Raises `TopologyError` if its name is taken."""
        if store.name in self.stores or store.name in self.global_tables:
            raise TopologyError(
                f"Two stores are called '{store.name}'{self._first(store.name)}. The same call twice on the same stream gives "
                f"the same table: use the first one's result twice, or give one store a different name with "
                f"Materialized(name=...) or StreamJoined(store_name=...)."
            )
        self.stores[store.name] = store
        self._declare(store.name)

    def _declare(self, name: str) -> None:
        if line := calling_line():
            self.declared_at[name] = line

    def _first(self, name: str) -> str:
        line = self.declared_at.get(name)
        return f", the first one in {line}" if line else ""

    def add_global(self, table: GlobalTable) -> None:
        """Adds a global table. Raises `TopologyError` if the store's name is taken, or the topic is already read."""
        if table.store.name in self.stores or table.store.name in self.global_tables:
            raise TopologyError(
                f"Two stores are called '{table.store.name}': name the global table's with Materialized(name=...)."
            )
        (topic,) = table.source.topics
        readers = [*self.sources(), *(other.source for other in self.global_tables.values())]
        if any(topic in source.topics for source in readers):
            raise TopologyError(
                f"The topic '{topic}' cannot be read as a global table, because it is read already: a topic is either read "
                f"by tasks or is a global table, once."
            )
        self.global_tables[table.store.name] = table

    def add_lake_sink(self, sink: LakeSink) -> None:
        """Adds a sink outside Kafka. Raises `TopologyError` if its name is taken."""
        if sink.name in self.lake_sinks:
            raise TopologyError(
                f"Two lake sinks are called '{sink.name}': give one of them a different name with named=..., which its internal "
                f"topic and its commits are called after."
            )
        self.lake_sinks[sink.name] = sink
        self._declare(sink.name)

    def add_ingest(self, ingest: Ingest) -> None:
        """Adds a source outside Kafka. Raises `TopologyError` if its name is taken."""
        if ingest.name in self.ingests or ingest.name in self.lake_sinks:
            raise TopologyError(
                f"Two sources or sinks outside Kafka are called '{ingest.name}': give one of them a different name with "
                f"named=..., which its internal topic and its commits are called after."
            )
        self.ingests[ingest.name] = ingest
        self._declare(ingest.name)

    def internal_topics(self) -> Iterator[InternalTopic]:
        """The topics of records on their way within the application: to sources, and to sinks outside Kafka."""
        for source in self.sources():
            yield from (topic for topic in source.topics if isinstance(topic, InternalTopic))
        yield from (sink.topic for sink in self.lake_sinks.values())
