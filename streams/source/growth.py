"""The growth of micro-batches under a backlog: they begin small and become as large as the time they take allows.

A small first micro-batch gives first results soon, whatever waits. A large one costs less for each record, until it takes as
long as a reader of the results would want to wait, or reaches the limits in records and bytes. Sizes are logged by Spark with
the offsets, so the clock decides no result.

A part of the time is the same for a micro-batch of any size: Spark's planning, and the commit of each task. With many tasks,
far brokers or a slow machine it may be longer than anybody wants to wait. Smaller micro-batches would not be faster then, they
would only fall further behind; so the time that is wanted is a multiple of the fixed part, which two sizes together tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FIRST_RECORDS = 10_000
"""Most records of the first micro-batch of a run. Workers warm up with it, so its duration says nothing."""
FACTOR = 4
"""A micro-batch has at most this many times the records of the one before."""
WANTED_MS = 2_000
"""Micro-batches that take less than this time grow."""
FIXED_PARTS = 3
"""Or less than this many times their fixed part, so that at most a third of the time is spent on it."""
LONGEST = 3
"""Micro-batches that take more than this many times the wanted time shrink, but not below the first one."""
PROBE = 2
"""A slow micro-batch of the only size that was seen so far grows by this, to tell the fixed part of its time from the rest."""
DISTINCT = 1.5
"""Sizes that differ by less say nothing about the fixed part: durations vary by some tenths, whatever the size."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A full micro-batch: its size, and what it took."""

    records: int
    took_ms: int

    def differs_from(self, other: _Seen) -> bool:
        """Whether the two sizes are far enough apart for durations to be compared."""
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
        interval_ms: The time between the starts of micro-batches that the user wants; it is no sign of slowness.
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
        """Learns the fixed part of the time from two sizes that are far enough apart."""
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
