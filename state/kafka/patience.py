"""Waiting for brokers that are away, and housekeeping that may fail without consequences.

A broker that restarts, or a leader or coordinator that moves, is routine and no reason to fail. Only
`KafkaClientError.transient` decides whether a failure may resolve itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from state.errors import KafkaClientError
from state.kafka.topics import TopicPartition

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class _Topic(Protocol):
    @property
    def topic_id(self) -> str: ...


class RecordDeleter(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module needs."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> object:
        """Deletes the records below the given offsets."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, _Topic]:
        """The topics that exist, as they are now."""


class Patience:
    """Repeats requests that failed for a transient reason, with increasing pauses.

    Args:
        wait_s: How long to retry, counted from the first failure of a request, seconds.
        sleep: Waits for a number of seconds.
        clock: A monotonic clock, seconds.
    """

    def __init__(
        self, wait_s: float, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s = wait_s
        self._sleep = sleep
        self._clock = clock

    def __call__(self, request: Callable[[], _Result]) -> _Result:
        """Returns the answer to a request.

        Raises:
            KafkaClientError: The request failed for a permanent reason, or for too long.
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


_logged: set[tuple[str, int | None]] = set()


def delete_if_possible(admin: RecordDeleter, before: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> bool:
    """Deletes records that are no longer needed. A failure does not stop anything, because the next call deletes them too.

    Nothing fences a deletion: a process that sleeps through a reset or a rescale would delete records of the new topic. So the
    topics' ids are compared first. Each topic's failure, such as a missing permission, is logged once per reason.
    """
    if not before:
        return True
    try:
        if other := _other_topics(admin, ids):
            log.warning("nothing was deleted: %s was deleted and created again", ", ".join(other))
            return False
        admin.delete_records(before)
    except KafkaClientError as error:
        for topic in sorted({topic for topic, _ in before}):
            if (topic, error.code) not in _logged:
                _logged.add((topic, error.code))
                log.warning(
                    "records of %s that are needed no more stay where they are, and take up space: %s. Brokers that are back, or "
                    "the right to delete records of this topic (ACL: Delete), mend that; nothing else suffers",
                    topic,
                    error,
                )
        return False
    return True


def _other_topics(admin: RecordDeleter, ids: Mapping[str, str]) -> list[str]:
    """The topics that no longer have these ids."""
    known = {name: topic_id for name, topic_id in ids.items() if topic_id}
    found = admin.describe_topics(sorted(known)) if known else {}
    return [name for name, topic_id in known.items() if name not in found or found[name].topic_id != topic_id]
