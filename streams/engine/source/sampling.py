"""Samples of waiting records: their sizes and timestamps, from a few records read here and there.

Kafka reports how many offsets a partition has, but neither the sizes of the records nor their times. So the planner reads a
few: near the start of the backlog, near its end, and where a micro-batch may end. Samples are reused for the next
micro-batch, which begins there. An application without a backlog reads nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median_low
from typing import Protocol

from state.kafka.topics import TopicPartition

Positions = Mapping[TopicPartition, int]

AHEAD_MS = 24 * 3600 * 1000
"""Timestamps further ahead of the clock than this are ignored."""
TIME_OF = 5
"""The time at an offset is the median of this many records, so that a single record with a wrong time does not count."""
NEAR_END = 5
"""How far the last sample is before a partition's end, so that it finds records."""


class Sampled(Protocol):
    """The sampled properties of a record, as in `state.kafka.consumers.SampledRecord`."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def size(self) -> int: ...


ReadRecords = Callable[[Positions, Positions], Mapping[TopicPartition, Sequence[Sampled]]]
"""(places, ends) -> the first few data records at or after each place and below the end."""


@dataclass
class Samples:
    """The samples of one partition.

    Attributes:
        asked: The offsets that were sampled, in order.
        offsets: For each sample, the offset of the middle one of the records found. Samples without records are left out.
        times: The time of each sample, ms.
        sizes: The mean bytes of a record in each sample.
    """

    asked: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def add(self, place: int, records: Sequence[Sampled]) -> None:
        self.asked.insert(bisect_left(self.asked, place), place)
        if not records:
            return
        timed = records[:TIME_OF]
        offset = timed[len(timed) // 2].offset
        index = bisect_left(self.offsets, offset)
        if index < len(self.offsets) and self.offsets[index] == offset:
            return
        self.offsets.insert(index, offset)
        self.times.insert(index, median_low(record.timestamp_ms for record in timed))
        self.sizes.insert(index, sum(record.size for record in records) / len(records))

    def forget_before(self, offset: int) -> None:
        """Drops samples before an offset, because they are no longer part of the backlog."""
        del self.asked[: bisect_left(self.asked, offset)]
        passed = bisect_left(self.offsets, offset)
        del self.offsets[:passed], self.times[:passed], self.sizes[:passed]

    def looked_near(self, place: int, distance: int) -> bool:
        """Whether an offset within this distance of a place was sampled."""
        return any(abs(asked - place) <= distance for asked in self.around(place))

    def around(self, place: int) -> list[int]:
        """The last sampled offset before a place and the first one at or after it, if they exist."""
        index = bisect_left(self.asked, place)
        return self.asked[max(0, index - 1) : index + 1]


@dataclass(frozen=True)
class Curve:
    """The offset of a partition as a function of time: its samples, linearly interpolated.

    Attributes:
        times: The largest time up to each offset, so they never fall.
    """

    start: int
    end: int
    offsets: Sequence[int]
    times: Sequence[int]

    @classmethod
    def of(cls, start: int, end: int, samples: Samples, earliest_ms: int, latest_ms: int) -> Curve:
        places = list(zip(samples.offsets, samples.times, strict=True))
        known = [place for place in places if place[1] <= latest_ms] or places
        if known != places and known[0] != places[0]:
            known.insert(0, (start, earliest_ms))
        return cls(start, end, [offset for offset, _ in known], list(accumulate((time for _, time in known), max)))

    def cut(self, time_ms: int) -> int:
        """The approximate first offset after a time; the end if all records are before it, or nothing is known."""
        index = bisect_right(self.times, time_ms)
        if index == 0 and self.times:
            return self.start
        if index == len(self.times):
            # The few records after the last sample are extrapolated from those before it.
            index -= 1
            if index < 1 or self.times[index] == self.times[index - 1]:
                return self.end
        (low, high), (begun, over) = self.offsets[index - 1 : index + 1], self.times[index - 1 : index + 1]
        # Rounded up, so that the record at the time itself is before the cut.
        return min(self.end, low - (low - high) * (time_ms - begun + 1) // (over - begun))


class BacklogSamples:
    """Samples of all partitions of a source, reused from one micro-batch to the next.

    Attributes:
        looks: How often records were read.
    """

    def __init__(self, read: ReadRecords) -> None:
        self._read = read
        self._of: dict[TopicPartition, Samples] = {}
        self.looks = 0

    def begin(self, start: Positions) -> None:
        """Begins the planning of a micro-batch at these positions, and drops the samples before them."""
        self._of = {tp: samples for tp, samples in self._of.items() if tp in start}
        for tp, samples in self._of.items():
            samples.forget_before(start[tp])

    def look(self, at: Positions, end: Positions, distance: int = 0) -> bool:
        """Reads records at places that have no sample nearby, and returns whether there were any such places."""
        new = {tp: place for tp, place in at.items() if not self.of(tp).looked_near(place, distance)}
        if not new:
            return False
        self.looks += 1
        found = self._read(new, end)
        for tp, place in new.items():
            self.of(tp).add(place, found[tp])
        return True

    def of(self, tp: TopicPartition) -> Samples:
        return self._of.setdefault(tp, Samples())

    def earliest(self, partitions: Iterable[TopicPartition], latest_ms: int) -> int:
        """The smallest known time of any of the partitions; `latest_ms` if none is known."""
        return min((time for tp in partitions for time in self.of(tp).times), default=latest_ms)
