"""The commit marker: the last record of every step's transaction, and the only authority on what a task has done.

Markers are on partition `task` of the compacted topic `<app>-<sub-topology>-commits`, under one constant key, so the newest
one always survives. Spark's GroupState holds a copy (`MarkerCopy`), which is checked against the topic and never trusted
over it, because a zombie attempt may overwrite Spark's state file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from state.errors import MarkerFormatError
from state.exact_json import UNREADABLE, read, write
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition

if TYPE_CHECKING:
    from state.kafka.range_reader import Run

MARKER_KEY = b"marker"
FORMAT = 3
LIVE_FORMAT = 4
"""The format of markers of live steps. An older program would mistake them for markers of a micro-batch."""
PLACED_FORMAT, PLACED_LIVE_FORMAT = 5, 6
"""The formats of micro-batches and live steps if keys are not placed by murmur2. An older program would look for keys elsewhere."""
UNPLACED = ""
"""The placement in the markers of a task that no record has reached by its key yet, so that any placement is still possible."""
ROUTING_FORMAT = 3
"""The first format in which markers record the keys that brought records to the task."""
NO_KEYS = ""
"""The digest of a range from which no record came to the task by a function-made key."""
"""Fields may be added within a format: an older program ignores them, and a newer one uses their defaults if they are missing. Only
a change that an older program would misread needs a new number."""
_READABLE = (2, FORMAT, LIVE_FORMAT, PLACED_FORMAT, PLACED_LIVE_FORMAT)
RESCALED = "~rescaled"
"""The ending of the query id in a marker whose task may not commit any more, because `streams rescale` gives its keys to other
tasks."""

EXPORTED = "~exported"
"""The ending after `streams export-app` has handed the state to Kafka Streams; `streams import-app` takes the state back."""

Ranges = Mapping[str, Mapping[str, tuple[int, int]]]
"""topic -> partition (as text, for JSON) -> [start, end) of the offsets that fed a step."""

Reached = Mapping[str, tuple[str, Mapping[str, int]]]
"""topic -> its id in Kafka, and partition (as text) -> the offset up to which it was read."""

Routing = Mapping[str, Mapping[str, tuple[int, str]]]
"""topic -> partition (as text) -> the number of records in the range, and a digest of where functions routed them."""


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """The record of one committed step of a task.

    Attributes:
        query_id: Id of the Spark streaming query (of its checkpoint) that made the step.
        task: Number of the task; also the partition of its changelogs.
        tasks: How many tasks the sub-topology has; frozen for the life of the checkpoint.
        topology_hash: Hash of the sub-topology's structure.
        version: Number of the step, from 1, without gaps. 0: the task has never committed, and the marker prevents processes of the
            earlier query from committing (a switch of the execution).
        batch_id: Spark's micro-batch. Batches without rows for the task leave gaps.
        batch: Digest of the offset ranges (and the tick) of the whole micro-batch: two runs with the same digest had the same
            input.
        ranges: The ranges that fed this task.
        topic_ids: Kafka's topic ids of the sources, to recognise a recreated topic.
        stream_time: Largest timestamp that the task has seen, or a later time if idle time has advanced it, ms since the epoch; -1
            before the first record.
        operator_state: What operators remember besides their stores, such as their own stream times.
        changelog_ends: Store -> offset after its last changelog record of this step.
        expired_before: Windowed store -> time below which its rows never matter again, ms; a restore leaves them out.
        counts: Records in, out, changelog.
        changelog_hash: Digest of the step's changelog records.
        now_ms: Spark's logged time of the micro-batch: the only "now" that a topology sees.
        changelog_begins: Store -> where its changelog ended before this step, which is where the step's own records begin.
        changelog_ids: Store -> Kafka's id of its changelog topic, where known.
        routing: Topic -> partition -> the number of records in the range, and the digest of the keys that functions before the
            shuffle made for the records of this task; only where functions make keys.
        adopted: The version at which this query took over the state of another one (`streams adopt`), 0 = it did not.
        continues: The query whose local state, snapshots and replicas also belong to this state, because a switch of the execution
            begins a new query without changing state. Empty: only this query's belong to it.
        passed_over: How many preceding commits Spark does not know of, because it completed their micro-batches without
            calling the task again; nearly always 0 (`decide.follows`).
        application_id: The application that committed. Topic names are ambiguous: both of the applications `a` and `a-b` may
            have a topic `a-b-c-commits`. Empty in markers of older versions.
        placement: The rule that assigns keys to tasks (`state.kafka.partitioner.Placement`), or `UNPLACED`. Not written if it is
            murmur2, as in all markers of older versions.
        earlier: How far earlier steps have read partitions that this step did not read, so that the newest marker alone shows how
            far the task is. Not written if it is empty, as in markers of older versions.
        transactional_id: The id that wrote the marker, if it is a slot's and not the task's own (`TaskIdentity.writer_of`).
        format: Format of the marker's bytes.
    """

    query_id: str
    task: int
    tasks: int
    topology_hash: str
    version: int
    batch_id: int
    batch: str
    ranges: Ranges
    topic_ids: Mapping[str, str]
    stream_time: int
    operator_state: Mapping[str, Any]
    changelog_ends: Mapping[str, int]
    expired_before: Mapping[str, int]
    counts: Mapping[str, int]
    changelog_hash: str
    now_ms: int
    changelog_begins: Mapping[str, int] = field(default_factory=dict)
    changelog_ids: Mapping[str, str] = field(default_factory=dict)
    routing: Routing = field(default_factory=dict)
    adopted: int = 0
    passed_over: int = 0
    application_id: str = ""
    continues: str = ""
    placement: str = Placement.MURMUR2.value
    earlier: Reached = field(default_factory=dict)
    transactional_id: str = ""
    format: int = field(default=FORMAT)

    @property
    def live(self) -> bool:
        """Whether a live step wrote it. Its ranges then show how far the task has read each of its partitions."""
        return self.format in (LIVE_FORMAT, PLACED_LIVE_FORMAT)

    @property
    def state_of(self) -> str:
        """The id of the query that local state, snapshots and replicas have: that of the first query, before any switch."""
        return self.continues or self.query_id

    @property
    def live_positions(self) -> dict[TopicPartition, int]:
        """How far a live step has read each partition. The consumer group may not know yet. Empty for a micro-batch."""
        return {
            (topic, int(partition)): end
            for topic, of in (self.ranges if self.live else {}).items()
            for partition, (_, end) in of.items()
        }

    def reached(self) -> Reached:
        """How far this step and earlier ones have read each partition that had records for the task."""
        found = {topic: (topic_id, dict(of)) for topic, (topic_id, of) in self.earlier.items()}
        for topic, ranges in self.ranges.items():
            _, of = found.setdefault(topic, (self.topic_ids.get(topic, ""), {}))
            of.update({partition: end for partition, (_, end) in ranges.items()})
        return found

    def reached_before(self, ranges: Ranges, topic_ids: Mapping[str, str]) -> Reached:
        """The `earlier` of the next step: positions in partitions that it does not read, without topics that were made again."""
        found = {}
        for topic, (topic_id, of) in self.reached().items():
            rest = {partition: end for partition, end in of.items() if partition not in ranges.get(topic, {})}
            if rest and topic_ids.get(topic, topic_id) == topic_id:
                found[topic] = topic_id, rest
        return found

    def to_bytes(self) -> bytes:
        """The marker as JSON with sorted keys: equal markers have equal bytes."""
        found = dict(zip(_FIELDS, _VALUES_OF(self), strict=True))
        for name, older in _OPTIONAL.items():
            if found[name] == older:
                del found[name]
        return write(found, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, data: bytes) -> CommitMarker:
        """Reads a marker back."""
        try:
            found = read(data)
            number = found["format"]
        except (*UNREADABLE, KeyError, TypeError) as error:
            raise _not_a_marker(data) from error
        if number not in _READABLE:
            raise MarkerFormatError(
                f"the commit marker has format {number}, this version knows {_READABLE[0]} to {_READABLE[-1]}. Run the version "
                f"that wrote it, or a newer one."
            )
        try:
            for name in ("ranges", "routing"):
                found[name] = {t: {p: (r[0], r[1]) for p, r in of.items()} for t, of in found.get(name, {}).items()}
            found["earlier"] = {topic: (of[0], of[1]) for topic, of in found.get("earlier", {}).items()}
            return cls(**{name: value for name, value in found.items() if name in _FIELDS})
        except (KeyError, TypeError, AttributeError) as error:
            raise _not_a_marker(data) from error

    def same_input(self, query_id: str, batch_id: int, batch: str) -> bool:
        """Whether the marker commits exactly this micro-batch of this query."""
        return (self.query_id, self.batch_id, self.batch) == (query_id, batch_id, batch)


_FIELDS = dict.fromkeys(each.name for each in fields(CommitMarker))
_VALUES_OF = attrgetter(*_FIELDS)
_OPTIONAL = {"continues": "", "earlier": {}, "transactional_id": "", "placement": Placement.MURMUR2.value}
"""Fields that are not written if they have the value that their absence means in older markers."""


def format_of(placement: str, live: bool = False) -> int:
    """The format of a marker with this placement."""
    if placement in (UNPLACED, Placement.MURMUR2):
        return LIVE_FORMAT if live else FORMAT
    return PLACED_LIVE_FORMAT if live else PLACED_FORMAT


def _not_a_marker(data: bytes) -> MarkerFormatError:
    return MarkerFormatError(f"not a commit marker: {data[:80]!r}. The commits topic belongs to something else.")


@dataclass(frozen=True, slots=True)
class MarkerCopy:
    """Spark's copy of a marker: its bytes and its offset on the commits partition."""

    data: bytes
    offset: int

    @property
    def marker(self) -> CommitMarker:
        return CommitMarker.from_bytes(self.data)


# --- Finds the last commit marker of a task, the only authority on what the task has done.


class MarkerLog(Protocol):
    """The part of `state.commit.live.LiveKafka` that this module needs."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...
    def begin_offset(self, partition: TopicPartition) -> int: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Run]: ...


FIRST_SPAN = 64
"""How many offsets before the end the first search for the last marker covers."""


def end_behind(offset: int) -> int:
    """The end of the commits partition after a committed marker: only the control record of its transaction is in between."""
    return offset + 2


def read_last_marker(
    log: MarkerLog, commits: TopicPartition, known: int | None = None, end: int | None = None
) -> MarkerCopy | None:
    """The newest marker up to the last stable offset; None on an empty partition."""
    if end is None:
        end = log.end_offsets([commits])[commits]
    if known is not None and known < end:
        return _last_in(log, commits, known, end)
    begin, found, span = min(log.begin_offset(commits), end), None, FIRST_SPAN
    # The control records of old transactions stay for a while, but the last marker is nearly always right before the end.
    start = end
    while found is None and start > begin:
        start, before = max(begin, start - span), start
        found, span = _last_in(log, commits, start, before), span * 16
    return found


def _last_in(log: MarkerLog, commits: TopicPartition, start: int, end: int) -> MarkerCopy | None:
    last: MarkerCopy | None = None
    for records in log.read(*commits, start, end):
        if len(records):
            last = MarkerCopy(records.last_value or b"", records.last_offset)
    return last
