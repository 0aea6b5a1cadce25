"""Scheduled calls (`Punctuator`), whose due times are in the task's state so that restarts change nothing.

Rules (Kafka Streams' `PunctuationSchedule`): stream time is first due at 0, so the first record fires; the wall clock
is first due at start + interval. However many intervals have passed, one call is made, with the current time, and the
next is due at the next multiple after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.operators.processor import PunctuationType, punctuation_type

_NEVER: Final = 2**63 - 1


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

    @property
    def cancelled(self) -> bool:
        return bool(self.state.get("cancelled"))

    def advance(self, time: int) -> None:
        """Moves the due time behind a time at which the call is due."""
        due = self.state["next"]
        self.state["next"] = due + ((time - due) // self.interval_ms + 1) * self.interval_ms


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
        found = [one for one in self._of(kind) if time >= one.state["next"] and not one.cancelled]
        for one in found:
            one.advance(time)
        return found

    def _of(self, kind: PunctuationType) -> list[Punctuation]:
        return self._of_stream_time if kind == PunctuationType.STREAM_TIME else self._of_wall_clock

    @property
    def of_stream_time(self) -> list[Punctuation]:
        """The schedules by stream time, in the order in which they are called."""
        return self._of_stream_time


class StreamTimePunctuations:
    """The calls that become due while a step's records are processed: after each source record, with stream time at that record.

    Args:
        punctuations: All schedules by stream time.
        boundaries: int64[m], the number of the last record that each source record became.
        times: int64[m], stream time there.
        call: Makes a call: punctuation, time, and position in the step.
        shift: How many bits of a position tell the calls after a record from each other, and from the record.
    """

    def __init__(
        self,
        punctuations: Sequence[Punctuation],
        boundaries: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        call: Callable[[Punctuation, int, int], None],
        shift: int,
    ) -> None:
        self._punctuations = punctuations
        self.boundaries = boundaries
        self.times = times
        self.call = call
        self.shift = shift

    def of(self, nodes: Collection[str]) -> DuePunctuations | None:
        """Those of some nodes, None if they have none."""
        mine = [(number, one) for number, one in enumerate(self._punctuations) if one.node in nodes]
        return DuePunctuations(self, mine) if mine else None


class DuePunctuations:
    """The calls of some nodes, made in order between their records."""

    def __init__(self, all_: StreamTimePunctuations, mine: Sequence[tuple[int, Punctuation]]) -> None:
        self._all = all_
        self._mine = mine
        self._next = self._find_next()

    def before(self, position: int) -> None:
        """Makes the calls that are due before the record at a position."""
        while self._next < position >> self._all.shift:
            self._call(self._next)

    def rest(self) -> None:
        """Makes all calls that are left."""
        while self._next < _NEVER:
            self._call(self._next)

    def _find_next(self) -> int:
        """The number of the record after which the next call is due."""
        return min((self._boundary(one) for _, one in self._mine), default=_NEVER)

    def _boundary(self, one: Punctuation) -> int:
        if one.cancelled:
            return _NEVER
        at = int(np.searchsorted(self._all.times, one.state["next"]))
        return int(self._all.boundaries[at]) if at < len(self._all.times) else _NEVER

    def _call(self, boundary: int) -> None:
        time = int(self._all.times[np.searchsorted(self._all.boundaries, boundary)])
        due = [(number, one) for number, one in self._mine if self._boundary(one) == boundary]
        for _, one in due:
            one.advance(time)
        for number, one in due:
            self._all.call(one, time, (boundary << self._all.shift) | (number + 1))
        self._next = self._find_next()


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
