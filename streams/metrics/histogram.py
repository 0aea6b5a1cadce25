"""A histogram of durations with fixed buckets, as Prometheus counts them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets in seconds: a part of a step takes about a millisecond, a large restore minutes."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations, counted by bucket.

    Attributes:
        counts: The durations up to each of `BOUNDS` and above the bound before it; the last are longer than all bounds.
        sum_s: The sum of all durations, seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sum_s: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def with_one(self, seconds: float) -> Histogram:
        """The histogram with one more duration."""
        at = bisect_left(BOUNDS, seconds)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Histogram(counts, self.sum_s + seconds)

    def plus(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.sum_s + other.sum_s)

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with the number of durations up to it; the last bound is infinite."""
        found, total = [], 0
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found
