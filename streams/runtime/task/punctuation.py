"""Scheduled calls (`Punctuator`), with their due times kept in the task's state so that restarts change nothing.

Rules (Kafka Streams' `PunctuationSchedule`): stream time is first due at 0, so the first record fires; the wall clock
is first due at start + interval. However many intervals have passed, one call is made, with the present time, and the
next is due at the next multiple after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.errors import TopologyError
from streams.operators.processor import PunctuationType


@dataclass(slots=True)
class Punctuation:
    """One schedule; the handle that `schedule` gives."""

    node: str
    interval_ms: int
    kind: PunctuationType
    callback: Callable[[int], None]
    state: dict[str, Any]

    def cancel(self) -> None:
        """Stop it for good, over restarts too."""
        self.state["cancelled"] = True


class Punctuations:
    """All schedules of a task.

    Args:
        state: JSON-able dict that survives restarts.
        now_ms: The step's wall clock.
    """

    def __init__(self, state: dict[str, Any], now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._of_stream_time: list[Punctuation] = []
        self._of_wall_clock: list[Punctuation] = []
        self._counts: dict[str, int] = {}
        self._closed = False

    def close(self) -> None:
        """All processors have been initialised: no schedules come any more."""
        self._closed = True

    def schedule(
        self, node: str, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        """Add a schedule; the n-th of a node takes up the n-th due time of the step before.

        Raises:
            ValueError: The interval is not positive.
            TopologyError: It is asked for outside of `init`.
        """
        if self._closed:
            raise TopologyError(
                f"node {node!r} schedules outside of init: a new processor is made for every step, so it would be forgotten; "
                f"schedule in init, and keep in ctx.state whether there is something to do"
            )
        if interval_ms < 1:
            raise ValueError(f"node {node!r} schedules every {interval_ms} ms; the interval must be at least 1 ms")
        number = self._counts[node] = self._counts.get(node, -1) + 1
        first = 0 if kind == "stream_time" else self._now_ms + interval_ms
        state = self._state.setdefault(f"{node}/{number}", {"next": first})
        made = Punctuation(node, interval_ms, kind, callback, state)
        (self._of_stream_time if kind == "stream_time" else self._of_wall_clock).append(made)
        return made

    def due(self, kind: PunctuationType, time: int) -> list[Punctuation]:
        """Those to call at `time`; their next due times are moved on."""
        found = []
        for one in self._of_stream_time if kind == "stream_time" else self._of_wall_clock:
            due = one.state["next"]
            if time >= due and not one.state.get("cancelled"):
                one.state["next"] = due + ((time - due) // one.interval_ms + 1) * one.interval_ms
                found.append(one)
        return found

    @property
    def any_of_stream_time(self) -> bool:
        """Whether stream time must be watched after each record."""
        return bool(self._of_stream_time)
