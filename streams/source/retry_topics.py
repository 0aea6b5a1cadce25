"""The part of retry topics that a micro-batch reads: the records that have waited for their topic's delay.

Each topic has one delay, and its records carry the time at which they were written, so those that are due come first. What a
micro-batch reads ends before the first record that is not: waiting costs no reads, and a logged range stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from streams.source.backlog import Backlog
from streams.source.sampling import Positions, TopicPartition

RETRIED = 4
"""A micro-batch may have this fraction (1/4) of its limits in records of retry topics, besides the others."""


class Times(Protocol):
    """The part of an admin client that is needed here."""

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The first offset of each partition with a timestamp at or after a time; the end if there is none."""


class RetryTopics:
    """The retry topics of a sub-topology.

    Args:
        delays: Retry topic -> how long after a record was written it is read, ms.
        admin: Asks Kafka.
        backlog: Limits the retried records of a micro-batch. They are not aligned with the others by time, since theirs is that
            of the failure: they would all come after any backlog.
        now_ms: The clock, ms since 1970; the same one by which the failures were written.
    """

    def __init__(self, delays: Mapping[str, int], admin: Times, backlog: Backlog, now_ms: Callable[[], int]) -> None:
        self._delays = delays
        self._admin = admin
        self._backlog = backlog
        self._now_ms = now_ms

    def among(self, end: Positions) -> dict[TopicPartition, int]:
        """The partitions of retry topics among all, with their ends."""
        return {tp: at for tp, at in end.items() if tp[0] in self._delays}

    def due(self, positions: Positions, end: Positions) -> dict[TopicPartition, int]:
        """The end of the records that are due in each partition of a retry topic."""
        waiting = {tp: at for tp, at in self.among(end).items() if at > positions[tp]}
        if not waiting:
            return {}
        now = self._now_ms()
        found = self._admin.offsets_for_times({tp: max(0, now - self._delays[tp[0]] + 1) for tp in waiting})
        return {tp: min(at, max(positions[tp], found[tp])) for tp, at in waiting.items()}

    def admit(self, positions: Positions, due: Positions) -> dict[TopicPartition, int]:
        """The end of the next micro-batch in each partition of a retry topic."""
        return self._backlog.admit(positions, due) if due else {}
