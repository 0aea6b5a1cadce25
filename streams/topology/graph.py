"""The graph that the DSL builds and the planner cuts: frozen nodes, in the order in which they were added.

Invariants: parents are added before their children, so the order of insertion is a topological one; the children of a node run in
that order, depth first (Kafka Streams' order); names of nodes are unique, and so are names of stores. Nothing runs here: each
node has a spec, picklable by cloudpickle, from which the task makes its operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from state.stores.spec import StoreSpec
from streams.errors import TopologyError
from streams.model.row_layout import RowLayout
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, TimestampExtractor
from streams.operators.processor import AnyProcessor
from streams.operators.wrapped import ProcessorWrapper, wrapped
from streams.serdes.base import Serde
from streams.topology.ingest import Ingest
from streams.topology.node_kind import NodeKind
from streams.topology.pattern_name import pattern_name, pattern_text
from streams.topology.specs.base import NodeSpec, Parameters
from streams.users_code import calling_line


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic, before the application's id is known.

    Attributes:
        name: The name without the application's id and without the suffix.
        partitions: The number of partitions; None: as many as the writing sub-topology has tasks.
        delay_ms: Of a retry topic: how long after a record was written it is read; None: a topic without a delay.
    """

    name: str
    partitions: int | None = None
    delay_ms: int | None = None

    def topic_name(self, application_id: str) -> str:
        """The topic's real name, `<application>-<name>-repartition` (Kafka Streams' form)."""
        return f"{application_id}-{self.name}-repartition"

    def __str__(self) -> str:
        return f"{self.name}-repartition"


Topic: TypeAlias = str | InternalTopic


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. In a `Graph` a topic may be an `InternalTopic`; in a plan all are real names (`str`).

    `offset_reset` is `"earliest"`, `"latest"`, `"none"`, `"duration:<ms>"` or None for the application's setting.
    With a `pattern`, all matching topics are read; `topics` are those that exist at the start, and empty before.
    `retries` marks the source of an operator's retry topics, which has no part in names and hashes: a program may begin and
    cease to retry without moving its state.
    """

    name: str
    topics: tuple[Topic, ...]
    key_serde: Serde
    value_serde: Serde
    timestamp_extractor: TimestampExtractor = FAIL_ON_INVALID_TIMESTAMP
    offset_reset: str | None = None
    pattern: re.Pattern[str] | None = None
    retries: bool = False

    @property
    def subscription(self) -> tuple[str, ...]:
        """The subscription as in the program: the sorted topics, or the pattern between slashes."""
        return tuple(sorted(map(str, self.topics))) if self.pattern is None else (pattern_text(self.pattern),)

    @property
    def lasting_topics(self) -> tuple[str, ...]:
        """The topics for persistent names: the sorted topics, or the pattern's name in names of topics; none for retries."""
        if self.retries:
            return ()
        return tuple(sorted(map(str, self.topics))) if self.pattern is None else (pattern_name(self.pattern),)

    @property
    def parents(self) -> tuple[str, ...]:
        """A source has no parents; the property exists for code that walks nodes of every kind."""
        return ()

    @property
    def stores(self) -> tuple[str, ...]:
        """A source owns no stores."""
        return ()


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """One operator and its position in the graph.

    Attributes:
        name: The node's unique name, under which the state of a stateful node is stored.
        spec: The definition of the node.
        parents: Names of the nodes that forward to it.
        stores: Names of the stores that the node reads or writes, in the order that its spec documents.
        global_stores: Names of the stores of global tables that the node reads.
        stateless: Whether the node may run in the reader if all its ancestors may.
        key_changing: Whether the output may have another key than the input.
        key_serde: The serde of the output's keys, None if unknown.
        value_serde: The serde of the output's values, None if unknown.
        input_key_serde: The serde by which input records are keyed and routed; None: that of the input.
        takes_dropped: Whether the node receives only the records that its parents drop.
        wrapper: Wraps the operator (`StreamsBuilder(processor_wrapper=...)`); None: no wrapper.
    """

    name: str
    spec: NodeSpec
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()
    global_stores: tuple[str, ...] = ()
    stateless: bool = True
    key_changing: bool = False
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    input_key_serde: Serde | None = None
    takes_dropped: bool = False
    wrapper: ProcessorWrapper | None = None

    @property
    def kind(self) -> NodeKind:
        """The sort of operator."""
        return self.spec.kind

    @property
    def parameters(self) -> Parameters:
        """The operator's parameters besides its functions, which are part of the topology hash."""
        return self.spec.parameters

    def processor(self) -> AnyProcessor:
        """Makes a new operator, once for each task."""
        operator = partial(self.spec.processor, self.stores)
        return operator() if self.wrapper is None else wrapped(self.wrapper, self.name, operator)


@dataclass(frozen=True, slots=True)
class Failed:
    """What a sink of failed records writes.

    Attributes:
        delay_ms: The delay of the retry topic; None: dead letters.
    """

    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes records to a topic, or to the topic that `topic_extractor(key, value, record_context)` returns.

    `partitioner(topic, key, value, partitions)` returns a partition, a collection of partitions (empty: the record is dropped),
    or None for Kafka's default partitioner. `repartitions` marks a user's `repartition`, which drops null keys in compat mode.
    `failed` marks a sink of records that an operator has failed on.
    """

    name: str
    parents: tuple[str, ...]
    topic: Topic | None
    topic_extractor: Callable[[Any, Any, Any], str] | None
    key_serde: Serde
    value_serde: Serde
    partitioner: Callable[[str, Any, Any, int], int | Collection[int] | None] | None = None
    repartitions: bool = False
    failed: Failed | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """A sink owns no stores."""
        return ()


@dataclass(frozen=True, slots=True)
class StoreNode:
    """A store and its serdes."""

    spec: StoreSpec
    key_serde: Serde
    value_serde: Serde

    @property
    def name(self) -> str:
        """The store's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class GlobalTable:
    """A table of which every task has a full copy; each process that runs tasks reads it once.

    Attributes:
        name: The name of the node that fills the table.
        source: The source that reads the topic.
        store: The table's store, whose changelog is the topic itself.
        supplier: Makes the processor that fills the store; None: the store has the last value of each key.
    """

    name: str
    source: SourceNode
    store: StoreNode
    supplier: Callable[[], AnyProcessor] | None = None


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The Delta table that a lake sink writes.

    Attributes:
        name: A path or URI, or a name in Spark's catalog.
        is_path: Whether the name is a path or URI.
        partition_by: The columns that the table is partitioned by.
        add_columns: Whether columns that an existing table lacks are added.
        records_per_file: How many records of one commit share a file, about.
        optimize_every: After how many commits small files are compacted; None: never.
        properties: Properties of a table that the sink creates.
    """

    name: str
    is_path: bool
    partition_by: tuple[str, ...] = ()
    add_columns: bool = False
    records_per_file: int = 1_000_000
    optimize_every: int | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A sink outside Kafka: an internal topic, and what a query of its own does with the rows in it.

    Attributes:
        name: The sink's name.
        topic: The internal topic.
        layout: The columns.
        target: The table, or the function that gets each batch as a DataFrame with the batch's number.
    """

    name: str
    topic: InternalTopic
    layout: RowLayout
    target: DeltaTable | Callable[[Any, int], object]

    @property
    def target_text(self) -> str:
        """What the sink writes to, for descriptions."""
        if isinstance(self.target, DeltaTable):
            return f"delta table {self.target.name}"
        return f"function {getattr(self.target, '__qualname__', type(self.target).__qualname__)}"


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True)
class Graph:
    """Nodes, stores and global tables, which a builder adds and the planner divides. Users get the subclass `Topology`.

    Attributes:
        nodes: All nodes by name, parents first.
        stores: All stores by name, without those of global tables.
        global_tables: All global tables by the names of their stores.
        lake_sinks: All sinks outside Kafka by name.
        ingests: All sources outside Kafka by name.
        default_key_serde: The serde for keys without one.
        default_value_serde: The serde for values without one.
        declared_at: The line of the program that added each node and store, for messages.
    """

    default_key_serde: Serde
    default_value_serde: Serde
    nodes: dict[str, Node] = field(default_factory=dict)
    stores: dict[str, StoreNode] = field(default_factory=dict)
    global_tables: dict[str, GlobalTable] = field(default_factory=dict)
    lake_sinks: dict[str, LakeSink] = field(default_factory=dict)
    ingests: dict[str, Ingest] = field(default_factory=dict)
    declared_at: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def needs_delta(self) -> bool:
        """Whether a source or a sink is a Delta table, for which Spark's session must be started with Delta Lake."""
        reads = any(ingest.delta for ingest in self.ingests.values())
        return reads or any(isinstance(sink.target, DeltaTable) for sink in self.lake_sinks.values())

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that a node forwards to, in the order in which they run."""
        return tuple(node.name for node in self.nodes.values() if name in node.parents)

    def sources(self) -> Iterator[SourceNode]:
        """The sources, in the order in which they were added."""
        return (node for node in self.nodes.values() if isinstance(node, SourceNode))

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
                f"the same table: use the first one's result twice, or give one store a name of its own with "
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
                f"Two lake sinks are called '{sink.name}': give one of them a name of its own with named=..., which its internal "
                f"topic and its commits are called after."
            )
        self.lake_sinks[sink.name] = sink
        self._declare(sink.name)

    def add_ingest(self, ingest: Ingest) -> None:
        """Adds a source outside Kafka. Raises `TopologyError` if its name is taken."""
        if ingest.name in self.ingests or ingest.name in self.lake_sinks:
            raise TopologyError(
                f"Two sources or sinks outside Kafka are called '{ingest.name}': give one of them a name of its own with "
                f"named=..., which its internal topic and its commits are called after."
            )
        self.ingests[ingest.name] = ingest
        self._declare(ingest.name)

    def internal_topics(self) -> Iterator[InternalTopic]:
        """The topics that hold records on their way within the application: to sources, and to sinks outside Kafka."""
        for source in self.sources():
            yield from (topic for topic in source.topics if isinstance(topic, InternalTopic))
        yield from (sink.topic for sink in self.lake_sinks.values())
