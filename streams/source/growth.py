"""The growth of micro-batches under a backlog: they begin small and become as large as the time they take allows.

A small first micro-batch gives first results soon, whatever waits. A large one costs less for each record, until it takes as
long as a reader of the results would want to wait, or reaches the limits in records and bytes. Sizes are logged by Spark with
the offsets, so the clock decides no result.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_RECORDS = 10_000
"""Most records of the first micro-batch of a run. Workers warm up with it, so its duration says nothing."""
FACTOR = 4
"""A micro-batch has at most this many times the records of the one before."""
WANTED_MS = 2_000
"""Micro-batches that take less than this time grow."""
LONGEST_MS = 3 * WANTED_MS
"""Micro-batches that take more than this time shrink, but not below the first one."""


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
        self.records = FIRST_RECORDS

    def planned(self, *, is_full: bool) -> None:
        """Notes that a micro-batch was planned, and whether it has as many records as `records` allows."""
        self._planned_ms = self._now_ms() if is_full else None

    def next(self) -> None:
        """Notes that the last planned micro-batch has ended and the next one is being planned."""
        if self._planned_ms is None:
            return
        took_ms, self._planned_ms = self._now_ms() - self._planned_ms, None
        wanted_ms = WANTED_MS + self._interval_ms
        if self._is_first or took_ms * FACTOR <= wanted_ms:
            self.records *= FACTOR
        elif took_ms < wanted_ms:
            self.records = self.records * wanted_ms // took_ms
        elif took_ms > LONGEST_MS + self._interval_ms:
            self.records = max(FIRST_RECORDS, self.records * WANTED_MS // took_ms)
        self._is_first = False
