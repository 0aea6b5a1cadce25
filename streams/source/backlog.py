"""The size of micro-batches under a backlog: the limits in records and in bytes, and the cut between the partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streams.source.admission import admit
from streams.source.growth import BatchGrowth
from streams.source.sampling import AHEAD_MS, NEAR_END, BacklogSamples, Positions, ReadRecords, TopicPartition

LARGE_PART = 4
"""Sizes are sampled again from this fraction of a limit on (1/4): records may have grown since."""
PARTITIONS = 8
"""The number of partitions of each topic that are sampled for the size of records: those with the longest backlog."""


class Backlog:
    """The backlog of a source: chooses the ends of micro-batches, and remembers sizes and times of records.

    Args:
        read: Reads a few records at given places.
        max_records: Most offsets of a micro-batch.
        max_bytes: Most bytes of keys and values, by the sizes of sampled records.
        now_ms: The clock, ms since 1970.
        rest: Called when a micro-batch was planned without reading any records.
        interval_ms: The time between the starts of micro-batches that the user wants.
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
        """The end of the next micro-batch in each partition, from its start and the present ends of the partitions."""
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
        """Most offsets of a micro-batch of the waiting records: the limit in bytes is converted by their mean size."""
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
        """Whether the limits may be near; always for a topic that was never sampled."""
        return (
            any(topic not in self._sizes for topic, _ in waiting)
            or sum(waiting.values()) * LARGE_PART > self._max_records
            or self._bytes(waiting) * LARGE_PART > self._max_bytes
        )

    def _look_at_sizes(self, start: Positions, end: Positions, waiting: Mapping[TopicPartition, int]) -> None:
        """Samples the mean size of each topic's records, the larger of those near the starts and near the ends."""
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
