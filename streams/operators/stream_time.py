"""Stream time of operators: the largest timestamp of their records, which follows the wall clock while a task is idle.

Each operator has its own (like `observedStreamTime` in Kafka Streams' processors), stored in its state, so that a restart does
not change which records are late. After records at 10, 30 and 20, it is 30. Idle time (`idle_timeout_ms`, `Processor.advance`)
never advances it beyond records that operators above hold back, because these would then be late. Invariants: an operator that has
seen no record has no stream time, and idle time sets one only from the `IDLE_FROM` of a rescale; stream time never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streams.model.record import MAX_TIME, NO_TIME

NO_LIMIT: Final = MAX_TIME
"""The limit of `Processor.advance` if nothing is held back."""

STREAM_TIME: Final = "stream_time"
"""The key of stream time in the state of an operator or a task."""
IDLE_FROM: Final = "idle_from"
"""The key of a time from which idle time advances in a task without a stream time.

A rescale writes it if it merges rows of several tasks and some of these had no stream time: it is the smallest stream time of the
others. Without it, rows that wait for stream time would wait for the next record. No record is late because of it.
"""
_ASKED = "advancing"


def idle_from(state: Mapping[str, Any], time: int) -> int:
    """The time from which idle time advances, ms: stream time, or before the first record `IDLE_FROM`; `NO_TIME` without either."""
    return time if time != NO_TIME else int(state.get(IDLE_FROM, NO_TIME))


class StreamTime:
    """The stream time of one operator.

    Args:
        state: The operator's state, which holds the time.
    """

    __slots__ = ("_state",)

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @property
    def now(self) -> int:
        """The stream time, ms; `NO_TIME` before the first record."""
        time: int = self._state.get(STREAM_TIME, NO_TIME)
        return time

    def observe(self, timestamp: int) -> int:
        """Takes a record's timestamp into account and returns stream time, ms."""
        time: int = self._state.get(STREAM_TIME, NO_TIME)
        if timestamp > time:
            self._state[STREAM_TIME] = time = timestamp
        return time

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advances stream time by idle time, at most to `limit`, and returns it, ms."""
        time = idle_from(self._state, self.now)
        return time if time == NO_TIME else self.observe(min(time + elapsed_ms, limit))


class SharedStreamTime(StreamTime):
    """A stream time that several nodes share, such as the sides of a join.

    Args:
        sides: The number of sides.
    """

    __slots__ = ("_sides",)

    def __init__(self, state: dict[str, Any], sides: int) -> None:
        super().__init__(state)
        self._sides = sides

    def common_limit(self, limit: int) -> int | None:
        """Collects the limits of all sides. The last side gets the smallest one, to advance stream time; the others get None."""
        limits: list[int] = [*self._state.pop(_ASKED, []), limit]
        if len(limits) < self._sides:
            self._state[_ASKED] = limits
            return None
        return None if idle_from(self._state, self.now) == NO_TIME else min(limits)
