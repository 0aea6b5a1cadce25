"""How far an application has come: its sub-topologies and its lake sinks, as any host can see it in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from state.changelog import commits_topic
from state.commit.marker import UNPLACED, CommitMarker, MarkerLog
from state.kafka.admin import KafkaAdmin, TopicPartition
from state.kafka.topics import partitions_of
from streams.application.markers import newest_markers
from streams.application.owned_topics import commits_topics_of, owned_topics
from streams.application.prepare import Application
from streams.checkpoint.files import CheckpointFiles, LocalFiles, confirmed_end, is_local
from streams.engine.graph.looked_up import LookedUp, looked_up_by
from streams.engine.source.offsets import TopicOffsets
from streams.engine.source.pauses import NOTHING, LeftLive, Pauses
from streams.lake.commit import TABLE_COMMIT, SinkCommit
from streams.topology.graph import LakeSink

# --- How far the lake sinks of an application have written: the lag of their queries behind their internal topics.
#
# A sink deletes from its internal topic what it has written, so the topic's beginning is a position that any host can ask for. A
# sink of `foreach_batch` deletes a batch only with the next one, but notes it in the consumer group. A broker may refuse to delete,
# and forgets a group's offsets after some quiet days, so the checkpoint is read as well, where it is on this host's disk.


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The status of a lake sink.

    Attributes:
        read: Topic and partition -> the next offset to write.
        ends: Topic and partition -> its end offset.
        at_most: Whether the lag may include the last batch even though it was written: its note is gone, and the checkpoint is on
            another machine.
        paused_since_ms: When it was paused, ms since 1970; None: it is not paused.
    """

    name: str
    target: str
    read: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    at_most: bool = False
    paused_since_ms: int | None = None

    @property
    def lag(self) -> int:
        """The number of offsets left to write, over all partitions."""
        return sum(max(0, end - self.read[place]) for place, end in self.ends.items())


def sink_statuses(application: Application, admin: KafkaAdmin, pauses: Pauses = NOTHING) -> tuple[SinkStatus, ...]:
    config = application.config
    sinks = application.plan.topology.lake_sinks.values()
    topics = {sink.name: sink.topic.topic_name(config.application_id) for sink in sinks}
    found = admin.describe_topics(sorted(topics.values()))
    places = partitions_of(found)
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    noted = admin.group_offsets(config.application_id, places)
    files = LocalFiles(config.checkpoint_dir) if is_local(config.checkpoint_dir) else None
    statuses = []
    for sink in sinks:
        own = [place for place in places if place[0] == topics[sink.name]]
        position = None if files is None or not own else _position(files, sink, topics[sink.name])
        if position is not None and position.topic_id != found[topics[sink.name]].topic_id:
            position = None  # of an internal topic that a reset has deleted
        known: Sequence[int] = () if position is None else position.offsets
        read = {at: max(begins[at], noted.get(at, 0), known[at[1]] if at[1] < len(known) else 0) for at in own}
        statuses.append(
            SinkStatus(
                sink.name,
                sink.target_text,
                read,
                {at: ends[at] for at in own},
                position is None and not noted.keys() >= {*own} and not sink.keeps_position,
                pauses.of(sink.name),
            )
        )
    return tuple(statuses)


def _position(files: CheckpointFiles, sink: LakeSink, topic: str) -> TopicOffsets | None:
    """The end of the last written batch, according to the checkpoint; None: the checkpoint is not here, or has no batch."""
    if sink.keeps_position:
        saved = files.read(f"{sink.name}/{TABLE_COMMIT}")
        return None if saved is None else SinkCommit.from_json(orjson.loads(saved)).position
    return confirmed_end(files, sink.name, topic)


# --- The status of a running application: how far it has read, each task's last commit, and its speed.
#
# All of it comes from Kafka, so that any host can ask: the committed offsets of the consumer group named after the
# application, the ends of its topics, and the last commit marker of each task. Lake sinks have no such offsets: see above.


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The last commit of a task.

    Attributes:
        committed_ms: The time of the micro-batch that was committed, ms.
        stream_time: The largest event time that the task has seen, ms; -1: none yet.
        live: Whether a live step made the commit, rather than a micro-batch.
    """

    task: int
    version: int
    committed_ms: int
    stream_time: int
    records_out: int
    live: bool = False

    @property
    def as_json(self) -> dict[str, int | None]:
        """The commit as JSON data; times in ms since 1970."""
        return {
            "task": self.task,
            "step": self.version,
            "at": self.committed_ms,
            "stream_time": None if self.stream_time < 0 else self.stream_time,
            "records_out": self.records_out,
        }


@dataclass(frozen=True, slots=True)
class SubStatus:
    """The status of one sub-topology.

    Attributes:
        read: Topic and partition -> the next offset to read.
        ends: Topic and partition -> its end offset.
        paused_since_ms: When it was paused, ms since 1970; None: it is not paused.
        last_records: The number of offsets that the last micro-batch has read, for the tasks that have committed it.
        joins: The counts of its joins' look-ups since the application began.
        placement: The rule that assigns keys to its tasks; None: no task has had a key yet.
        left_live: Why it has left live execution; None: it has not.
    """

    name: str
    tasks: int
    read: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    committed: tuple[TaskStatus, ...]
    paused_since_ms: int | None = None
    last_records: int = 0
    joins: tuple[LookedUp, ...] = ()
    placement: str | None = None
    left_live: LeftLive | None = None

    @property
    def lag(self) -> int:
        """The number of offsets left to read, over all partitions."""
        return sum(max(0, end - self.read[place]) for place, end in self.ends.items())

    @property
    def execution(self) -> str | None:
        """`live` or `micro-batch`, as of the last commit of any task; None: no commit yet."""
        last = max(self.committed, key=lambda task: task.committed_ms, default=None)
        return None if last is None else "live" if last.live else "micro-batch"

    @property
    def last_commit_ms(self) -> int | None:
        """The time of the last commit of any task, ms; None: no commit yet."""
        return max((task.committed_ms for task in self.committed), default=None)

    @property
    def stream_time(self) -> int | None:
        """The largest event time of any task, ms; None: none yet."""
        return max((task.stream_time for task in self.committed if task.stream_time >= 0), default=None)


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an application.

    Attributes:
        at_ms: When the status was taken, ms since 1970.
        asked: The execution that an operator has asked for; None: the application runs as its settings say.
    """

    application_id: str
    at_ms: int
    subs: tuple[SubStatus, ...]
    sinks: tuple[SinkStatus, ...] = ()
    asked: str | None = None

    @property
    def parts(self) -> tuple[SubStatus | SinkStatus, ...]:
        return (*self.subs, *self.sinks)

    @property
    def has_committed(self) -> bool:
        return any(sub.committed for sub in self.subs)


@dataclass(frozen=True, slots=True)
class SubInKafka:
    """The properties of a sub-topology that are needed to look up its status."""

    name: str
    tasks: int
    topics: tuple[str, ...]


def subs_of(application: Application) -> tuple[SubInKafka, ...]:
    return tuple(SubInKafka(one.sub.name, one.tasks, one.sub.topics) for one in application.subs)


def subs_in_kafka(application_id: str, admin: KafkaAdmin, log: MarkerLog) -> tuple[SubInKafka, ...]:
    """The sub-topologies that have committed, of an application whose program is not available."""
    commits = commits_topics_of(application_id, owned_topics(application_id, None, admin, log).own)
    found = []
    for topic, info in sorted(admin.describe_topics(sorted(commits)).items()):
        markers = newest_markers(log, topic, range(info.partitions))
        read = sorted({name for marker in markers for name in (*marker.topic_ids, *marker.ranges)})
        found.append(SubInKafka(commits[topic], info.partitions, tuple(read)))
    return tuple(found)


def application_status(
    application: Application,
    admin: KafkaAdmin,
    log: MarkerLog,
    at_ms: int,
    pauses: Pauses = NOTHING,
    sinks: tuple[SinkStatus, ...] = (),
) -> Status:
    return status_in_kafka(application.config.application_id, subs_of(application), admin, log, at_ms, pauses, sinks)


def status_in_kafka(
    app: str,
    known: Sequence[SubInKafka],
    admin: KafkaAdmin,
    log: MarkerLog,
    at_ms: int,
    pauses: Pauses = NOTHING,
    sinks: tuple[SinkStatus, ...] = (),
) -> Status:
    topics = {topic for sub in known for topic in sub.topics}
    commits = {commits_topic(app, sub.name): sub for sub in known}
    found = admin.describe_topics(sorted({*topics, *commits}))
    places = [place for place in partitions_of(found) if place[0] in topics]
    begins, ends, read = admin.begin_offsets(places), admin.end_offsets(places), admin.group_offsets(app, places)
    subs = []
    for topic, one in commits.items():
        own = [place for place in places if place[0] in one.topics]
        tasks = found[topic].partitions if topic in found else 0
        markers = list(newest_markers(log, topic, range(tasks)))
        # A live task updates the consumer group only once a second.
        live = {place: end for last in markers for place, end in last.live_positions.items()}
        newest = max(markers, key=lambda last: last.now_ms, default=None)
        committed = (
            TaskStatus(last.task, last.version, last.now_ms, last.stream_time, last.counts.get("out", 0), last.live)
            for last in markers
        )
        subs.append(
            SubStatus(
                one.name,
                one.tasks,
                {place: max(read.get(place, 0), live.get(place, 0), begins[place]) for place in own},
                {place: ends[place] for place in own},
                tuple(sorted(committed, key=lambda last: last.task)),
                pauses.of(one.name),
                _last_records(markers, newest),
                tuple(looked_up_by(last.operator_state for last in markers)),
                next((last.placement for last in markers if last.placement != UNPLACED), None),
                None if newest is not None and newest.live else pauses.left_live.get(one.name),
            )
        )
    return Status(app, at_ms, tuple(subs), sinks, pauses.execution)


def _last_records(markers: Sequence[CommitMarker], newest: CommitMarker | None) -> int:
    read = {
        (topic, partition): end - start
        for one in markers
        if newest is not None and one.now_ms == newest.now_ms
        for topic, of in one.ranges.items()
        for partition, (start, end) in of.items()
    }
    return sum(read.values())


def records_per_second(before: Status, after: Status, name: str) -> float | None:
    """The speed of a sub-topology or a lake sink between two moments, in offsets per second; None if it cannot be determined.

    If a sub-topology has a lag, and no micro-batch has ended between the two moments, the result is the speed since the last one
    began.
    """
    seconds = (after.at_ms - before.at_ms) / 1000
    reads = [next((one.read for one in look.parts if one.name == name), None) for look in (before, after)]
    first, last = reads
    if seconds <= 0 or first is None or last is None:
        return None
    moved = sum(max(0, offset - first.get(place, offset)) for place, offset in last.items())
    sub = next((one for one in after.subs if one.name == name), None)
    if moved or sub is None or not sub.lag or sub.last_commit_ms is None or sub.last_commit_ms >= after.at_ms:
        return moved / seconds
    return sub.last_records / ((after.at_ms - sub.last_commit_ms) / 1000)
