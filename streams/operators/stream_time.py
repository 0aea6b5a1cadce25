"""Stream time of operators: the largest timestamp of their records, which follows the wall clock while a task is idle.

Each operator has its own (like `observedStreamTime` in Kafka Streams' processors), stored in its state, so that a restart does
not change which records are late. Idle time (`idle_timeout_ms`, `Processor.advance`) never advances it beyond the records held
back by operators above, which would otherwise be late when emitted. Invariants: an operator that has seen no record has no
stream time, and idle time does not set one; stream time never goes back.
"""

from __future__ import annotations

from typing import Any, Final

from streams.model.times import MAX_TIME, NO_TIME

NO_LIMIT: Final = MAX_TIME
"""The limit of `Processor.advance` where nothing is held back."""

_TIME, _ASKED = "stream_time", "advancing"


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
        time: int = self._state.get(_TIME, NO_TIME)
        return time

    def observe(self, timestamp: int) -> int:
        """Stream time after a record, ms."""
        time: int = self._state.get(_TIME, NO_TIME)
        if timestamp > time:
            self._state[_TIME] = time = timestamp
        return time

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time after an idle period, ms.

        Args:
            elapsed_ms: How much wall-clock time has passed, ms.
            limit: See `Processor.advance`.
        """
        time = self.now
        return time if time == NO_TIME else self.observe(min(time + elapsed_ms, limit))


class SharedStreamTime(StreamTime):
    """The stream time shared by several nodes: the sides of a join.

    Args:
        state: The shared state.
        sides: The number of sides.
    """

    __slots__ = ("_sides",)

    def __init__(self, state: dict[str, Any], sides: int) -> None:
        super().__init__(state)
        self._sides = sides

    def common_limit(self, limit: int) -> int | None:
        """Lets the last of the sides advance stream time, when the records from above all sides have come.

        Args:
            limit: The limit of the calling side, see `Processor.advance`.

        Returns:
            The least limit of all sides for the last side that calls; None for the others, and before the first record.
        """
        limits: list[int] = [*self._state.pop(_ASKED, []), limit]
        if len(limits) < self._sides:
            self._state[_ASKED] = limits
            return None
        return None if self.now == NO_TIME else min(limits)
