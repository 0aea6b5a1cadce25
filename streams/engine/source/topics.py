"""The topics that a sub-topology reads, in both executions: where reading begins and continues, and whether they are the same.

The planner of micro-batches asks about all partitions on the driver, and a live task about its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from state.errors import OffsetsLostError, TopicNotFoundError, TopicRecreatedError
from state.kafka.admin import delete_if_possible
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of
from streams.engine.source.log import now_ms as wall_clock_ms
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.engine.source.log import SourceAdmin

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Describes what a sub-topology reads, and how.

    Attributes:
        starting: Topic -> where reading begins: `earliest`, `latest`, `none`, `timestamp:<ms>`, or `duration:<ms>` before now.
        trimmed: Topics whose records are deleted once they are consumed (repartition topics).
        on_lost_offsets: `fail`, `earliest` or `latest`.
        max_records: Limit of a micro-batch in records (offsets).
        max_bytes: Limit of a micro-batch in bytes.
        times_topic: The commits topic with the partition times; None if no timestamp extractor uses them.
        decide_s: The longest time that transactions which write to the commits topic may stay open, seconds.
        global_topics: Topics of global tables, which each process reads up to their ends at planning.
        until: The ends of partitions for a run over the existing input (Trigger.AvailableNow).
        tick_ms: The longest time between two steps of a task, with or without records (wall-clock punctuators, idle time);
            None: steps only with records. A run over the existing input has no ticks.
        first: Where the query's first micro-batch begins, as saved with its checkpoint; None: not decided yet.
        reads_together: Whether one reader may read several ranges. It may not if the head waits for answers of other systems.
        readers: How many readers work at once; None: unknown, as on a cluster whose executors change.
        delays: Retry topic -> how long after a record was written it is read, ms.
        pauses: The application's id and the sub-topology's name, by which it may be paused; None: it is never paused.
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
    interval_ms: int = 0
    reads_together: bool = True
    readers: int | None = None
    delays: Mapping[str, int] = field(default_factory=dict)
    pauses: tuple[str, str] | None = None

    def behind_loss(self, begin: int, end: int) -> int:
        """Where reading continues in a log [begin, end) that does not have the position, if `on_lost_offsets` allows that."""
        return begin if self.on_lost_offsets == "earliest" else end


@dataclass(frozen=True, slots=True)
class Places:
    """Where reading continues in some partitions.

    Attributes:
        at: Partition -> the next offset.
        ends: Partition -> the end of its log.
        first: The first positions in those partitions whose topics had none before.
    """

    at: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    first: Mapping[TopicPartition, int]


class SourceTopics:
    """The topics of a sub-topology in Kafka.

    Args:
        now_ms: The clock, ms since 1970, for first positions that are relative to now.
    """

    def __init__(self, admin: SourceAdmin, spec: SourceSpec, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._admin = admin
        self._spec = spec
        self._now_ms = now_ms
        self._hidden: frozenset[str] = frozenset()

    def described(self, known: Mapping[str, str]) -> dict[str, TopicInfo]:
        """The source topics, by name.

        Args:
            known: Topic -> the id that it had when it was last read.

        Raises:
            TopicNotFoundError: A source topic does not exist.
            TopicRecreatedError: A source topic was recreated under the same name.
        """
        return self._described(sorted(self._spec.starting), known)

    def _described(self, names: Sequence[str], known: Mapping[str, str]) -> dict[str, TopicInfo]:
        found = self._admin.describe_topics(names) if names else {}
        TopicNotFoundError.if_missing(names, found)
        check_same(known, found)
        return {name: found[name] for name in names}

    def places(self, known: SourceOffsets, partitions: Sequence[TopicPartition]) -> Places:
        """Where reading continues: at the known position if the log still has it, otherwise after the lost offsets.

        An unknown topic begins where its reset policy says. A new partition of a known topic begins at its first record.

        Raises:
            OffsetsLostError: A position is not in the log, and `on_lost_offsets` is `fail`.
            ConfigError: A topic has the reset policy `none`, so it may not begin without a position.
        """
        ends, begins = self._admin.end_offsets(partitions), self._admin.begin_offsets(partitions)
        first = self._first([place for place in partitions if place[0] not in known.topics], begins, ends)
        at = {place: self._kept(place, known.of(*place), begins, ends) for place in partitions if place not in first}
        return Places({place: first.get(place, at.get(place, 0)) for place in partitions}, ends, first)

    def _first(
        self,
        partitions: Sequence[TopicPartition],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The first offsets of topics that have no position yet."""
        chosen: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, int] = {}
        for place in partitions:
            policy = self._spec.starting[place[0]]
            if policy == "none":
                raise ConfigError(
                    f"topic {place[0]!r} is read with offset_reset 'none', and the application's checkpoint has no position in it "
                    f"to continue from: put the checkpoint back if it was lost, or say where to begin ('earliest' or 'latest'), "
                    f"as for a topic that is new under a pattern"
                )
            kind, _, ms = policy.partition(":")
            if kind in ("timestamp", "duration"):
                times[place] = int(ms) if kind == "timestamp" else max(0, self._now_ms() - int(ms))
            chosen[place] = ends[place] if policy == "latest" else begins[place]
        chosen.update(self._admin.offsets_for_times(times) if times else {})
        return chosen

    def _kept(
        self,
        place: TopicPartition,
        at: int,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> int:
        begin, end = begins[place], ends[place]
        if begin <= at <= end:
            return at
        if self._spec.on_lost_offsets == "fail":
            raise OffsetsLostError(*place, at, earliest=begin, latest=end, setting=self._spec.on_lost_offsets)
        to = self._spec.behind_loss(begin, end)
        log.warning(
            "%s-%d: offset %d is lost, the log has [%d, %d); continuing at %d, without %d offsets",
            *place, at, begin, end, to, max(0, to - at),
        )  # fmt: skip
        return to

    def completed(self, known: SourceOffsets) -> SourceOffsets:
        """Adds first positions in topics that have none, so that these hold before any of their records is read.

        It also adds the ids of global tables, by which a later start recognises that their topics were recreated. If nothing is
        missing, it returns the same object.

        Raises:
            StreamsError: As for `described` and `places`.
        """
        topics = self.described(known.topic_ids)
        new = {name: info for name, info in topics.items() if name not in known.topics}
        tables = {
            name: of for name, of in self.global_ends(known.global_topics).items() if name not in known.global_topics
        }
        if not new and not tables:
            return known
        first = with_positions(new, self.places(SourceOffsets({}), partitions_of(new)).at if new else {})
        return replace(known, topics={**known.topics, **first.topics}, global_topics={**known.global_topics, **tables})

    def target(self) -> dict[TopicPartition, int]:
        """Where a run over the existing input ends: at the current ends, or before them at the given ends."""
        ends = self._admin.end_offsets(partitions_of(self.described({})))
        return {place: min(end, self._spec.until.get(place, end)) for place, end in ends.items()}

    def global_ends(self, known: Mapping[str, TopicOffsets]) -> dict[str, TopicOffsets]:
        """The ends of the topics of global tables, up to which a step sees them.

        Args:
            known: Their ends when they were last read.

        Raises:
            TopicNotFoundError: A topic does not exist.
            TopicRecreatedError: A topic was recreated under the same name.
        """
        topics = self._described(self._spec.global_topics, {name: of.topic_id for name, of in known.items()})
        return dict(with_positions(topics, self._admin.end_offsets(partitions_of(topics))).topics) if topics else {}

    def report_hidden(self, known: SourceOffsets) -> None:
        """Logs the topics that have a position and are not read. They are logged again only if further ones are missing."""
        hidden = frozenset(known.topics.keys() - self._spec.starting.keys())
        if hidden - self._hidden:
            names = ", ".join(sorted(hidden))
            log.warning(
                "topics that no longer match, or cannot be seen, keep their positions until they come back: %s", names
            )
        self._hidden = hidden

    def trim(self, read: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        """Deletes the records of repartition topics that were read and committed, if the topics still have these ids."""
        before = {place: at for place, at in sorted(read.items()) if place[0] in self._spec.trimmed and at}
        delete_if_possible(self._admin, before, {topic: ids[topic] for topic, _ in before})


def recreated(known: Mapping[str, str], topics: Mapping[str, TopicInfo]) -> Iterator[TopicRecreatedError]:
    """Yields an error for each topic whose id is not the known one."""
    for name, topic_id in known.items():
        if name in topics and topics[name].topic_id != topic_id:
            yield TopicRecreatedError(name, topic_id, topics[name].topic_id)


def check_same(known: Mapping[str, str], topics: Mapping[str, TopicInfo]) -> None:
    """Checks that topics have their known ids.

    Raises:
        TopicRecreatedError: A topic was recreated under the same name.
    """
    for error in recreated(known, topics):
        raise error


def with_positions(
    topics: Mapping[str, TopicInfo], at: Mapping[TopicPartition, int], before: SourceOffsets | None = None
) -> SourceOffsets:
    """Makes positions in topics. Positions of `before` in topics and partitions that are not visible now are carried over."""
    known = dict(before.topics) if before else {}
    for name, info in topics.items():
        hidden = known[name].offsets[info.partitions :] if name in known else ()
        known[name] = TopicOffsets(info.topic_id, (*(at[name, p] for p in range(info.partitions)), *hidden))
    return SourceOffsets(known)


def due_before_ms(now_ms: int, delay_ms: int) -> int:
    """Records of a retry topic that were written before this time have waited for its delay."""
    return max(0, now_ms - delay_ms + 1)


class Ticks:
    """Decides when steps without records are due: the first at the start, so that all tasks run, then one after each interval.

    Args:
        interval: Time between two ticks, in the unit of the caller's clock; None: there are no ticks.
    """

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._last: float | None = None

    def left(self, now: float) -> float:
        """The time until the next tick; it is due if the time is not positive."""
        if self._interval is None:
            return inf
        # If the clock was set back, a tick is due at once instead of when it has caught up.
        if self._last is None or now < self._last:
            return 0.0
        return self._last + self._interval - now

    def take(self, now: float) -> bool:
        """Whether a tick is due. If so, it counts as taken."""
        due = self.left(now) <= 0
        if due:
            self._last = now
        return due
