"""`BatchPlanner`: decides on the driver which records the next micro-batch reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from state.kafka.admin import KafkaAdmin, TransientRetry, wait_until_decided
from state.kafka.consumers import RecordSampler
from state.kafka.topics import partitions_of
from streams.engine.source.backlog import Backlog
from streams.engine.source.log import LiveLog, PatientAdmin, SourceAdmin, now_ms
from streams.engine.source.offsets import OffsetRange, SourceOffsets
from streams.engine.source.pauses import PauseWatch
from streams.engine.source.sampling import Positions, ReadRecords, Sampled, TopicPartition
from streams.engine.source.topics import SourceSpec, SourceTopics, Ticks, due_before_ms, with_positions

if TYPE_CHECKING:
    from streams.engine.source.partition_times import PartitionTimes

# --- The part of retry topics that a micro-batch reads: the records that have waited for their topic's delay.
#
# Each topic has one delay, and its records carry the time at which they were written, so the due ones come first. A
# micro-batch ends before the first record that is not due: waiting costs no reads, and a logged range stays the same.


RETRIED = 4
"""A micro-batch may have this fraction (1/4) of its limits in records of retry topics, in addition to the others."""


class RetryTopics:
    """The retry topics of a sub-topology.

    Args:
        delays: Retry topic -> how long after a record was written it is read, ms.
        backlog: Limits the retried records of a micro-batch. They are not aligned in time with the others: their time is that
            of the failure, so they would all come after any backlog.
        now_ms: The clock, ms since 1970; the same one that dated the failures.
    """

    def __init__(
        self, delays: Mapping[str, int], admin: SourceAdmin, backlog: Backlog, now_ms: Callable[[], int]
    ) -> None:
        self._delays = delays
        self._admin = admin
        self._backlog = backlog
        self._now_ms = now_ms

    def among(self, end: Positions) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in end.items() if tp[0] in self._delays}

    def due(self, positions: Positions, end: Positions) -> dict[TopicPartition, int]:
        """The end of the records that are due in each partition of a retry topic."""
        waiting = {tp: at for tp, at in self.among(end).items() if at > positions[tp]}
        if not waiting:
            return {}
        now = self._now_ms()
        found = self._admin.offsets_for_times({tp: due_before_ms(now, self._delays[tp[0]]) for tp in waiting})
        due = {tp: min(at, max(positions[tp], found[tp])) for tp, at in waiting.items()}
        held = [tp for tp, at in due.items() if at == positions[tp]]
        if held:
            # A record dated by a clock that was ahead, and has been set right since, must not wait longer than twice its delay.
            ahead = self._admin.offsets_for_times({tp: now + self._delays[tp[0]] + 1 for tp in held})
            due.update({tp: due[tp] + 1 for tp in held if ahead[tp] <= due[tp] < waiting[tp]})
        return due

    def admit(self, positions: Positions, due: Positions) -> dict[TopicPartition, int]:
        return self._backlog.admit(positions, due) if due else {}


# --- The planner of micro-batches on the driver: what each one reads of the topics (`streams.engine.source.topics`).


class BatchPlanner:
    """Plans the micro-batches of one sub-topology.

    Args:
        read: Reads a few records at given places; called while there is a backlog.
        times: Knows the partition times; None if no timestamp extractor uses them.
        now_ms: The clock, ms since 1970: for ticks, for the time of each planned batch, for starting positions relative to
            now, and for ignoring timestamps too far ahead under a backlog. All of its results are logged by Spark.
        rest: Called when a micro-batch was planned without reading any records: there is no backlog.
        paused: Whether no micro-batch may be planned. One that is logged already runs to its end.
    """

    def __init__(
        self,
        admin: SourceAdmin,
        spec: SourceSpec,
        read: ReadRecords,
        times: PartitionTimes | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        rest: Callable[[], None] = lambda: None,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._now_ms = now_ms
        self._paused = paused
        self._admin = admin
        self._spec = spec
        self._sources = SourceTopics(admin, spec, now_ms)
        self.reads_together = spec.reads_together
        self.readers = spec.readers
        self._backlog = Backlog(read, spec.max_records, spec.max_bytes, now_ms, rest, spec.interval_ms)
        records, size = max(1, spec.max_records // RETRIED), max(1, spec.max_bytes // RETRIED)
        retried = Backlog(read, records, size, now_ms, interval_ms=spec.interval_ms)
        self._retries = RetryTopics(spec.delays, admin, retried, now_ms)
        self._times = times
        self._target: Mapping[TopicPartition, int] | None = None
        self._planned: SourceOffsets | None = None
        self._planned_all = False
        self._ticks = Ticks(spec.tick_ms)

    def initial(self) -> SourceOffsets:
        """The position where a new application begins to read.

        Raises:
            TopicNotFoundError: A source topic does not exist.
            ConfigError: A source has the reset policy `none`, so it may not begin without a checkpoint.
        """
        if self._spec.first is not None:
            return self._spec.first.start
        topics = self._sources.described({})
        return with_positions(topics, self._sources.places(SourceOffsets({}), partitions_of(topics)).at)

    def freeze(self) -> None:
        """Fixes the current ends as the target: records that are written later are not read (Trigger.AvailableNow)."""
        self._target = self._sources.target()

    def latest(self, start: SourceOffsets) -> SourceOffsets:
        """The position where the next micro-batch ends. It is `start` while paused, or with nothing to read and no tick due.

        New records of global tables alone cause no micro-batch, because it would have no results.

        Raises:
            TopicNotFoundError: A source topic no longer exists.
            TopicRecreatedError: A source topic was recreated under the same name.
            OffsetsLostError: `start` is no longer in the log.
        """
        first_batch = self._spec.first
        if first_batch and first_batch.end and start == first_batch.start != first_batch.end:
            # The last micro-batch of an adopted checkpoint. Some tasks may have committed it, so it counts as logged.
            return first_batch.end
        if self._paused():
            self._backlog.rest()
            return start
        topics = self._sources.described(start.topic_ids)
        self._sources.report_hidden(start)
        partitions = partitions_of(topics)
        # A topic may be new under a pattern: one batch without its records gives it a position, and the next one reads from there.
        found = self._sources.places(start, partitions)
        positions, end = found.at, dict(found.ends)
        if self._target is not None:
            end = {tp: min(at, self._target.get(tp, 0)) for tp, at in end.items()}
        end.update(self._retries.due(positions, end))
        end.update(found.first)
        moved = bool(found.first) or any(positions[tp] != start.of(*tp) for tp in partitions)
        tick = self._next_tick(start.tick)
        if tick == start.tick and not moved and all(end[tp] <= positions[tp] for tp in partitions):
            # New partitions without records would change the text of the offsets, and so cause an empty batch.
            self._backlog.rest()
            return start
        # A jump over lost offsets is logged at once, even if there is nothing to read. Otherwise it would be repeated each time.
        retried = self._retries.among(end)
        chosen = self._backlog.admit(positions, {tp: at for tp, at in end.items() if tp not in retried})
        chosen |= self._retries.admit(positions, retried)
        self._planned_all = not found.first and all(chosen[tp] >= end[tp] for tp in partitions)
        admitted = with_positions(topics, chosen, start)
        # Requested last, so that a record is processed with everything written to global tables before it.
        tables = self._sources.global_ends(start.global_topics)
        self._planned = replace(admitted, global_topics=tables, tick=tick, now_ms=self._now_ms())
        return self._planned

    def limit(self, start: SourceOffsets, end: SourceOffsets) -> int:
        """The most offsets of a micro-batch between two positions, by the current settings and the sizes of its records."""
        places = [(topic, partition) for topic, of in end.topics.items() for partition in range(len(of.offsets))]
        return self._backlog.limit({tp: start.of(*tp) for tp in places}, {tp: end.of(*tp) for tp in places})

    def _next_tick(self, last: int) -> int:
        """The number of the next tick if it is due, otherwise that of the last one."""
        return last + (self._target is None and self._ticks.take(self._now_ms()))

    def report(self) -> SourceOffsets:
        topics = self._sources.described({})
        return with_positions(topics, self._admin.end_offsets(partitions_of(topics)))

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """The ranges of a micro-batch, without lost offsets if `on_lost_offsets` allows that.

        Raises:
            TopicNotFoundError: A source topic no longer exists.
            TopicRecreatedError: A source topic was recreated under the same name.
        """
        if self.is_repeat(end):
            # An earlier run has logged this batch, so the topics may have changed since.
            self._sources.described(end.topic_ids)
            self._sources.global_ends(end.global_topics)
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
                first = self._spec.behind_loss(earliest, last)
            if first < last:
                ranges.append(OffsetRange(topic, partition, first, last))
        return ranges

    def leaves_backlog(self, end: SourceOffsets) -> bool:
        """Whether this micro-batch may leave records for a later one. Always true for one that an earlier run has logged."""
        return self.is_repeat(end) or not self._planned_all

    def is_repeat(self, end: SourceOffsets) -> bool:
        """Whether an earlier run has logged this micro-batch, and may have committed some of its tasks."""
        return end != self._planned

    def times_before(self, ranges: Sequence[OffsetRange]) -> Mapping[TopicPartition, int] | None:
        """The partition time at the start of each range, ms; None if no timestamp extractor uses them."""
        return self._times.before(ranges) if self._times else None

    def confirmed(self, end: SourceOffsets) -> None:
        """Deletes the records of repartition topics before `end`, because Spark has confirmed all micro-batches up to there."""
        self._sources.trim(end.by_partition(), end.topic_ids)


# --- The planner on a real cluster.

SHORT_WAIT_S = 20.0
"""How long the planner retries while brokers are away, s. Longer outages are left to the driver, which can report them and be
stopped."""


def live_planner(client: Mapping[str, str], spec: SourceSpec) -> BatchPlanner:
    patience = TransientRetry(min(SHORT_WAIT_S, spec.broker_wait_ms / 1000))
    admin = PatientAdmin(KafkaAdmin(client), patience)
    sampler = RecordSampler(client)
    log = LiveLog(client, admin)

    def read(at: Positions, end: Positions) -> Mapping[TopicPartition, Sequence[Sampled]]:
        return patience(lambda: sampler.sample(at, end))

    times = None
    if spec.times_topic:
        # It reads markers and therefore imports numpy and pyarrow, which few programs need.
        from streams.engine.source.partition_times import PartitionTimes

        times = PartitionTimes(log, spec.times_topic, partial(wait_until_decided, admin, timeout_s=spec.decide_s))
    watch = None if spec.pauses is None else PauseWatch(log, *spec.pauses, now_ms)
    return BatchPlanner(admin, spec, read, times, now_ms, sampler.rest, watch or (lambda: False))
