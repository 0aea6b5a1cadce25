"""Stream time of operators: the largest timestamp of their records, which follows the wall clock while a task is idle.

Each operator has its own (like `observedStreamTime` in Kafka Streams' processors), stored in its state, so that a restart does
not change which records are late. Idle time (`idle_timeout_ms`, `Processor.advance`) never advances it beyond the records held
back by operators above, which would otherwise be late when emitted. Invariants: an operator that has seen no record has no
stream time, and idle time sets one only from the `IDLE_FROM` of a rescale; stream time never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streams.model.record import MAX_TIME, NO_TIME

NO_LIMIT: Final = MAX_TIME
"""The limit of `Processor.advance` where nothing is held back."""

STREAM_TIME: Final = "stream_time"
"""The name of stream time in an operator's, or a task's, state."""
IDLE_FROM: Final = "idle_from"
"""Another name there: the least time of the tasks whose rows a rescale has merged, if some of them had none. Records are not late
by it, because they would not have been there; idle time begins at it, so that the rows of the others do not wait for a record."""
_ASKED = "advancing"


def idle_from(state: Mapping[str, Any], time: int) -> int:
    """The time that idle time moves on, ms: stream time, or before the first record `IDLE_FROM`; `NO_TIME` without either."""
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
        """Stream time after a record, ms."""
        time: int = self._state.get(STREAM_TIME, NO_TIME)
        if timestamp > time:
            self._state[STREAM_TIME] = time = timestamp
        return time

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time after an idle period, ms."""
        time = idle_from(self._state, self.now)
        return time if time == NO_TIME else self.observe(min(time + elapsed_ms, limit))


class SharedStreamTime(StreamTime):
    """The stream time shared by several nodes: the sides of a join.

    Args:
        sides: The number of sides.
    """

    __slots__ = ("_sides",)

    def __init__(self, state: dict[str, Any], sides: int) -> None:
        super().__init__(state)
        self._sides = sides

    def common_limit(self, limit: int) -> int | None:
        """Lets the last of the sides advance stream time, when the records from above all sides have come."""
        limits: list[int] = [*self._state.pop(_ASKED, []), limit]
        if len(limits) < self._sides:
            self._state[_ASKED] = limits
            return None
        return None if idle_from(self._state, self.now) == NO_TIME else min(limits)
