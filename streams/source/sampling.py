"""What is known of the records that wait, from a few of them read here and there.

Kafka tells how many offsets a partition has, not how large the records are nor in which order of time they lie. So some are
read: near the start of what waits, near its end, and where a micro-batch may end. What was read is kept for the next one,
which begins there; an application without a backlog reads nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from state.kafka.topics import TopicPartition

Positions = Mapping[TopicPartition, int]

AHEAD_MS = 24 * 3600 * 1000
"""Timestamps further ahead of the clock than this say nothing of where a partition is."""
EARLIEST_OF = 5
"""A place's time is the smallest of so many records: one that is dated ahead does not hide where the others are."""
NEAR_END = 5
"""Records that the last sample of a partition leaves behind it, so that there is something to find."""


class Record(Protocol):
    """What is looked at of a record, as `state.kafka.sampler.SampledRecord`."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp_ms(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102


ReadRecords = Callable[[Positions, Positions], Mapping[TopicPartition, Sequence[Record]]]
"""(places, ends) -> the first few data records at or after each place and below the end."""


@dataclass
class Samples:
    """What was found in one partition.

    Attributes:
        asked: Offsets that were looked at, in order.
        offsets: Of the first record found at each of them; those where nothing was found are left out.
        times: Time of each place, ms.
        sizes: Mean bytes of a record at each place.
    """

    asked: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def add(self, place: int, records: Sequence[Record]) -> None:
        """Takes in what was found at a place."""
        self.asked.insert(bisect_left(self.asked, place), place)
        if not records:
            return
        index = bisect_left(self.offsets, records[0].offset)
        if index < len(self.offsets) and self.offsets[index] == records[0].offset:
            return
        self.offsets.insert(index, records[0].offset)
        self.times.insert(index, min(record.timestamp_ms for record in records[:EARLIEST_OF]))
        self.sizes.insert(index, sum(record.size for record in records) / len(records))

    def forget_before(self, offset: int) -> None:
        """Drops what lies before an offset: it is no longer in what waits."""
        del self.asked[: bisect_left(self.asked, offset)]
        passed = bisect_left(self.offsets, offset)
        del self.offsets[:passed], self.times[:passed], self.sizes[:passed]

    def looked_near(self, place: int, distance: int) -> bool:
        """Whether a place not further away than that was looked at."""
        index = bisect_left(self.asked, place)
        return any(abs(asked - place) <= distance for asked in self.asked[max(0, index - 1) : index + 1])


@dataclass(frozen=True)
class Curve:
    """How far a partition is to be read for a time: from its samples, straight lines between them.

    Attributes:
        start: Where what waits begins.
        end: Where it ends.
        offsets: Places with a known time, rising.
        times: Largest time up to each place, so never falling.
    """

    start: int
    end: int
    offsets: Sequence[int]
    times: Sequence[int]

    @classmethod
    def of(cls, start: int, end: int, samples: Samples, earliest_ms: int, latest_ms: int) -> Curve:
        """The curve of a partition.

        Args:
            start: Where what waits begins.
            end: Where it ends.
            samples: What is known of the partition.
            earliest_ms: The time of the start, if the first records have none that is believed.
            latest_ms: Times after this are left out, unless there are no others.
        """
        places = list(zip(samples.offsets, samples.times, strict=True))
        known = [place for place in places if place[1] <= latest_ms] or places
        if known != places and known[0] != places[0]:
            known.insert(0, (start, earliest_ms))
        return cls(start, end, [offset for offset, _ in known], list(accumulate((time for _, time in known), max)))

    def cut(self, time_ms: int) -> int:
        """About the first offset behind a time; the end if all is before it, or nothing is known."""
        index = bisect_right(self.times, time_ms)
        if index == 0 and self.times:
            return self.start
        if index == len(self.times):
            # The few records behind the last sample go on as those before it.
            index -= 1
            if index < 1 or self.times[index] == self.times[index - 1]:
                return self.end
        (low, high), (begun, over) = self.offsets[index - 1 : index + 1], self.times[index - 1 : index + 1]
        # Rounded up: the record at the time itself is before the cut.
        return min(self.end, low - (low - high) * (time_ms - begun + 1) // (over - begun))


class BacklogSamples:
    """Samples of all partitions of a source, kept from one micro-batch to the next.

    Args:
        read: Reads a few records at given places.

    Attributes:
        looks: How often that was done.
    """

    def __init__(self, read: ReadRecords) -> None:
        self._read = read
        self._of: dict[TopicPartition, Samples] = {}
        self.looks = 0

    def begin(self, start: Positions) -> None:
        """A micro-batch is planned that starts there: what lies before says nothing any more."""
        self._of = {tp: samples for tp, samples in self._of.items() if tp in start}
        for tp, samples in self._of.items():
            samples.forget_before(start[tp])

    def look(self, at: Positions, end: Positions, distance: int = 0) -> bool:
        """Reads records at places near which none were read yet.

        Args:
            at: The places.
            end: Where the partitions end now.
            distance: How near is near enough.

        Returns:
            Whether anything was read.
        """
        new = {tp: place for tp, place in at.items() if not self.of(tp).looked_near(place, distance)}
        if not new:
            return False
        self.looks += 1
        found = self._read(new, end)
        for tp, place in new.items():
            self.of(tp).add(place, found[tp])
        return True

    def of(self, tp: TopicPartition) -> Samples:
        """What is known of a partition."""
        return self._of.setdefault(tp, Samples())

    def earliest(self, partitions: Iterable[TopicPartition], latest_ms: int) -> int:
        """The smallest time known of any of the partitions, but not after `latest_ms`."""
        return min((time for tp in partitions for time in self.of(tp).times), default=latest_ms)
