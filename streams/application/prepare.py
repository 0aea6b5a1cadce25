"""The preparation of Kafka for an application: source topics exist; internal topics exist with the right partition counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from state.changelog import commits_topic, ensure_changelogs, ensure_commits, ensure_repartition
from state.commit.marker import MarkerLog
from state.errors import TopicNotFoundError
from state.kafka.admin import DECIDE_S, KafkaAdmin, wait_until_decided
from state.kafka.placement import Placement
from state.kafka.topics import TopicInfo, TopicPartition, TopicSpec, partitions_of
from streams.application.dead_letters import check_dead_letter_topic, dead_letter_topics
from streams.application.given_tables import ensure_given_tables
from streams.application.ingests import ensure_ingests, ingest_partitions
from streams.application.owned_topics import own_manifest, owned_topics
from streams.config import Execution, StreamsConfig
from streams.engine.graph.settings import TaskSettings, global_table_settings
from streams.engine.source.log import CommandLog
from streams.engine.source.offsets import SourceOffsets
from streams.engine.source.partition_times import asks_for_partition_time
from streams.engine.source.topics import SourceSpec
from streams.model.table_columns import ColumnRule
from streams.topology.graph import Graph, ProcessorNode
from streams.topology.plan import (
    Plan,
    SubTopology,
    build_plan,
    check_explicit_names,
    internal_topics,
    with_added_topics,
    with_needed_topics,
)
from streams.topology.planning.repartitions import DEFAULT_PLACEMENT, Placed
from streams.topology.planning.sub_topologies import check_one_name, possible_names, sub_topologies, sub_topology_name
from streams.topology.rewrite import has_patterns, with_matching_topics
from streams.topology.specs.streams import ToRowsSpec
from streams.topology.topology import Topology

if TYPE_CHECKING:
    from state.commit.live import LiveKafka

G = TypeVar("G", bound=Graph)


@dataclass(frozen=True)
class PreparedSub:
    """A sub-topology that is about to run.

    Attributes:
        placement: The rule that assigns keys to its tasks; None: it is not known yet (`streams.application.placements`).
        misplaced: Why its topics do not fit this rule, as far as records were read; None: they fit.
    """

    sub: SubTopology
    tasks: int
    placement: Placement | None = None
    misplaced: str | None = None


def kafka_of(config: StreamsConfig) -> LiveKafka:
    """The logs of an application's cluster."""
    from state.commit.live import LiveKafka  # it needs libraries of columns, which most commands do without

    return LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)


def task_settings(config: StreamsConfig, partition_counts: Mapping[str, int]) -> TaskSettings:
    """The settings of tasks, from an application's settings."""
    return TaskSettings(
        application_id=config.application_id,
        mode=config.mode.value,
        deserialization=config.deserialization.value,
        processing=config.processing.value,
        production=config.production.value,
        future=config.future.value,
        dead_letter_topic=config.dead_letter_topic,
        global_table_errors=None if config.global_table_errors is None else config.global_table_errors.value,
        max_record_bytes=config.max_record_bytes,
        max_message_bytes=config.max_message_bytes,
        max_future_ms=config.max_future_ms,
        partition_counts=dict(partition_counts),
        emit_interval_ms=config.emit_interval_ms,
        idle_timeout_ms=None if config.available_now else config.idle_timeout_ms,
        times_operators=bool(config.ui),
        follow=config.ui_follow if config.ui else "",
        follow_masked=frozenset(filter(None, map(str.strip, config.ui_follow_masked.split(",")))),
    )


@dataclass(frozen=True)
class Application:
    """A planned topology and its settings.

    Attributes:
        plan: The plan.
        config: The settings.
        subs: The sub-topologies with the number of their tasks.
        partitions: Repartition topic -> the number of its partitions; a topic that is missing here gets as many as there are tasks
            that write it.
    """

    plan: Plan
    config: StreamsConfig
    subs: tuple[PreparedSub, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)

    def with_rules(self, rules: Mapping[str, tuple[ColumnRule, ...]]) -> Application:
        """The application, whose tasks also check rows by the rules of the tables that the rows are for."""
        sinks = self.plan.topology.lake_sinks.values()
        by_topic = {sink.topic.topic_name(self.config.application_id): rules[sink.name] for sink in sinks}
        subs = (replace(prepared, sub=_with_rules(prepared.sub, by_topic)) for prepared in self.subs)
        return replace(self, subs=tuple(subs))

    def await_written(self, admin: KafkaAdmin, prepared: PreparedSub) -> None:
        """Waits until all records that other sub-topologies have committed for this one can be read.

        Raises:
            KafkaClientError: A transaction stays open for longer than the transaction timeout allows.
        """
        self._await_decided(admin, set(prepared.sub.topics) & set(self.plan.repartition_topics))

    def await_lake_topics(self, admin: KafkaAdmin) -> None:
        """Waits until all records that were committed for lake sinks can be read.

        Raises:
            KafkaClientError: A transaction stays open for longer than the transaction timeout allows.
        """
        sinks = self.plan.topology.lake_sinks.values()
        self._await_decided(admin, {sink.topic.topic_name(self.config.application_id) for sink in sinks})

    def _await_decided(self, admin: KafkaAdmin, topics: Iterable[str]) -> None:
        wait_until_decided(admin, partitions_of(admin.describe_topics(topics)), self.decide_s)

    @property
    def decide_s(self) -> float:
        """The longest time that a transaction of this application may stay open, seconds."""
        return self.config.transaction_timeout_ms / 1000 + DECIDE_S

    def unfinished(self, admin: KafkaAdmin, read: Mapping[str, SourceOffsets]) -> tuple[PreparedSub, ...]:
        """The sub-topologies that have not read all records that others have written for them."""
        ends = written_ends(admin, self.plan.repartition_topics)

        def behind(sub: SubTopology) -> bool:
            at = read.get(sub.name, SourceOffsets({}))
            return any(at.of(*place) < end for place, end in ends.items() if place[0] in sub.topics)

        return tuple(prepared for prepared in self.subs if behind(prepared.sub))

    def unread(
        self, admin: KafkaAdmin, topics: Iterable[str], known: Mapping[TopicPartition, int] = MappingProxyType({})
    ) -> set[str]:
        """The repartition topics among `topics` that have unread records."""
        ends = written_ends(admin, topics)
        read = admin.group_offsets(self.config.application_id, list(ends)) if ends else {}
        # Records are deleted soon after they are read, so a topic begins at its reader's position. The sink of a Delta table
        # commits no offsets.
        begins = admin.begin_offsets(ends) if ends else {}
        return {
            place[0] for place, end in ends.items() if max(read.get(place, 0), begins[place], known.get(place, 0)) < end
        }

    def ends(self, admin: KafkaAdmin, time_ms: int | None = None) -> dict[tuple[str, int], int]:
        """The end offsets of the external source topics, by topic and partition."""
        internal = self.plan.repartition_topics
        topics = {topic for prepared in self.subs for topic in prepared.sub.topics if topic not in internal}
        places = partitions_of(admin.describe_topics(sorted(topics)))
        return admin.end_offsets(places) if time_ms is None else admin.offsets_for_times(dict.fromkeys(places, time_ms))

    @property
    def dead_letter_topics(self) -> list[str]:
        """The dead-letter topics of the policies, and of operators that retry."""
        return sorted(dead_letter_topics(self.plan.topology, self.config.dead_letter_topic))

    def task_settings(self, partition_counts: Mapping[str, int]) -> TaskSettings:
        return task_settings(self.config, partition_counts)

    def from_outside(self, sub: SubTopology) -> list[str]:
        """The topics of a sub-topology that the application does not write itself."""
        internal = self.plan.repartition_topics.keys() | sub.delays.keys()
        return [topic for topic in sub.topics if topic not in internal]

    @property
    def placements(self) -> dict[str, str]:
        """Sub-topology -> its placement, if that is decided."""
        return {one.sub.name: one.placement.value for one in self.subs if one.placement is not None}

    @property
    def topic_placements(self) -> dict[str, Placement]:
        """Repartition or retry topic -> its readers' placement, if that is not murmur2."""
        return {
            topic: one.placement
            for one in self.subs
            if one.placement not in (None, Placement.MURMUR2)
            for topic in one.sub.topics
            if topic in self.plan.repartition_topics or topic in one.sub.delays
        }

    def source_spec(self, sub: SubTopology) -> SourceSpec:
        config = self.config
        internal = self.plan.repartition_topics
        starting = {
            str(topic): "earliest" if str(topic) in internal else (source.offset_reset or config.starting_offsets)
            for source in sub.sources
            for topic in source.topics
        }
        return SourceSpec(
            starting=starting,
            trimmed=frozenset(starting) & frozenset(internal),
            delays=sub.delays,
            pauses=(config.application_id, sub.name),
            on_lost_offsets=config.on_lost_offsets,
            max_records=config.max_records_per_trigger,
            max_bytes=config.max_bytes_per_trigger,
            global_topics=tuple(sorted(str(table.source.topics[0]) for table in sub.global_tables.values())),
            times_topic=commits_topic(config.application_id, sub.name)
            if any(asks_for_partition_time(source) for source in sub.sources)
            else None,
            decide_s=self.decide_s,
            broker_wait_ms=config.broker_wait_ms,
            interval_ms=config.trigger_interval_ms,
            reads_together=all(node.spec.repeatable for node in sub.processors if node.name in sub.head),
        )


def _with_rules(sub: SubTopology, rules: Mapping[str, tuple[ColumnRule, ...]]) -> SubTopology:
    nodes = dict(sub.nodes)
    for name, found in [(parent, rules.get(str(sink.topic))) for sink in sub.sinks for parent in sink.parents]:
        node = nodes[name]
        if found and isinstance(node, ProcessorNode) and isinstance(node.spec, ToRowsSpec):
            nodes[name] = replace(node, spec=ToRowsSpec(replace(node.spec.layout, rules=found)))
    return replace(sub, nodes=nodes)


def written_ends(admin: KafkaAdmin, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
    """The end offsets of the partitions of topics, including records of open transactions, which may still be committed."""
    found = admin.describe_topics(sorted(topics))
    return admin.end_offsets(partitions_of(found), committed=False)


def plan_application(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    log: MarkerLog | None = None,
    placements: Mapping[str, str | None] = MappingProxyType({}),
) -> Application:
    """The plan of a topology for the topics of the cluster.

    A pattern never matches the application's own topics, which are known by their markers.

    Args:
        topology: The topology.
        config: The settings.
        admin: The cluster.
        log: Reads markers; default: the cluster of the settings.
        placements: Source topic -> the function that puts its keys into partitions; None: unknown. Default: the engine's own.

    Raises:
        ConfigError: Global tables would have to send dead letters, which they cannot.
        TopicNotFoundError: A source topic is missing.
        TopologyError: The topology cannot be run, or no topic matches a pattern.
        TopologyMismatchError: A sub-topology has run under several names, and which of them is valid is unknown.
    """
    written = own_manifest(config)
    if config.ensure_explicit_naming:
        check_explicit_names(topology)
    topology = _with_topics_of_patterns(topology, config, admin, log, written is None or "repartitioned" in written)
    return _planned(as_started(topology, config, admin, placements), config, admin)


def plan_with(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    log: MarkerLog,
    sources: Mapping[str, str] | None,
    first_start: bool = False,
    names: Sequence[str] = (),
) -> Application:
    """The plan of a topology with repartition topics after these sources, whatever its first start has decided.

    Args:
        topology: The topology.
        config: The settings.
        admin: The cluster.
        log: Reads markers.
        sources: As in `with_added_topics`; None: no repartition topic is added.
        first_start: Whether to choose the numbers of tasks as a first start would.
        names: The known names of its sub-topologies.

    Raises:
        StreamsError: `plan_application` raises it.
    """
    topology = _with_topics_of_patterns(topology, config, admin, log, has_added=True)
    topology = topology if sources is None else with_added_topics(topology, sources)
    return _planned(topology, config, admin, first_start, names)


def needed_sources(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    log: MarkerLog,
    placements: Mapping[str, str | None],
    before: Mapping[str, str],
) -> Mapping[str, str]:
    """Source after which a first start would add a repartition topic -> the reason; includes the sources in `before`.

    The other arguments are as for `plan_application`.
    """
    topology = _with_topics_of_patterns(topology, config, admin, log, has_added=True)
    placed = _placed(topology, admin, placements)
    return with_needed_topics(topology, placed, config.tasks, before).repartitioned or {}


def names_of_any_plan(topology: Graph) -> list[str]:
    """The names that the sub-topologies of a program may have, with and without the repartition topics that a plan adds."""
    both = (topology, _behind_all_sources(topology))
    return sorted({name for one in both for name in possible_names(one.sources())})


def _planned(
    topology: Topology, config: StreamsConfig, admin: KafkaAdmin, first_start: bool = False, names: Sequence[str] = ()
) -> Application:
    app, written = config.application_id, own_manifest(config)
    # Neither the names of sub-topologies nor the internal topics depend on the topics that match a pattern.
    commits = commits_topics(topology, app, admin)
    known = [*names, *known_names(commits, app, written, admin)]
    for nodes in () if names else sub_topologies(topology):
        sources = list(topology.sources(nodes))
        if written is None or written["sub_topologies"].keys().isdisjoint(possible_names(sources)):
            check_one_name(sources, known)
    plan = build_plan(topology, app, known)
    counts = _source_partitions(plan, admin) | ingest_partitions(topology, app)
    frozen = {} if first_start else {name: info.partitions for name, info in commits.items()}
    subs, own = with_tasks(plan, config.tasks, counts, frozen)
    application = Application(plan, config, tuple(subs), own)
    if topology.global_tables:
        global_table_settings(application.task_settings({}))
    return application


def _with_topics_of_patterns(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    log: MarkerLog | None,
    has_added: bool,
) -> Topology:
    if not has_patterns(topology):
        return topology
    app, written = config.application_id, own_manifest(config)
    log = log or CommandLog(config.client, admin)
    own = set(owned_topics(app, written, admin, log).own)
    # Which topics match decides whether the plan adds topics after sources, but not what the names of these would be.
    for one in (topology, _behind_all_sources(topology)) if has_added else (topology,):
        known = known_names(commits_topics(one, app, admin), app, written, admin)
        own |= internal_topics(
            one, app, [sub_topology_name(list(one.sources(names)), known) for names in sub_topologies(one)]
        ).keys()
    return with_matching_topics(topology, (name for name in admin.topic_names() if name not in own))


def with_tasks(
    plan: Plan, asked: int | None, counts: dict[str, int], frozen: Mapping[str, int]
) -> tuple[list[PreparedSub], dict[str, int]]:
    """The sub-topologies with their numbers of tasks, and the topics that get as many partitions as tasks: topic -> number.

    Args:
        plan: The plan.
        asked: The number of tasks that the settings ask for.
        counts: Topic -> its number of partitions; the numbers of repartition topics are added.
        frozen: Sub-topology -> the number of tasks that it has had so far.
    """
    subs: list[PreparedSub] = []
    own: dict[str, int] = {}
    waiting = list(plan.sub_topologies)
    while waiting:
        ready = [sub for sub in waiting if all(topic in counts or topic in sub.delays for topic in sub.topics)]
        # A cycle of repartition topics has no first one: their partitions then follow the known sources.
        for sub in ready or waiting[:1]:
            tasks = _tasks(plan, sub, asked, frozen.get(sub.name), counts)
            if plan.topology.repartitioned is not None:
                # A task reads its own partition of each topic, so a topic has as many as the tasks that read it.
                adapted = {name: tasks for name in sub.topics if _adapts(plan, name) and name not in sub.delays}
                own |= adapted
                counts |= adapted
            subs.append(PreparedSub(sub, tasks))
            waiting.remove(sub)
            for sink in sub.sinks:
                name = str(sink.topic)
                if name in plan.repartition_topics and name not in own:
                    counts[name] = max(counts.get(name, 0), plan.repartition_topics[name] or tasks)
    return subs, own


def _tasks(plan: Plan, sub: SubTopology, asked: int | None, before: int | None, counts: Mapping[str, int]) -> int:
    """The number of tasks of a sub-topology; `before` is the number that it has had so far."""
    most = max((counts[topic] for topic in sub.topics if topic in counts), default=1)
    if plan.topology.repartitioned is None:
        return asked or before or most
    if not sub.leads_to_state:
        # Each partition needs a task, and nothing depends on the others.
        return before or max(asked or 0, most)
    given = [counts[topic] for topic in sub.placed_topics if topic in counts and not _adapts(plan, topic)]
    return asked or before or max(given, default=most)


def _adapts(plan: Plan, topic: str) -> bool:
    """Whether the application owns a topic, and the program does not fix its number of partitions."""
    return topic in plan.repartition_topics and plan.repartition_topics[topic] is None


def as_started(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    placements: Mapping[str, str | None] = MappingProxyType({}),
) -> Topology:
    """The topology with repartition topics where records change their task, if the application has them.

    Its first start decided that, by its execution at the time, and recorded the decision. If that is lost, the existing
    topics show it. New sources are decided now.

    Raises:
        TopicNotFoundError: A source topic is missing.
        TopologyError: The topology cannot be planned.
    """
    if topology.repartitioned is not None:
        return topology
    read = {topic for source in topology.sources() for topic in source.topics if isinstance(topic, str)}
    found = admin.describe_topics(sorted(read)) if config.tasks is not None else {}
    to_run_live = begins_live(config.execution, config.tasks, [info.partitions for info in found.values()])
    written = own_manifest(config)
    before: Mapping[str, str] | None
    if written is not None and (
        has_committed(written["sub_topologies"], config.application_id, admin)
        or (not to_run_live and "repartitioned" not in written)
    ):
        before = written.get("repartitioned")
        known = {
            text for sub in written["sub_topologies"].values() for texts in sub["sources"].values() for text in texts
        }
    else:
        before, known = _found(topology, config, admin, to_run_live)
    if before is None:
        return topology
    return with_needed_topics(topology, _placed(topology, admin, placements), config.tasks, before, known)


def _placed(topology: Topology, admin: KafkaAdmin, placements: Mapping[str, str | None]) -> dict[str, Placed]:
    """How the records are distributed in the topics that a topology reads and others write."""
    read = {topic for source in topology.sources() for topic in source.topics if isinstance(topic, str)}
    counts = _check_exist(read, admin)
    return {name: Placed(count, placements.get(name, DEFAULT_PLACEMENT)) for name, count in counts.items()}


def begins_live(execution: Execution, tasks: int | None, partitions: Collection[int]) -> bool:
    """Whether a first start adds the topics that an application needs to run live; `partitions` are the numbers of its sources.

    With `auto`, it does not if the number of tasks will differ from the number of partitions. Live, all input would then have to be
    written to Kafka again; in micro-batches, Spark's shuffle brings each task its records.
    """
    if execution is Execution.AUTO and tasks is not None and partitions:
        return tasks == max(partitions)
    return execution is not Execution.MICRO_BATCH


def _found(
    topology: Topology, config: StreamsConfig, admin: KafkaAdmin, to_run_live: bool
) -> tuple[Mapping[str, str] | None, set[str]]:
    """What Kafka shows of an application: the sources after which it has a repartition topic, and all sources that it knows.

    None: no topics were added, or it is new and will not run live.
    """
    app, behind_all = config.application_id, _behind_all_sources(topology)
    committed = has_committed(names_of_any_plan(topology), app, admin)
    added = {topic.topic_name(app): topic for topic in behind_all.internal_topics() if topic.added}
    # These topics are created before the first step. If an earlier start made them and never committed, they are used again.
    existing = {str(added[name]) for name in admin.describe_topics(sorted(added))}
    if not existing and (committed or not to_run_live):
        return None, set()
    with_topic = {
        source.subscription[0]: _BEFORE
        for source in topology.sources()
        if any(f"{topic}-sink" in behind_all.children(source.name) for topic in existing)
    }
    return with_topic, {text for source in topology.sources() for text in source.subscription} if committed else set()


def has_committed(sub_topologies: Iterable[str], application_id: str, admin: KafkaAdmin) -> bool:
    """Whether any of these sub-topologies has committed anything; if not, it has written no state."""
    found = admin.describe_topics(sorted(commits_topic(application_id, name) for name in sub_topologies))
    return any(end > 0 for end in admin.end_offsets(partitions_of(found)).values())


_BEFORE = "the application has had it so far"


def _behind_all_sources(topology: G) -> G:
    """The topology with every repartition topic that the plan could add."""
    return with_added_topics(topology, {source.subscription[0]: _BEFORE for source in topology.sources()})


def ensure_internal_topics(
    application: Application, admin: KafkaAdmin, report: Callable[[str], None]
) -> dict[str, int]:
    """Creates missing internal topics, checks the others, and returns the partition counts of all static output topics.

    Raises:
        ChangelogMismatchError: An existing internal topic has the wrong settings.
        TopicNotFoundError: An output topic is missing. Output topics are the user's, so they are not created here.
        ConfigError: The dead letter topic is not suitable.
    """
    config = application.config
    app = config.application_id
    outputs = {str(sink.topic) for p in application.subs for sink in p.sub.sinks if sink.topic is not None}
    if config.dead_letter_topic:
        outputs.add(config.dead_letter_topic)
    # Checked first, so that a misspelt name leaves nothing behind in Kafka.
    _check_exist(outputs - set(application.plan.repartition_topics), admin)
    for topic in application.dead_letter_topics:
        check_dead_letter_topic(topic, application.plan, admin)
    for topic in ensure_ingests(application.plan.topology, app, admin, config.replication_factor):
        report(topic)
    for topic in ensure_given_tables(application.plan.topology, app, admin, config.replication_factor):
        report(topic)
    for prepared in application.subs:
        specs = [node.spec for node in prepared.sub.stores.values()]
        # The commits topic is created first. It records the number of tasks, even if this start ends here and a rescale follows.
        made = ensure_commits(admin, app, prepared.sub.name, prepared.tasks, config.replication_factor)
        made += ensure_changelogs(admin, specs, app, prepared.tasks, config.replication_factor)
        for sink in prepared.sub.sinks:
            name = str(sink.topic)
            if name in application.plan.repartition_topics:
                # If the program does not set the topic's number of partitions, the first start did, and the number of tasks may
                # have changed since.
                known = admin.describe_topics([name]).get(name)
                new = application.partitions.get(name, prepared.tasks)
                first = new if known is None else known.partitions
                partitions = application.plan.repartition_topics[name] or first
                made += ensure_repartition(admin, name, partitions, config.replication_factor)
        for topic in made:
            report(topic)
    return _check_exist(outputs, admin)


def _check_exist(topics: set[str], admin: KafkaAdmin) -> dict[str, int]:
    """The partition counts of topics."""
    found = admin.describe_topics(sorted(topics))
    TopicNotFoundError.if_missing(sorted(topics), found)
    return {topic: info.partitions for topic, info in found.items()}


def commits_topics(topology: Topology, application_id: str, admin: KafkaAdmin) -> dict[str, TopicInfo]:
    """The commits topics that exist, by the possible names of sub-topologies.

    A commits topic has as many partitions as there were tasks at the first start; source topics may have grown since.
    """
    topics = {commits_topic(application_id, name): name for name in possible_names(topology.sources())}
    return {topics[topic]: info for topic, info in admin.describe_topics(sorted(topics)).items()}


def known_names(
    commits: Mapping[str, TopicInfo], application_id: str, written: Mapping[str, Any] | None, admin: KafkaAdmin
) -> list[str]:
    """The names under which sub-topologies have committed, even if the commits were deleted and a checkpoint remains."""
    places = {
        (commits_topic(application_id, name), p): name for name, info in commits.items() for p in range(info.partitions)
    }
    committed = {places[place] for place, end in admin.end_offsets(places).items() if end > 0}
    described = written["sub_topologies"].keys() - (commits.keys() - committed) if written else set()
    return [*sorted(described), *sorted(committed - described)]


def _source_partitions(plan: Plan, admin: KafkaAdmin) -> dict[str, int]:
    read = {topic for sub in plan.sub_topologies for topic in sub.topics if topic not in plan.repartition_topics}
    read.update(one.lasting_topic for one in plan.topology.global_tables.values() if one.given is None)
    return _check_exist(read, admin)


# --- The output topics of a replay: made like those of the program that it repeats.

_COPIED = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)


def make_outputs(admin: KafkaAdmin, names: Mapping[str, str], replication: int = -1) -> list[str]:
    """Creates the output topics of a replay with the partitions and settings of the originals; existing ones stay.

    Raises:
        TopicNotFoundError: An original does not exist.
        TopicMismatchError: A topic of the replay exists with another number of partitions.
    """
    found = admin.describe_topics([*names, *names.values()])
    specs = []
    for original, name in sorted(names.items()):
        if original not in found:
            raise TopicNotFoundError(original)
        settings = admin.topic_config(original)
        config = {key: settings[key] for key in _COPIED if key in settings}
        specs.append(TopicSpec(name, found[original].partitions, config, replication))
    admin.create_topics(specs)
    return [spec.name for spec in specs if spec.name not in found]


def make_row_topics(admin: KafkaAdmin, names: Sequence[str], inputs: Iterable[str], replication: int = -1) -> list[str]:
    """Creates the topics that a replay writes to instead of lake sinks; existing ones stay."""
    missing = sorted(set(names) - admin.describe_topics(names).keys())
    partitions = max((info.partitions for info in admin.describe_topics(inputs).values()), default=1)
    admin.create_topics([TopicSpec(name, partitions, replication=replication) for name in missing])
    return missing
