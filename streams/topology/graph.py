"""The graph that the DSL builds and the planner cuts: frozen nodes, in the order in which they were added.

Invariants: parents are added before their children, so the order of insertion is a topological one; the children of a
node run in that order, depth first (Kafka Streams' order); names are unique over nodes, and over stores. Nothing in
here runs: each node has a spec, picklable by cloudpickle, of which the task makes its operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from state.stores.spec import StoreSpec
from streams.errors import TopologyError
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, TimestampExtractor
from streams.operators.processor import AnyProcessor
from streams.operators.wrapped import ProcessorWrapper, wrapped
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.pattern_name import pattern_name, pattern_text
from streams.topology.specs.base import NodeSpec, Parameters
from streams.users_code import calling_line


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic, before the application's id is known.

    Attributes:
        name: The name without the application's id and without the ending.
        partitions: Their number, or None for as many as the writing sub-topology has tasks.
    """

    name: str
    partitions: int | None = None

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
    With a `pattern` it reads all topics that match it; `topics` are those that were there at the start, none before.
    """

    name: str
    topics: tuple[Topic, ...]
    key_serde: Serde
    value_serde: Serde
    timestamp_extractor: TimestampExtractor = FAIL_ON_INVALID_TIMESTAMP
    offset_reset: str | None = None
    pattern: re.Pattern[str] | None = None

    @property
    def subscription(self) -> tuple[str, ...]:
        """What it reads, as the program says it: its topics, sorted, or its pattern between slashes."""
        return tuple(sorted(map(str, self.topics))) if self.pattern is None else (pattern_text(self.pattern),)

    @property
    def lasting_topics(self) -> tuple[str, ...]:
        """What lasting names are made of: its topics, sorted, or what its pattern is called in topics' names."""
        return tuple(sorted(map(str, self.topics))) if self.pattern is None else (pattern_name(self.pattern),)

    @property
    def parents(self) -> tuple[str, ...]:
        """A source has none; it is here so that every kind of node can be walked alike."""
        return ()

    @property
    def stores(self) -> tuple[str, ...]:
        """A source owns no stores."""
        return ()


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """One operator: what it is, and where it hangs in the graph.

    Attributes:
        name: Unique; the state of a stateful node lasts under it.
        spec: What the node is.
        parents: Names of the nodes that forward to it.
        stores: Names of the stores that it reads or writes, in the order that its spec documents.
        global_stores: Names of the stores of global tables that it reads.
        stateless: Whether it may run in the reader, if all its ancestors may.
        key_changing: Whether its output may have another key than its input.
        key_serde: Of its output's key, None if not known.
        value_serde: Of its output's value, None if not known.
        input_key_serde: Serde by which records on their way to it are keyed and routed; None: that of its input.
        takes_dropped: Whether it gets what its parents drop, and nothing else of them.
        wrapper: Gives what runs in the place of the operator (`StreamsBuilder(processor_wrapper=...)`); None: the operator.
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
        """What the operator does besides its functions: part of the topology hash."""
        return self.spec.parameters

    def processor(self) -> AnyProcessor:
        """A new operator: each task makes its own."""
        operator = partial(self.spec.processor, self.stores)
        return operator() if self.wrapper is None else wrapped(self.wrapper, self.name, operator)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes records to a topic, or to the one that `topic_extractor(key, value, record_context)` names.

    `partitioner(topic, key, value, partitions)` gives a partition, a collection of them (which may be empty: dropped), or
    None for Kafka's default partitioner. `repartitions`: a user's `repartition`, which loses null keys in compat mode.
    """

    name: str
    parents: tuple[str, ...]
    topic: Topic | None
    topic_extractor: Callable[[Any, Any, Any], str] | None
    key_serde: Serde
    value_serde: Serde
    partitioner: Callable[[str, Any, Any, int], int | Collection[int] | None] | None = None
    repartitions: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        """A sink owns no stores."""
        return ()


@dataclass(frozen=True, slots=True)
class StoreNode:
    """A store and the serdes of what is in it."""

    spec: StoreSpec
    key_serde: Serde
    value_serde: Serde

    @property
    def name(self) -> str:
        """The store's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class GlobalTable:
    """A table that every task has as a whole: it is read by no task, but by each process that runs some.

    Attributes:
        name: Of the node that fills it.
        source: What reads its topic.
        store: Its store; the topic is the changelog.
        supplier: Makes the processor that fills the store; None: the store holds the last value of each key.
    """

    name: str
    source: SourceNode
    store: StoreNode
    supplier: Callable[[], AnyProcessor] | None = None


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True)
class Graph:
    """Nodes, stores and global tables: what a builder fills and the planner cuts. What users get is a `Topology`.

    Attributes:
        nodes: All nodes by name, parents first.
        stores: All stores by name, without those of global tables.
        global_tables: All global tables by the names of their stores.
        default_key_serde: For keys whose serde is not given.
        default_value_serde: The same for values.
        declared_at: Lines of the program, by the nodes and stores that they add; for messages.
    """

    default_key_serde: Serde
    default_value_serde: Serde
    nodes: dict[str, Node] = field(default_factory=dict)
    stores: dict[str, StoreNode] = field(default_factory=dict)
    global_tables: dict[str, GlobalTable] = field(default_factory=dict)
    declared_at: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

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
        """Adds a global table. Raises `TopologyError` if its store's name is taken, or its topic is read already."""
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
