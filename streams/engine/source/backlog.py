"""Chooses the part of a backlog that a micro-batch takes: within the limits, aligned in time, and growing as long as it is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from streams.engine.source.sampling import (
    AHEAD_MS,
    NEAR_END,
    BacklogSamples,
    Curve,
    Positions,
    ReadRecords,
    Samples,
    TopicPartition,
)

# --- The part of a backlog that a micro-batch takes: at most `limit` offsets, aligned in time.
#
# Taking the same number of records from every partition would let a small partition run days ahead of a large one, whose
# records would then be late. So the planner chooses a time, and every partition ends at its first record past that time: a
# replay sees the partitions in the order of their timestamps. Example: partition 0 has 10 records an hour, partition 1 has 1,000,
# and the limit is 2,020 records. The micro-batch takes two hours of both: 20 records and 2,000.
#
# The planner finds that record by reading a few of the partition's own records between its position and its end. Kafka's
# time index is of no use here. It includes control records, which carry the broker's clock. It also covers the whole log, so a
# single record with a time far in the future, even if read long ago, would hold back its partition until all others are at their
# ends.

ROUNDS = 6
"""The most rounds of sampling for one micro-batch. Three or four are usual, because samples of earlier micro-batches are reused."""
NEAR = 256
"""A cut is certain once a record near it was sampled: within this fraction (1/256) of the partition's share."""
BETWEEN = 32
"""A cut is also certain between two samples no further apart than this fraction (1/32), where time is almost linear."""


def admit(
    start: Positions, end: Positions, limit: int, samples: BacklogSamples, latest_ms: int
) -> dict[TopicPartition, int]:
    waiting = [tp for tp in end if end[tp] > start[tp]]
    chosen = {tp: max(start[tp], end[tp]) for tp in end}
    if sum(end[tp] - start[tp] for tp in waiting) <= limit:
        return chosen
    last = {tp: max(start[tp], end[tp] - NEAR_END) for tp in waiting}
    samples.look({tp: start[tp] for tp in waiting}, end)
    samples.look({tp: last[tp] for tp in waiting if not _reaches(samples, tp, start[tp], limit)}, end)
    cuts: dict[TopicPartition, int] = {}
    for _ in range(ROUNDS):
        earliest = samples.earliest(waiting, latest_ms)
        curves = {tp: Curve.of(start[tp], end[tp], samples.of(tp), earliest, latest_ms) for tp in waiting}
        cuts = _cuts(curves, limit)
        # A partition from which nothing is read needs only the sample at its start.
        places = {
            tp: _look_for(samples.of(tp), start[tp], cut, last[tp]) for tp, cut in cuts.items() if cut > start[tp]
        }
        uncertain = {tp: place for tp, place in places.items() if place is not None}
        if not uncertain:
            break
        samples.look(uncertain, end)
    return chosen | cuts


def _look_for(samples: Samples, start: int, cut: int, last: int) -> int | None:
    """Where a further sample would make a cut more certain; None if it is certain.

    Interpolation alone approaches the cut from one side only, ever more slowly. So if one neighbour is much nearer than the other,
    the next sample is as far away on the other side of the cut. Then the two are close together.
    """
    cut, share = min(cut, last), cut - start
    around = samples.around(cut)
    near = min((abs(place - cut) for place in around), default=share)
    far = max((abs(place - cut) for place in around), default=share)
    if near <= share // NEAR or (len(around) == 2 and near + far <= max(1, share // BETWEEN)):
        return None
    if len(around) == 2 and near * 4 < far:
        below, above = around
        return min(cut + near, last) if cut - below < above - cut else max(cut - near, start)
    return cut


def _reaches(samples: BacklogSamples, tp: TopicPartition, start: int, limit: int) -> bool:
    """Whether a sampled record lies beyond everything that this micro-batch can take."""
    offsets = samples.of(tp).offsets
    return bool(offsets) and offsets[-1] >= start + limit


def _cuts(curves: Mapping[TopicPartition, Curve], limit: int) -> dict[TopicPartition, int]:
    """Cuts all partitions at the latest time that keeps them within the limit, and fills the rest of the limit."""
    times = [time for curve in curves.values() for time in curve.times]
    below, above = min(times, default=0) - 1, max(times, default=0)
    low = {tp: curve.start for tp, curve in curves.items()}
    high = {tp: curve.end for tp, curve in curves.items()}
    taken = 0
    while above - below > 1:
        middle = (below + above) // 2
        cuts = {tp: curve.cut(middle) for tp, curve in curves.items()}
        found = sum(cut - curves[tp].start for tp, cut in cuts.items())
        if found <= limit:
            below, low, taken = middle, cuts, found
        else:
            above, high = middle, cuts
    return _filled(low, high, limit - taken)


def _filled(low: Positions, high: Positions, spare: int) -> dict[TopicPartition, int]:
    """Fills the rest of the limit with records of the next instant, from each partition in proportion."""
    gap = {tp: high[tp] - low[tp] for tp in low}
    total = max(1, sum(gap.values()))
    share = {tp: left * spare // total for tp, left in gap.items()}
    rest = spare - sum(share.values())
    for tp in islice((tp for tp in sorted(gap) if share[tp] < gap[tp]), rest):
        share[tp] += 1
    return {tp: low[tp] + share[tp] for tp in low}


# --- The growth of micro-batches under a backlog: they begin small and become as large as their duration allows.
#
# A small first micro-batch gives first results soon, however long the backlog is. A large one costs less for each record, until it
# takes longer than a reader of the results wants to wait, or reaches the limits in records and bytes. Sizes are
# logged by Spark with the offsets, so the clock decides no result.
#
# A part of the duration is the same for a micro-batch of any size: Spark's planning, and the commit of each task. With many tasks,
# distant brokers or a slow machine it may be longer than anybody wants to wait. Smaller micro-batches would then not be faster, and
# would only fall further behind. So the wanted duration is a multiple of the fixed part, which is computed from two sizes. Example:
# 10,000 records take 3 s and 40,000 take 6 s, so 2 s are fixed, and the wanted duration is 3 times that: 6 s.

FIRST_RECORDS = 10_000
"""The most records of the first micro-batch of a run. Workers warm up with it, so its duration means nothing."""
FACTOR = 4
"""A micro-batch has at most this many times the records of the previous one."""
WANTED_MS = 2_000
"""Micro-batches that take less than this time grow."""
FIXED_PARTS = 3
"""They also grow below this many times their fixed part, so that at most a third of the time is spent on it."""
LONGEST = 3
"""Micro-batches that take more than this many times the wanted time shrink, but not below the size of the first one."""
PROBE = 2
"""If a micro-batch is slow and all so far had its size, the next one is larger by this factor, to find the fixed part of the
duration."""
DISTINCT = 1.5
"""Sizes that differ by a smaller factor do not show the fixed part, because durations vary by some tenths at any size."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A full micro-batch: its size and duration."""

    records: int
    took_ms: int

    def differs_from(self, other: _Seen) -> bool:
        """Whether the two sizes are far enough apart to compare the durations."""
        small, large = sorted((self.records, other.records))
        return large >= DISTINCT * small

    def fixed_ms(self, other: _Seen) -> int:
        """The part of both durations that does not depend on the size, if the rest is proportional to it."""
        by_size = (self.took_ms * other.records - other.took_ms * self.records) // (other.records - self.records)
        return max(0, min(by_size, self.took_ms, other.took_ms))


class BatchGrowth:
    """The limit in records of the next micro-batch of one run.

    Args:
        now_ms: A clock, ms.
        interval_ms: The time that the user wants between the starts of micro-batches. Taking that long does not count as slow.
    """

    def __init__(self, now_ms: Callable[[], int], interval_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._planned_ms: int | None = None
        self._is_first = True
        self._compared: _Seen | None = None
        self._fixed_ms: int | None = None
        self.records = FIRST_RECORDS

    def planned(self, *, is_full: bool) -> None:
        """Notes that a micro-batch was planned, and whether it has as many records as `records` allows."""
        self._planned_ms = self._now_ms() if is_full else None

    def next(self) -> None:
        """Notes that the last planned micro-batch has ended and the next one is being planned."""
        if self._planned_ms is None:
            return
        seen, self._planned_ms = _Seen(self.records, max(1, self._now_ms() - self._planned_ms)), None
        if self._is_first:
            self._is_first = False
            self.records *= FACTOR
            return
        self._compare(seen)
        self.records = max(FIRST_RECORDS, self._after(seen))

    def _compare(self, seen: _Seen) -> None:
        """Computes the fixed part of the duration from two sizes that are far enough apart."""
        if self._compared is None:
            self._compared = seen
        elif seen.differs_from(self._compared):
            self._fixed_ms, self._compared = seen.fixed_ms(self._compared), seen

    def _after(self, seen: _Seen) -> int:
        wanted_ms = self._interval_ms + max(WANTED_MS, FIXED_PARTS * ((self._fixed_ms or 0) - self._interval_ms))
        if seen.took_ms < wanted_ms:
            return min(seen.records * FACTOR, seen.records * wanted_ms // seen.took_ms)
        if seen.took_ms > LONGEST * wanted_ms:
            return seen.records * wanted_ms // seen.took_ms
        return seen.records * (PROBE if self._fixed_ms is None else 1)


# --- The size of micro-batches under a backlog: the limits in records and in bytes, and the cut between the partitions.

LARGE_PART = 4
"""From this fraction of a limit on (1/4), sizes are sampled again, because records may have grown."""
PARTITIONS = 8
"""How many partitions of each topic are sampled for the size of records: the ones with the longest backlog."""


class Backlog:
    """The backlog of a source. It chooses the ends of micro-batches, and remembers sizes and times of records.

    Args:
        read: Reads a few records at some positions.
        max_records: The most offsets of a micro-batch.
        max_bytes: The most bytes of keys and values in a micro-batch, estimated from the sizes of sampled records.
        now_ms: The clock, ms since 1970.
        rest: Called when a micro-batch was planned without reading any records.
        interval_ms: The time that the user wants between the starts of micro-batches.
    """

    def __init__(
        self,
        read: ReadRecords,
        max_records: int,
        max_bytes: int,
        now_ms: Callable[[], int],
        rest: Callable[[], None] = lambda: None,
        interval_ms: int = 0,
    ) -> None:
        self._growth = BatchGrowth(now_ms, interval_ms)
        self._samples = BacklogSamples(read)
        self.rest = rest
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._sizes: dict[str, float] = {}

    def admit(self, start: Positions, end: Positions) -> dict[TopicPartition, int]:
        self._growth.next()
        waiting = _waiting(start, end)
        if not waiting:
            return {tp: max(start[tp], end[tp]) for tp in end}
        looks = self._samples.looks
        limit = min(self._growth.records, self.limit(start, end))
        self._growth.planned(is_full=limit == self._growth.records < sum(waiting.values()))
        chosen = admit(start, end, limit, self._samples, self._now_ms() + AHEAD_MS)
        if self._samples.looks == looks:
            self.rest()
        return chosen

    def limit(self, start: Positions, end: Positions) -> int:
        """The most offsets of a micro-batch of the waiting records. The limit in bytes is divided by their mean size."""
        waiting = _waiting(start, end)
        if not waiting:
            return self._max_records
        self._samples.begin(start)
        if self._may_be_large(waiting):
            self._look_at_sizes(start, end, waiting)
        mean = self._bytes(waiting) / sum(waiting.values())
        return max(1, min(self._max_records, int(self._max_bytes / max(1.0, mean))))

    def _bytes(self, waiting: Mapping[TopicPartition, int]) -> float:
        return sum(left * self._sizes.get(tp[0], 1.0) for tp, left in waiting.items())

    def _may_be_large(self, waiting: Mapping[TopicPartition, int]) -> bool:
        """Whether the limits may be near. Always true for a topic that was never sampled."""
        return (
            any(topic not in self._sizes for topic, _ in waiting)
            or sum(waiting.values()) * LARGE_PART > self._max_records
            or self._bytes(waiting) * LARGE_PART > self._max_bytes
        )

    def _look_at_sizes(self, start: Positions, end: Positions, waiting: Mapping[TopicPartition, int]) -> None:
        """Samples each topic's mean size of records near the starts and near the ends, and keeps the larger one."""
        chosen: dict[str, list[TopicPartition]] = {}
        for tp in sorted(waiting, key=lambda tp: (-waiting[tp], tp)):
            if len(chosen.setdefault(tp[0], [])) < PARTITIONS:
                chosen[tp[0]].append(tp)
        places = [tp for of_topic in chosen.values() for tp in of_topic]
        near = max(1, self._max_records // LARGE_PART)
        self._samples.look({tp: start[tp] for tp in places}, end, near)
        self._samples.look({tp: max(start[tp], end[tp] - NEAR_END) for tp in places}, end, near)
        for topic, of_topic in chosen.items():
            known = [self._samples.of(tp).sizes for tp in of_topic if self._samples.of(tp).sizes]
            if known:
                first, last = _mean([sizes[0] for sizes in known]), _mean([sizes[-1] for sizes in known])
                self._sizes[topic] = max(1.0, first, last)


def _waiting(start: Positions, end: Positions) -> dict[TopicPartition, int]:
    return {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
