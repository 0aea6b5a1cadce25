"""Waiting for brokers that are away, and housekeeping that can wait for ever.

Why: a broker that restarts, a leader or coordinator that moves, is everyday life, and no reason to fail. What passes by itself
is told by `KafkaClientError.transient`, and by nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from state.errors import KafkaClientError
from state.kafka.topics import TopicPartition

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class RecordDeleter(Protocol):
    """What is needed of `state.kafka.admin.KafkaAdmin`."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> object:
        """Deletes the records below the given offsets."""


class Patience:
    """Repeats requests that failed for a passing reason, with longer and longer pauses.

    Args:
        wait_s: How long, counted from the first failure of a request, seconds.
        sleep: Waits so many seconds.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, wait_s: float, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s = wait_s
        self._sleep = sleep
        self._clock = clock

    def __call__(self, request: Callable[[], _Result]) -> _Result:
        """The answer to a request.

        Raises:
            KafkaClientError: It failed for a reason that does not pass, or for too long.
        """
        failed: float | None = None
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return request()
            except KafkaClientError as error:
                now = self._clock()
                if failed is None:
                    failed = now
                    log.warning("waiting for the broker: %s", error)
                if not error.transient or now - failed + pause > self._wait_s:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


_told: set[tuple[str, int | None]] = set()


def delete_if_possible(admin: RecordDeleter, before: Mapping[TopicPartition, int]) -> bool:
    """Deletes records that nobody needs any more. That it fails is no reason to stop: the next time will do.

    Each topic's failure is told once for each of its reasons, a missing right for instance.

    Returns:
        Whether the records are gone.
    """
    if not before:
        return True
    try:
        admin.delete_records(before)
    except KafkaClientError as error:
        for topic in sorted({topic for topic, _ in before}):
            if (topic, error.code) not in _told:
                _told.add((topic, error.code))
                log.warning(
                    "records of %s that are needed no more stay where they are, and take up space: %s. Brokers that are back, or "
                    "the right to delete records of this topic (ACL: Delete), mend that; nothing else suffers",
                    topic,
                    error,
                )
        return False
    return True
