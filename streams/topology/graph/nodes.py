"""Nodes, stores and global tables of a graph, and its sinks and sources outside Kafka, as frozen values.

Nothing runs here: each node has a spec, picklable by cloudpickle, from which the task makes its operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from state.stores.spec import StoreSpec
from streams.migration_hints import AnswersUnknownNames
from streams.model.table_columns import RowLayout
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, TimestampExtractor
from streams.operators.late import wrapped
from streams.operators.processor import AnyProcessor
from streams.operators.wrapped import ProcessorWrapper
from streams.serdes.base import Serde, kept
from streams.serdes.primitives import StringSerde
from streams.sinks.sink import Sink
from streams.topology.naming import INGEST, pattern_name, pattern_text
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, Parameters


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic of the application's own, before its id is known: a repartition topic, unless `ending` says otherwise.

    Attributes:
        name: The name without the application's id and without the suffix.
        partitions: The number of partitions; None: as many as the writing sub-topology has tasks.
        delay_ms: In a retry topic, how long after a record was written it is read; None: the topic has no delay.
        added: Why the plan has added the topic (`planning.repartitions`); empty: the program has it.
        ending: The suffix, which says what the topic is for.
    """

    name: str
    partitions: int | None = None
    delay_ms: int | None = None
    added: str = field(default="", compare=False)
    ending: str = "repartition"

    def topic_name(self, application_id: str) -> str:
        """The topic's real name, `<application>-<name>-<ending>` (Kafka Streams' form)."""
        return f"{application_id}-{self}"

    def __str__(self) -> str:
        return f"{self.name}-{self.ending}"


Topic: TypeAlias = str | InternalTopic


@dataclass(frozen=True, slots=True)
class RepartitionOptions:
    """The options of a grouping or a join for the repartition topic before it, if its records need one.

    Attributes:
        name: The topic's name; None: none was given.
    """

    name: str | None
    key_serde: Serde
    value_serde: Serde


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. In a `Graph` a topic may be an `InternalTopic`; in a plan all are real names (`str`).

    `offset_reset` is `"earliest"`, `"latest"`, `"none"`, `"duration:<ms>"` or None for the application's setting.
    With a `pattern`, all matching topics are read; `topics` has the ones that exist at the start, and is empty before.
    `retries` marks the source of an operator's retry topics. It has no part in names and hashes, so a program may begin or stop
    retrying without moving its state.
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
        """The topics for persistent names: the sorted topics, or a name made of the pattern; none for retries."""
        if self.retries:
            return ()
        return tuple(sorted(map(str, self.topics))) if self.pattern is None else (pattern_name(self.pattern),)

    @property
    def parents(self) -> tuple[str, ...]:
        """Returns no parents. A source has the property for code that walks nodes of every kind."""
        return ()

    @property
    def stores(self) -> tuple[str, ...]:
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
        input_key_serde: The serde by which input records are keyed and sent to tasks; None: the input's own.
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
        return self.spec.kind

    @property
    def parameters(self) -> Parameters:
        """The operator's parameters apart from its functions; they are part of the topology hash."""
        return self.spec.parameters

    @property
    def looked_up_table(self) -> str:
        """The store of the table in which the operator, a join, looks records up; empty if there is no such single table."""
        return next(iter((*self.spec.looks_up, *self.global_stores)), "")

    def processor(self) -> AnyProcessor:
        """Makes a new operator, once for each task."""
        operator = partial(self.spec.processor, self.stores)
        return operator() if self.wrapper is None else wrapped(self.wrapper, self.name, operator)


@dataclass(frozen=True, slots=True)
class Failed:
    """What a sink of failed records writes.

    Attributes:
        delay_ms: The delay of the retry topic; None: the sink writes dead letters.
        dead_letters: In a retry topic's sink, the topic for records that are too large to wait.
    """

    delay_ms: int | None = None
    dead_letters: str | None = None


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes records to a topic, or to the topic that `topic_extractor(key, value, record_context)` returns.

    `partitioner(topic, key, value, partitions)` returns a partition, a collection of partitions (empty: the record is dropped),
    or None for Kafka's default partitioner. `repartitions` marks a user's `repartition`, which drops null keys in compat mode
    unless it `keeps_null_keys` for a join below.
    `failed` marks a sink of records on which an operator has failed.
    """

    name: str
    parents: tuple[str, ...]
    topic: Topic | None
    topic_extractor: Callable[[Any, Any, Any], str] | None
    key_serde: Serde
    value_serde: Serde
    partitioner: Callable[[str, Any, Any, int], int | Collection[int] | None] | None = None
    repartitions: bool = False
    keeps_null_keys: bool = False
    failed: Failed | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        return ()


def through_topic(
    topic: InternalTopic,
    parent: str,
    key_serde: Serde,
    value_serde: Serde,
    partitioner: Callable[[str, Any, Any, int], int | Collection[int] | None] | None = None,
    repartitions: bool = False,
) -> tuple[SinkNode, SourceNode]:
    """Makes the two nodes of a repartition topic: a sink that ends one sub-topology, and a source that begins another."""
    keys, values = kept(key_serde), kept(value_serde)
    sink = SinkNode(f"{topic}-sink", (parent,), topic, None, keys, values, partitioner, repartitions)
    return sink, SourceNode(f"{topic}-source", (topic,), key_serde, value_serde)


@dataclass(frozen=True, slots=True)
class StoreNode(AnswersUnknownNames):
    """A store and its serdes.

    Attributes:
        window_size_ms: The length of the windows in a processor's window store, ms, if the program gives it. Rows are then shown
            with the ends of their windows. It changes no row.
    """

    spec: StoreSpec
    key_serde: Serde
    value_serde: Serde
    window_size_ms: int | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class GivenRows:
    """All rows of a global table, given by the program. The driver writes the changed ones to the changelog of its store.

    Attributes:
        name: The name of the table and its store.
        frame: An object with the rows as Arrow columns (`__arrow_c_stream__`), or `frame(spark)`, which makes it at each start.
        key: The columns of the key.
        key_serde: How keys are written.
        value_serde: How values are written.
    """

    name: str
    frame: Any = field(compare=False, repr=False)
    key: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde

    @property
    def text(self) -> str:
        """Names the object or function that has the rows, for descriptions."""
        name = getattr(self.frame, "__qualname__", type(self.frame).__qualname__)
        return (
            f"the function {name}"
            if callable(self.frame)
            else f"a {type(self.frame).__module__.partition('.')[0]} {name}"
        )

    @property
    def topic(self) -> InternalTopic:
        """The changelog, before the application's id is known. Rows are few, so it has one partition."""
        return InternalTopic(self.name, 1, ending="changelog")


@dataclass(frozen=True, slots=True)
class GlobalTable:
    """A table that every task has a full copy of; each process that runs tasks reads it once.

    Attributes:
        name: The name of the node that fills the table.
        source: The source that reads the topic.
        store: The table's store, whose changelog is the topic itself.
        supplier: Makes the processor that fills the store; None: the store has the last value of each key.
        given: The rows, if the program gives them; None: other programs write the topic.
    """

    name: str
    source: SourceNode
    store: StoreNode
    supplier: Callable[[], AnyProcessor] | None = None
    given: GivenRows | None = None

    @property
    def lasting_topic(self) -> str:
        """The topic for descriptions, which have no application id."""
        return str(self.source.topics[0] if self.given is None else self.given.topic)


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


# --- Sinks outside Kafka, each of which is written by a query of its own.


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The Delta table that a lake sink writes.

    Attributes:
        name: A path or URI, or a name in Spark's catalog.
        is_path: Whether the name is a path or URI.
        partition_by: The columns that the table is partitioned by.
        add_columns: Whether columns that an existing table lacks are added.
        records_per_file: About how many records of one commit share a file.
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
    """A sink outside Kafka: an internal topic, and a target to which a query of its own writes the topic's rows.

    Attributes:
        name: The sink's name.
        layout: The columns.
        target: The table, the store, or the function that gets each batch as a DataFrame with the batch's number.
    """

    name: str
    topic: InternalTopic
    layout: RowLayout
    target: DeltaTable | Sink | Callable[[Any, int], object]

    @property
    def keeps_position(self) -> bool:
        """Whether the target also keeps the position. A function does not, and relies on Spark's checkpoint."""
        return isinstance(self.target, DeltaTable | Sink)

    @property
    def target_text(self) -> str:
        """Names the target, for descriptions."""
        if isinstance(self.target, DeltaTable):
            return f"delta table {self.target.name}"
        if isinstance(self.target, Sink):
            return self.target.target
        return f"function {getattr(self.target, '__qualname__', type(self.target).__qualname__)}"


# --- A source outside Kafka, as a topology declares it.


@dataclass(frozen=True, slots=True)
class Ingest:
    """A source outside Kafka: rows of a DataFrame, which a query of its own writes to an internal topic.

    Attributes:
        name: The source's name, which its internal topic, its commits and its checkpoint are named after.
        partitions: The number of partitions of the internal topic, and of the tasks that write it.
        frame: `frame(spark)` makes the DataFrame, streaming or static.
        key: The columns of the key; empty: records have no key.
        key_serde: How keys are written.
        value_serde: How values are written.
        timestamp: The column of the timestamp; None: the time of the change, or of the batch.
        change_feed: Whether rows are changes, with the names of Delta's change data feed.
        delta: Whether a Delta table is read.
    """

    name: str
    partitions: int
    frame: Callable[[Any], Any]
    key: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde
    timestamp: str | None = None
    change_feed: bool = False
    delta: bool = False

    @property
    def lasting_name(self) -> str:
        """The name of its commits topic (`<app>-<this>-commits`), transactional ids and checkpoint folder."""
        return self.name + INGEST

    @property
    def plain_key(self) -> bool:
        """Whether the key is the text of one column."""
        return len(self.key) == 1 and isinstance(self.key_serde, StringSerde)
