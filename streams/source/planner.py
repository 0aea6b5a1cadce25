"""Plans micro-batches on the driver: initial positions, the next batch's ranges, and what is wrong with the topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from state.errors import OffsetsLostError, TopicNotFoundError, TopicRecreatedError
from state.kafka.patience import Patience, delete_if_possible
from streams.errors import ConfigError
from streams.source.admin import Admin, PatientAdmin, TopicInfo
from streams.source.backlog import Backlog
from streams.source.offsets import FirstBatch, OffsetRange, SourceOffsets, TopicOffsets
from streams.source.sampling import Positions, ReadRecords, Record, TopicPartition

if TYPE_CHECKING:
    from streams.source.partition_times import PartitionTimes

log = logging.getLogger(__name__)


SHORT_WAIT_S = 20.0
"""How long the planner asks again where brokers are away. Longer absences are the driver's: it can tell of them, and be stopped."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a sub-topology reads, and how.

    Attributes:
        starting: Topic -> `earliest`, `latest`, `none`, `timestamp:<ms>` or `duration:<ms>` before now: where reading begins.
        trimmed: Topics whose records are deleted once they are consumed (repartition topics).
        on_lost_offsets: `fail`, `earliest` or `latest`.
        max_records: Admission limit of a micro-batch in records (offsets).
        max_bytes: The same in bytes.
        times_topic: The commits topic that keeps partition times; None where no timestamp extractor asks for them.
        decide_s: How long transactions that write to the commits topic may stay open at most, seconds.
        global_topics: Topics of global tables, read by each process up to where they end when a batch is planned.
        until: Where partitions end at most for a run over what is there (Trigger.AvailableNow).
        broker_wait_ms: How long brokers may be away.
        tick_ms: Every task gets a step at least so often, records or not (wall-clock punctuators, idle time); None = only
            with records. A run over what is there has no ticks.
        first: Where the query's first micro-batch begins, as kept beside its checkpoint; None = to be found out.
    """

    starting: Mapping[str, str]
    trimmed: frozenset[str] = frozenset()
    on_lost_offsets: str = "fail"
    max_records: int = 1_000_000
    max_bytes: int = 512 * 1024 * 1024
    times_topic: str | None = None
    decide_s: float = 90.0
    global_topics: tuple[str, ...] = ()
    until: Mapping[TopicPartition, int] = field(default_factory=dict)
    broker_wait_ms: int = 600_000
    tick_ms: int | None = None
    first: FirstBatch | None = None


class BatchPlanner:
    """Plans the micro-batches of one sub-topology.

    Args:
        admin: Asks Kafka.
        spec: What to read.
        read: Reads a few records at given places; asked while there is a backlog.
        times: Knows the partition times; None where nobody asks for them.
        now_ms: The clock; asked where reading begins a duration before now, for ticks, for each batch that is planned, and for
            what is dated too far ahead to be believed while there is a backlog; what comes of it is logged.
        rest: Called when a micro-batch was planned without reading any records: there is no backlog.
    """

    def __init__(
        self,
        admin: Admin,
        spec: SourceSpec,
        read: ReadRecords,
        times: PartitionTimes | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._now_ms = now_ms
        self._admin = admin
        self._spec = spec
        self._backlog = Backlog(read, spec.max_records, spec.max_bytes, now_ms, rest)
        self._times = times
        self._target: Mapping[TopicPartition, int] | None = None
        self._planned: SourceOffsets | None = None
        self._planned_all = False
        self._ticked_ms: int | None = None
        self._hidden: frozenset[str] = frozenset()

    def initial(self) -> SourceOffsets:
        """Where a new application begins to read.

        Raises:
            TopicNotFoundError: A source topic does not exist.
            ConfigError: A source must not begin without a checkpoint.
        """
        if self._spec.first is not None:
            return self._spec.first.start
        topics = self._describe()
        return _offsets(topics, self._first(topics))

    def _first(self, topics: Mapping[str, TopicInfo]) -> dict[TopicPartition, int]:
        """Where reading begins in topics that have no position yet."""
        partitions = _partitions(topics)
        begin, end = self._admin.begin_offsets(partitions), self._admin.end_offsets(partitions)
        chosen: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, int] = {}
        for tp in partitions:
            policy = self._spec.starting[tp[0]]
            if policy == "none":
                raise ConfigError(
                    f"topic {tp[0]!r} is read with offset_reset 'none', and the application's checkpoint has no position in it "
                    f"to go on from: put the checkpoint back if it was lost, or say where to begin ('earliest' or 'latest'), "
                    f"as for a topic that is new under a pattern"
                )
            kind, _, ms = policy.partition(":")
            if kind in ("timestamp", "duration"):
                times[tp] = int(ms) if kind == "timestamp" else max(0, self._now_ms() - int(ms))
            chosen[tp] = end[tp] if policy == "latest" else begin[tp]
        chosen.update(self._admin.offsets_for_times(times) if times else {})
        return chosen

    def freeze(self) -> None:
        """Takes the present ends as the target: nothing that is written later will be read (Trigger.AvailableNow)."""
        ends = self._admin.end_offsets(_partitions(self._describe()))
        self._target = {tp: min(end, self._spec.until.get(tp, end)) for tp, end in ends.items()}

    def latest(self, start: SourceOffsets) -> SourceOffsets:
        """Where the next micro-batch ends; equal to `start` when there is nothing to read and no tick is due.

        New records of global tables alone make no micro-batch: nothing would come out of it.

        Raises:
            TopicNotFoundError: A source topic has gone.
            TopicRecreatedError: It is another topic under the same name.
            OffsetsLostError: `start` is no longer in the log.
        """
        first_batch = self._spec.first
        if first_batch and first_batch.end and start == first_batch.start != first_batch.end:
            # Another checkpoint's last micro-batch, which some tasks may have committed: it counts as logged.
            return first_batch.end
        topics = self._describe()
        self._check_ids(start.topics, topics)
        self._tell_of_hidden(start, topics)
        partitions = _partitions(topics)
        end = dict(self._admin.end_offsets(partitions))
        begin = self._admin.begin_offsets(partitions)
        # Under a pattern a topic may be new: a batch of its own gives it a position, the next one reads from there.
        new = {name: info for name, info in topics.items() if name not in start.topics}
        first = self._first(new) if new else {}
        positions = {tp: self._position(start, tp, begin[tp], end[tp]) for tp in partitions if tp not in first} | first
        if self._target is not None:
            end = {tp: min(at, self._target.get(tp, 0)) for tp, at in end.items()}
        end.update(first)
        moved = bool(new) or any(positions[tp] != start.of(*tp) for tp in partitions)
        tick = self._next_tick(start.tick)
        if tick == start.tick and not moved and all(end[tp] <= positions[tp] for tp in partitions):
            # Partitions that have come up empty would change the text of the offsets, and so make an empty batch.
            self._backlog.rest()
            return start
        # A jump over lost offsets is logged at once, even if nothing is to be read: else it would be made again and again.
        chosen = self._backlog.admit(positions, end)
        self._planned_all = not new and all(chosen[tp] >= end[tp] for tp in partitions)
        admitted = _offsets(topics, chosen, start)
        # Asked for last: what was written to a global table before a record was is then there when the record is processed.
        self._planned = replace(admitted, global_topics=self._global_ends(start), tick=tick, now_ms=self._now_ms())
        return self._planned

    def limit(self, start: SourceOffsets, end: SourceOffsets) -> int:
        """How many offsets a micro-batch that lies there would have at most, by the present settings and true sizes."""
        places = [(topic, partition) for topic, of in end.topics.items() for partition in range(len(of.offsets))]
        return self._backlog.limit({tp: start.of(*tp) for tp in places}, {tp: end.of(*tp) for tp in places})

    def _next_tick(self, last: int) -> int:
        """The next number if a tick is due, else the last one. The first is due at once: tasks are to see the start."""
        interval = self._spec.tick_ms
        if interval is None or self._target is not None:
            return last
        now = self._now_ms()
        if self._ticked_ms is not None and 0 <= now - self._ticked_ms < interval:
            return last
        self._ticked_ms = now
        return last + 1

    def report(self) -> SourceOffsets:
        """The ends of all partitions, for the lag."""
        topics = self._describe()
        return _offsets(topics, self._admin.end_offsets(_partitions(topics)))

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """The ranges of a micro-batch, without what is lost where `on_lost_offsets` allows that.

        Raises:
            TopicNotFoundError: A source topic has gone.
            TopicRecreatedError: It is another topic under the same name.
        """
        if self.is_repeat(end):
            # A batch that an earlier run has logged: much may have happened to the topics since.
            self._check_ids(end.topics, self._describe())
            self._check_ids(end.global_topics, self._described(list(end.global_topics)))
        if self._spec.on_lost_offsets == "fail":
            return start.ranges_to(end)
        changed = [
            (topic, partition)
            for topic, of in sorted(end.topics.items())
            for partition, to in enumerate(of.offsets)
            if topic in start.topics and to != start.of(topic, partition)
        ]
        begin = self._admin.begin_offsets(changed)
        ranges = []
        for topic, partition in changed:
            first, last = start.of(topic, partition), end.of(topic, partition)
            earliest = begin[topic, partition]
            if not earliest <= first <= last:
                first = earliest if self._spec.on_lost_offsets == "earliest" else last
            if first < last:
                ranges.append(OffsetRange(topic, partition, first, last))
        return ranges

    def leaves_backlog(self, end: SourceOffsets) -> bool:
        """Whether records may be left for a later micro-batch; of one that an earlier run has logged nobody knows: so they may."""
        return self.is_repeat(end) or not self._planned_all

    def is_repeat(self, end: SourceOffsets) -> bool:
        """Whether an earlier run has logged this micro-batch, and perhaps committed some of its tasks."""
        return end != self._planned

    def times_before(self, ranges: Sequence[OffsetRange]) -> Mapping[TopicPartition, int] | None:
        """The partition time at the start of each range, ms; None where nobody asks for them."""
        return self._times.before(ranges) if self._times else None

    def confirmed(self, end: SourceOffsets) -> None:
        """Spark has logged the micro-batch up to `end` as done: what lies before it on repartition topics may go."""
        before = {
            (topic, partition): offset
            for topic in self._spec.trimmed & end.topics.keys()
            for partition, offset in enumerate(end.topics[topic].offsets)
            if offset
        }
        delete_if_possible(self._admin, before)

    def _describe(self) -> Mapping[str, TopicInfo]:
        return self._described(list(self._spec.starting))

    def _described(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        if not names:
            return {}
        found = self._admin.describe_topics(names)
        for name in names:
            if name not in found:
                raise TopicNotFoundError(name)
        return found

    def _global_ends(self, start: SourceOffsets) -> Mapping[str, TopicOffsets]:
        topics = self._described(self._spec.global_topics)
        self._check_ids(start.global_topics, topics)
        return _offsets(topics, self._admin.end_offsets(_partitions(topics))).topics if topics else {}

    def _check_ids(self, known: Mapping[str, TopicOffsets], topics: Mapping[str, TopicInfo]) -> None:
        for name, of in known.items():
            if name in topics and topics[name].topic_id != of.topic_id:
                raise TopicRecreatedError(name, of.topic_id, topics[name].topic_id)

    def _tell_of_hidden(self, start: SourceOffsets, topics: Mapping[str, TopicInfo]) -> None:
        hidden = frozenset(name for name in start.topics if name not in topics)
        if hidden - self._hidden:
            names = ", ".join(sorted(hidden))
            log.warning(
                "topics that match no more, or cannot be seen, keep their positions until they come back: %s", names
            )
        self._hidden = hidden

    def _position(self, start: SourceOffsets, tp: TopicPartition, begin: int, end: int) -> int:
        at = start.of(*tp)
        if begin <= at <= end:
            return at
        if self._spec.on_lost_offsets == "fail":
            raise OffsetsLostError(tp[0], tp[1], at, earliest=begin, latest=end)
        to = begin if self._spec.on_lost_offsets == "earliest" else end
        log.warning("%s-%d: offset %d is lost, the log has [%d, %d); going on at %d", tp[0], tp[1], at, begin, end, to)
        return to


def _partitions(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [(name, partition) for name in sorted(topics) for partition in range(topics[name].partitions)]


def _offsets(
    topics: Mapping[str, TopicInfo], at: Mapping[TopicPartition, int], before: SourceOffsets | None = None
) -> SourceOffsets:
    """Positions in topics. Those of `before` that are out of sight (a topic of a pattern, a partition) are carried along."""
    known = dict(before.topics) if before else {}
    for name, info in topics.items():
        hidden = known[name].offsets[info.partitions :] if name in known else ()
        known[name] = TopicOffsets(info.topic_id, (*(at[name, p] for p in range(info.partitions)), *hidden))
    return SourceOffsets(known)


def live_planner(client: Mapping[str, str], spec: SourceSpec) -> BatchPlanner:
    """A planner on a real cluster."""
    from state.kafka.admin import KafkaAdmin
    from state.kafka.config import QUIET
    from state.kafka.sampler import RecordSampler
    from state.kafka.transactions import wait_until_decided
    from streams.source.partition_times import LiveLog, PartitionTimes

    patience = Patience(min(SHORT_WAIT_S, spec.broker_wait_ms / 1000))
    admin = PatientAdmin(KafkaAdmin({**QUIET, **client}), patience)
    sampler = RecordSampler(client)

    def read(at: Positions, end: Positions) -> Mapping[TopicPartition, Sequence[Record]]:
        return patience(lambda: sampler.sample(at, end))

    times = None
    if spec.times_topic:
        times = PartitionTimes(
            LiveLog(client, admin), spec.times_topic, partial(wait_until_decided, admin, timeout_s=spec.decide_s)
        )
    return BatchPlanner(admin, spec, read, times, lambda: int(time.time() * 1000), sampler.rest)
