"""Scheduled calls (`Punctuator`), whose due times are in the task's state so that restarts change nothing.

Rules (Kafka Streams' `PunctuationSchedule`): stream time is first due at 0, so the first record fires; the wall clock
is first due at start + interval. However many intervals have passed, one call is made, with the current time, and the
next is due at the next multiple after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.operators.punctuation import PunctuationType, punctuation_type


@dataclass(slots=True)
class Punctuation:
    """One schedule, the handle returned by `schedule`."""

    node: str
    interval_ms: int
    kind: PunctuationType
    callback: Callable[[int], object]
    state: dict[str, Any]

    def cancel(self) -> None:
        """Cancels the schedule for good, also across restarts."""
        self.state["cancelled"] = True


class Punctuations:
    """All schedules of a task.

    Args:
        state: JSON-able dictionary that survives restarts.
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
        """Accepts no more schedules, after all processors have been initialised."""
        self._closed = True

    def schedule(
        self, node: str, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        """Add a schedule; the n-th of a node continues with the n-th due time of the step before.

        Raises:
            TopologyError: The call is outside of `init`, the interval is not positive, the type is unknown, or the
                callback cannot be called.
        """
        if self._closed:
            raise TopologyError(
                f"node {node!r} schedules outside of init: a new processor is made for every step, so it would be forgotten; "
                f"schedule in init, and keep in ctx.state whether there is something to do"
            )
        interval_ms = to_ms(interval, f"The interval of schedule in '{node}'")
        if interval_ms < 1:
            raise TopologyError(f"'{node}' schedules every {interval_ms} ms: the interval must be at least 1 ms.")
        kind = punctuation_type(kind)
        _check_callback(node, callback)
        number = self._counts[node] = self._counts.get(node, -1) + 1
        first = 0 if kind == PunctuationType.STREAM_TIME else self._now_ms + interval_ms
        state = self._state.setdefault(f"{node}/{number}", {"next": first})
        made = Punctuation(node, interval_ms, kind, callback, state)
        self._of(kind).append(made)
        return made

    def due(self, kind: PunctuationType, time: int) -> list[Punctuation]:
        """The schedules that are due at `time`; their next due times are updated."""
        found = []
        for one in self._of(kind):
            due = one.state["next"]
            if time >= due and not one.state.get("cancelled"):
                one.state["next"] = due + ((time - due) // one.interval_ms + 1) * one.interval_ms
                found.append(one)
        return found

    def _of(self, kind: PunctuationType) -> list[Punctuation]:
        return self._of_stream_time if kind == PunctuationType.STREAM_TIME else self._of_wall_clock

    @property
    def any_of_stream_time(self) -> bool:
        """Whether stream time must be checked after each record."""
        return bool(self._of_stream_time)


def _check_callback(node: str, callback: object) -> None:
    if not callable(callback):
        raise TopologyError(f"'{node}' schedules {callback!r}, which cannot be called: give a function of the time.")
    try:
        inspect.signature(callback).bind(0)
    except TypeError:
        name = getattr(callback, "__name__", repr(callback))
        raise TopologyError(f"'{node}' schedules {name}, which must take one argument: the time, in ms.") from None
    except ValueError:
        pass  # a builtin without a signature
