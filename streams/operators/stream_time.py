"""Stream time of operators: the largest timestamp of their records, which moves on with the wall clock while a task is idle.

Each operator keeps its own (as Kafka Streams' processors do with `observedStreamTime`), but in its state, so that a restart
forgets no lateness. Idle time (`idle_timeout_ms`, `Processor.advance`) never moves it beyond what operators above hold back:
what these emit later would be late. Invariants: an operator that has seen no record has no time, and idle time gives it none;
time never goes back.
"""

from __future__ import annotations

from typing import Any, Final

from streams.model.times import MAX_TIME, NO_TIME

NO_LIMIT: Final = MAX_TIME
"""Of `Processor.advance`: nothing is held back."""

_TIME, _ASKED = "stream_time", "advancing"


class StreamTime:
    """The stream time of one operator.

    Args:
        state: The operator's state, where the time is kept.
    """

    __slots__ = ("_state",)

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @property
    def now(self) -> int:
        """The time, ms; `NO_TIME` before the first record."""
        time: int = self._state.get(_TIME, NO_TIME)
        return time

    def observe(self, timestamp: int) -> int:
        """A record came: the time with it, ms."""
        time: int = self._state.get(_TIME, NO_TIME)
        if timestamp > time:
            self._state[_TIME] = time = timestamp
        return time

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """An idle while has passed: the time after it, ms.

        Args:
            elapsed_ms: How much of the wall clock has passed, ms.
            limit: See `Processor.advance`.
        """
        time = self.now
        return time if time == NO_TIME else self.observe(min(time + elapsed_ms, limit))


class SharedStreamTime(StreamTime):
    """The stream time that several nodes have in common: the sides of a join.

    Args:
        state: The state that they share.
        sides: How many they are.
    """

    __slots__ = ("_sides",)

    def __init__(self, state: dict[str, Any], sides: int) -> None:
        super().__init__(state)
        self._sides = sides

    def common_limit(self, limit: int) -> int | None:
        """Lets the last of the sides move the time on: what comes from above any of them has come then.

        Args:
            limit: That of the side that asks, see `Processor.advance`.

        Returns:
            The least limit of all sides for the last one that asks; None for the others, and before the first record.
        """
        limits: list[int] = [*self._state.pop(_ASKED, []), limit]
        if len(limits) < self._sides:
            self._state[_ASKED] = limits
            return None
        return None if self.now == NO_TIME else min(limits)
