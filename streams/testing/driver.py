"""`TopologyTestDriver`: runs a topology in memory, with the head, tasks, operators, stores and commits of production.

The driver differs from the one of Kafka Streams in four ways: topics may have several partitions, and sub-topologies several
tasks; `batch()` processes many records in one step; `restart()` stops the application and restores it from its changelogs;
and `crash_at()` ends a task's process at a given point of a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, get_args

from state.changelog import commits_topic
from state.errors import CheckpointMismatchError
from state.headers import encode_headers
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition
from state.restore.place import CopiedTask
from state.restore.task_stores import TaskStateManager
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.application.markers import placed_marker
from streams.application.prepare import begins_live, with_tasks
from streams.application.rescale.plan import Handling, UsersChoices
from streams.config import Execution, StreamsConfig
from streams.engine.graph.event_time import IN_MICROSECONDS, IN_SECONDS, unit_warning
from streams.engine.graph.global_tables import GlobalTables, global_store_specs
from streams.engine.graph.settings import Counters, Policy, TaskSettings
from streams.errors import ConfigError
from streams.metrics.application import NodeMetrics, node_metrics
from streams.migration_hints import OF_THE_APPLICATION
from streams.model.record import TimestampLike, to_timestamp_ms
from streams.model.typing import K, V
from streams.model.windows import Duration, to_ms
from streams.operators.operator import Mode
from streams.serdes.base import Serde
from streams.serve.copies import GlobalCopy, TaskCopy
from streams.serve.served import Served, replica_task
from streams.testing.memory import FolderDisks, MemoryDisks, MemoryGlobalTables, MemoryTopics
from streams.testing.query import DriverQuery, RequestedCrashes, rescale
from streams.testing.simulation import SimulatedKafka
from streams.testing.stores import DriverStores, TaskStores
from streams.testing.topics import KnownTopics, PipedRecord, TestInputTopic, TestOutputTopic
from streams.topology.plan import Plan, SubTopology, build_plan, with_needed_topics, with_real_tables
from streams.topology.planning.repartitions import Placed
from streams.topology.rewrite import has_patterns, with_matching_topics
from streams.topology.topology import Topology, check_topology
from streams.wording import did_you_mean

_log = logging.getLogger(__name__)

# --- The stores of a test driver as they are served: over copies of their own, which follow the driver's commits before each look.


def served_by_driver(
    topology: Topology, settings: TaskSettings, kafka: SimulatedKafka, queries: Sequence[DriverQuery]
) -> Served:
    """Serves the stores of a driver's queries, with as many tasks as they have now."""
    app = settings.application_id
    stateful = [query for query in queries if query.sub.stores]
    tasks = {query.sub.name: query.tasks for query in stateful}
    disks = MemoryDisks()

    def make(task: CopiedTask) -> TaskStateManager:
        return disks.stores(kafka, task.place.identity(), list(task.specs), 0)

    copies: dict[TopicPartition, TaskCopy] = {}
    for query in stateful:
        for number in range(query.tasks):
            task = replica_task(app, query.sub, number, query.tasks)
            copies[commits_topic(app, query.sub.name), number] = TaskCopy(kafka, task, make)

    def forward() -> Mapping[TopicPartition, TaskCopy]:
        for copy in copies.values():
            copy.bring_forward()
        return copies

    tables = list(topology.global_tables.values())
    store = TaskStore(MemoryTable(), global_store_specs(tables), MemoryTable())
    global_copy = GlobalCopy(kafka, GlobalTables(tables, store, settings, lambda: 0), store, lambda: 0)

    def global_forward() -> GlobalCopy:
        global_copy.bring_forward()
        return global_copy

    def placement_of(sub: str) -> Placement | None:
        marker = placed_marker(kafka, commits_topic(app, sub), range(tasks[sub]))
        return None if marker is None else Placement(marker.placement)

    subs = [query.sub for query in stateful]
    return Served(topology, app, subs, tasks, forward, kafka, global_forward, placement_of)


_OF_A_CLUSTER = ("placement", "placements")
"""Settings of tasks that follow from the contents of a cluster's topics; results do not depend on them."""
_RUNTIME = {field.name: str(field.type) for field in fields(TaskSettings) if field.name not in _OF_A_CLUSTER}
_OF_A_START = frozenset(StreamsConfig.model_fields)
_POLICIES = (
    "'fail' (the step fails), 'skip' (the record is left out and counted) or 'dlq' (it goes to dead_letter_topic)"
)


def merged_settings(settings: Mapping[str, Any] | StreamsConfig | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Merges settings and keywords; keywords take precedence, unless they are None.

    Args:
        settings: Settings by their names in `StreamsConfig`, or a `StreamsConfig`, whose defaults are ignored.
        keywords: The same settings, and settings that only tests have.

    Raises:
        ConfigError: A setting is unknown, or its value is invalid.
    """
    if isinstance(settings, StreamsConfig):
        settings = {name: getattr(settings, name) for name in settings.model_fields_set}
    merged = {**(settings or {}), **{name: value for name, value in keywords.items() if value is not None}}
    for name in merged:
        if name not in _RUNTIME and name not in _OF_A_START:
            known = name.replace(".", "_")
            here = OF_THE_APPLICATION.get(known)
            hint = did_you_mean(known, {*_RUNTIME, *_OF_A_START}) if here is None else f" Here {here}."
            raise ConfigError(f"there is no setting {name!r} of a topology.{hint}")
    return {name: _checked(name, value) for name, value in merged.items()}


def task_settings(merged: Mapping[str, Any], partition_counts: Mapping[str, int]) -> TaskSettings:
    """The settings for the runtime. Settings of Kafka, Spark and disks are left out, because they have no meaning in memory."""
    known = {name: value for name, value in merged.items() if name in _RUNTIME}
    return TaskSettings(**{"application_id": "test", "partition_counts": partition_counts, **known})


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, timedelta):
        value = to_ms(value, name)
    kind = _RUNTIME.get(name, "")
    if kind.startswith("Policy") and value not in get_args(Policy) and not (value is None and "None" in kind):
        raise ConfigError(f"the policy {name!r} is {_POLICIES}, not {value!r}")
    if name == "mode" and value not in get_args(Mode):
        raise ConfigError(f"mode is 'strict' or 'compat', not {value!r}")
    return value


class TopologyTestDriver(DriverStores):
    """Runs a topology in memory, as a context manager.

    Args:
        topology: The topology to run.
        application_id: The prefix of internal topics; default: "test". `settings` are accepted here, too, as in Kafka Streams.
        partitions: The number of partitions by topic; default: 1. A source with a pattern reads those topics of this
            argument that match, and after the next `restart` also matching ones into which records were piped.
        tasks: The number of tasks of each sub-topology; default: the most partitions of any of its topics.
        mode: `strict` (default) or `compat`.
        start_ms: The wall clock at the start; only `advance_wall_clock_time` moves it.
        rocksdb: Whether stores are on disk, in a temporary directory, instead of in memory.
        topic_configs: Kafka settings of output topics by name. With this argument, records that Kafka would reject are
            subject to the production policy, and records may only choose among these topics. By default every topic accepts
            every record.
        settings: Settings of the application by their names in `StreamsConfig`, or a `StreamsConfig`. The driver uses the
            error policies `deserialization`, `processing`, `production` and `future` (each "fail", "skip" or "dlq"),
            `dead_letter_topic`, `global_table_errors`, `max_record_bytes`, `max_future_ms`, `idle_timeout_ms`, and, in
            `compat` mode, `emit_interval_ms`. `max_future_ms` is off by default, because the driver's clock does not move
            with the records' timestamps.
        **further: The same settings as keywords, which take precedence: `TopologyTestDriver(topology, processing="skip")`.

    Raises:
        ConfigError: A setting is unknown, or its value is invalid.
        TopologyError: `topology` is not a topology but, for example, a builder.
    """

    def __init__(
        self,
        topology: Topology,
        application_id: str | Mapping[str, Any] | StreamsConfig | None = None,
        partitions: Mapping[str, int] | None = None,
        tasks: int | None = None,
        mode: Mode | None = None,
        start_ms: TimestampLike = 0,
        rocksdb: bool = False,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        *,
        settings: Mapping[str, Any] | StreamsConfig | None = None,
        **further: Any,
    ) -> None:
        check_topology(topology, "TopologyTestDriver")
        if isinstance(application_id, Mapping | StreamsConfig):
            settings, application_id = application_id, None
        merged = merged_settings(settings, {**further, "application_id": application_id, "mode": mode, "tasks": tasks})
        self.now_ms = to_timestamp_ms(start_ms, "start_ms")
        self.counters = Counters()
        self._declared = frozenset(partitions or ())
        self._kafka = SimulatedKafka(partitions, auto_create=True)
        self._given = topology
        self._application_id: str = merged.get("application_id", "test")
        self._tasks: int | None = merged.get("tasks")
        topology = with_matching_topics(topology, self._kafka.topics)
        counts = [self._kafka.partition_count(topic) for topic in _topics_read(topology)]
        execution = Execution(merged.get("execution", StreamsConfig.model_fields["execution"].default))
        self._live = begins_live(execution, self._tasks, counts)
        topology = self._topology = self._as_run(topology)
        self._positions: dict[str, dict[int, int]] = {}  # by output topic and partition, what tests have read
        self._faults = RequestedCrashes()
        self._output_topics = MemoryTopics(
            self._kafka.partition_count, topic_configs, self._named_topics, lambda: self.now_ms
        )
        self._batching = False
        self._clock_moved = False
        self._disks = FolderDisks() if rocksdb else MemoryDisks()
        plan = build_plan(topology, self._application_id)
        self._create_repartition_topics(plan)
        self._settings = task_settings(merged, {name: self._kafka.partition_count(name) for name in _sink_topics(plan)})
        self._topics = KnownTopics(plan, self._settings.dead_letter_topic, self._declared)
        self._global_tables = MemoryGlobalTables(topology, self._settings, self._kafka)
        self._global_tables.write_given(self.now_ms)
        self._queries = [self._query(sub) for sub in plan.sub_topologies]

    def create_input_topic(
        self,
        name: str,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        start_timestamp: TimestampLike | None = None,
        auto_advance: Duration = 0,
    ) -> TestInputTopic[K, V]:
        """Returns a `TestInputTopic`, which writes records to a source topic.

        Args:
            name: The topic, or the name of a source outside Kafka (`from_dataframe`, `from_delta`).
            key_serde: The serde that writes keys; default: the source's.
            value_serde: The serde that writes values; default: the source's.
            start_timestamp: The timestamp of the first record without one; default: the driver's clock.
            auto_advance: How much later each further record without a timestamp is.

        Raises:
            LookupError: The topology does not read the topic.
        """
        name = self._topics.input_topic(name)
        key, value = self._topics.input_serdes(name)
        now = lambda: self.now_ms  # noqa: E731
        return TestInputTopic(
            name, key_serde or key, value_serde or value, self._send, now, start_timestamp, auto_advance
        )

    def create_output_topic(
        self, name: str, key_serde: Serde[K] | None = None, value_serde: Serde[V] | None = None
    ) -> TestOutputTopic[K, V]:
        """Returns a `TestOutputTopic`, which reads a sink's topic; serdes default to the sink's, and to bytes for dead letters.

        All objects for one topic share a queue, as in Kafka Streams: what one has read is read.

        Raises:
            LookupError: The topology does not write the topic, and no sink chooses its topics by the record.
        """
        key, value = self._topics.output_serdes(name)
        read = self._positions.setdefault(name, {})
        return TestOutputTopic(name, key_serde or key, value_serde or value, self._kafka, read)

    def served(self) -> Served:
        """Returns the stores as `streams serve` reads them: committed rows only, with their position, commit and age.

        Call it again after `rescale`.
        """
        return served_by_driver(self._topology, self._settings, self._kafka, self._queries)

    def table_rows(self, name: str) -> list[dict[str, Any]]:
        """Returns the rows that a lake sink has written so far: with keys, the last row of each key, else all rows.

        Args:
            name: The sink's name, or the path or name of its table.

        Raises:
            LookupError: No sink has this name, or several have.
        """
        from streams.testing.memory import find_sink, table_rows

        sink = find_sink(self._topology, name)
        return table_rows(sink, sink.topic.topic_name(self._settings.application_id), self._kafka)

    def produced_topic_names(self) -> set[str]:
        """The topics to which records were written so far: outputs, repartition topics and changelogs."""
        commits = {query.commits_topic for query in self._queries}
        return {name for name in self._kafka.topics - commits if self._kafka.was_produced_to(name)}

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Processes all records that are piped in within the `with` block in one step, merged by time as in production."""
        self._batching = True
        try:
            yield
        finally:
            self._batching = False
        self._run()

    def advance_wall_clock_time(self, advance: Duration) -> None:
        """Moves the wall clock by a `timedelta` or milliseconds, and runs every task for a step without records."""
        milliseconds = to_ms(advance, "How far the wall clock advances")
        if not self._clock_moved:
            # As in production, every task has run before the clock moves, so its schedules count from the start.
            self._every_task()
            self._clock_moved = True
        self.now_ms += milliseconds
        self._every_task()
        self._run()

    def _every_task(self) -> None:
        for query in self._queries:
            query.step(self.now_ms, every_task=True)

    def restart(self, wipe_state: bool | Topology = True, topology: Topology | None = None) -> None:
        """Stops the application and starts it again: stores are restored from changelogs, other state from the last markers.

        Args:
            wipe_state: Whether to delete the local stores first. A topology may be passed in its place: `restart(other)`.
            topology: The topology to continue with; default: the same.

        Raises:
            CheckpointMismatchError: The state was written by a topology of another structure.
        """
        if not isinstance(wipe_state, bool):
            check_topology(wipe_state, "restart")
            topology, wipe_state = wipe_state, True
        if topology is not None or has_patterns(self._given):
            self._given = topology or self._given
            own = build_plan(self._topology, self._settings.application_id).repartition_topics
            self._upgrade(self._as_run(with_matching_topics(self._given, self._users_topics(own)), self._topology))
        for query in self._queries:
            query.restart(wipe_state)
        self._global_tables.restart()
        self._global_tables.write_given(self.now_ms)

    def rescale(
        self,
        tasks: int,
        by_key: Iterable[str] = (),
        states: Mapping[str, Handling] | None = None,
        drop: Iterable[str] = (),
    ) -> None:
        """Continues with another number of tasks, as after `streams rescale`: results and their order per key stay the same.

        Args:
            tasks: The new number of tasks of each sub-topology.
            by_key: Stores of processors whose rows are stored under the keys of their records.
            states: Processor -> `copy` or `drop`, for its `ctx.state`.
            drop: Stores without a changelog, whose rows are lost.

        Raises:
            RescaleError: The state cannot be moved to other tasks; nothing has changed.
        """
        choices = UsersChoices(frozenset(by_key), states or {}, frozenset(drop))
        rescale(self._queries, self._settings.application_id, self._kafka, tasks, choices)

    def crash_at(self, point: str, task: int | None = None, wipe_state: bool = False) -> None:
        """Ends the process of a task during the next step, which is then repeated as Spark does.

        A crash must not change any result: committed work is not repeated, and all other work is. Several crashes happen one
        after the other, each when a task reaches its point; `crashes` counts them.

        Args:
            point: One of `state.commit.crash_points.POINTS`. Up to `before_commit`, nothing of the step has been committed; at
                `after_commit`, Kafka has the whole step, but the local store does not; from `store_applied` on, only Spark has
                not recorded the step. A restore's points are reached only if there is something to restore, as after a crash
                with `wipe_state`.
            task: The task to end; default: the first that reaches the point.
            wipe_state: Whether the local stores are lost, too.

        Raises:
            ValueError: The point is unknown.
        """
        self._faults.arm(point, task, wipe_state)

    @property
    def crashes(self) -> int:
        """The number of requested crashes that have happened."""
        return self._faults.happened

    def _upgrade(self, topology: Topology) -> None:
        """Replaces the topology; like a real start, this refuses state of a topology of another structure."""
        old = {query.sub.name: query for query in self._queries}
        plan = build_plan(topology, self._settings.application_id)
        for sub in plan.sub_topologies:
            if sub.name in old and old[sub.name].sub.topology_hash != sub.topology_hash:
                raise CheckpointMismatchError(
                    f"The state of '{sub.name}' was written by another topology: operators, windows or stores have changed. "
                    f"streams.topology.diff.compare() shows which."
                )
        self._topology = topology
        self._topics = KnownTopics(plan, self._settings.dead_letter_topic, self._declared)
        self._global_tables = MemoryGlobalTables(topology, self._settings, self._kafka)
        self._queries = []
        for sub in plan.sub_topologies:
            query = old.pop(sub.name, None) or self._query(sub)
            query.replace(sub, self._global_tables)
            self._queries.append(query)
        for query in old.values():
            query.close()

    def _store_names(self) -> set[str]:
        return {*self._topology.stores, *self._topology.global_tables}

    def _task_stores(self, name: str) -> TaskStores:
        if (table := self._topology.global_tables.get(name)) is not None:
            return TaskStores(table.store.spec.kind, [lambda: self._global_tables.stores[name]], lambda key: 0)
        query = next(query for query in self._queries if name in query.sub.stores)
        node, tasks = query.sub.stores[name], query.tasks

        def task_of(key: Any) -> int:
            return max(0, partition_for_key(node.key_serde.serialize(name, key), tasks))

        def write(key: Any, change: Callable[[Any], None]) -> None:
            query.write_store(name, task_of(key), change, self.now_ms)

        stores = [partial(query.typed_store, name, task) for task in range(tasks)]
        return TaskStores(node.spec.kind, stores, task_of, write)

    def dropped(self, reason: str | None = None) -> int:
        """The number of records (or windows of records) that were dropped so far, for one reason or all."""
        return sum(
            count
            for name, count in self.counts().items()
            if name.startswith("dropped:") and (reason is None or name.endswith(f":{reason}"))
        )

    def counts(self) -> Counters:
        """The counters of each operator: records in (`in:<node>`), out (`out:<node>`) and dropped (`dropped:<node>:<reason>`).

        Tasks and readers count since the start, global tables since the last restart. As in production, the counts of a step are
        lost if its task ends after the commit.
        """
        counts = Counters()
        for counters in (self.counters, self._global_tables.counters):
            counts.add_all(counters)
        return counts

    def metrics(self) -> dict[str, NodeMetrics]:
        """The counters by node: `driver.metrics()["my-filter"].records_in`, `.records_out`, `.dropped`, `.skipped`."""
        return node_metrics(self.counts())

    def close(self) -> None:
        """Closes the stores and deletes their directory."""
        for query in self._queries:
            query.close()
        self._disks.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _query(self, sub: SubTopology) -> DriverQuery:
        tasks = self._tasks or self._most_partitions(sub)
        return DriverQuery(
            sub,
            tasks,
            self._settings,
            self._kafka,
            self._disks,
            self._global_tables,
            self._faults,
            self._count,
            self._output_topics,
        )

    def _send(self, topic: str, record: PipedRecord, partition: int | None) -> None:
        headers = encode_headers(record.headers) if record.headers else None
        self._kafka.append(topic, record.key, record.value, record.timestamp, headers, partition)
        if not self._batching:
            self._run()

    def _run(self) -> None:
        """Runs steps until no records are left, including records that steps write to topics of other sources."""
        self._global_tables.catch_up(self.now_ms)
        while pending := [query for query in self._queries if query.pending(self.now_ms)]:
            for query in pending:
                query.step(self.now_ms)
                self._global_tables.catch_up(self.now_ms)

    def _count(self, counters: Mapping[str, int]) -> None:
        for name, count in counters.items():
            counter, _, source = name.partition(":")
            if counter in (IN_SECONDS, IN_MICROSECONDS) and name not in self.counters:
                _log.warning("%s.", unit_warning(counter, source))
            self.counters.add(name, count)

    def _most_partitions(self, sub: SubTopology) -> int:
        return max((self._kafka.partition_count(topic) for topic in sub.topics), default=1)

    def _as_run(self, topology: Topology, before: Topology | None = None) -> Topology:
        """The topology with the repartition topics of live execution, if that is set; `before`: the one that ran so far."""
        topology = with_real_tables(topology, self._application_id)
        if not self._live:
            return topology
        placed = {topic: Placed(self._kafka.partition_count(topic)) for topic in _topics_read(topology)}
        if before is None:
            return with_needed_topics(topology, placed, self._tasks)
        known = {text for source in before.sources() for text in source.subscription}
        return with_needed_topics(topology, placed, self._tasks, before.repartitioned or {}, known)

    def _create_repartition_topics(self, plan: Plan) -> None:
        if self._live:
            topics = {topic for sub in plan.sub_topologies for topic in sub.topics} - plan.repartition_topics.keys()
            counts = {topic: self._kafka.partition_count(topic) for topic in topics}
            for name, count in with_tasks(plan, self._tasks, counts, {})[1].items():
                self._kafka.create_topic(name, count)
        for sub in plan.sub_topologies:
            tasks = self._tasks or self._most_partitions(sub)
            for sink in sub.sinks:
                if isinstance(sink.topic, str) and sink.topic in plan.repartition_topics:
                    self._kafka.create_topic(sink.topic, plan.repartition_topics[sink.topic] or tasks)

    def _users_topics(self, repartition_topics: Mapping[str, object]) -> set[str]:
        """The topics that are not the application's own."""
        return {
            topic
            for topic in self._kafka.topics - repartition_topics.keys()
            if not topic.endswith(("-changelog", "-commits"))
        }

    def _named_topics(self) -> set[str]:
        """The topics that the program names itself."""
        named = {str(sink.topic) for query in self._queries for sink in query.sub.sinks}
        return {*named, str(self._settings.dead_letter_topic)}


def _topics_read(topology: Topology) -> set[str]:
    return {topic for source in topology.sources() for topic in source.topics if isinstance(topic, str)}


def _sink_topics(plan: Plan) -> list[str]:
    return [sink.topic for sub in plan.sub_topologies for sink in sub.sinks if isinstance(sink.topic, str)]
