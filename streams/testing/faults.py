"""Ends the process of a task under the test driver, at the crash points of the real step (`state/commit/crash_points.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from state.commit.crash_points import POINTS
from streams.testing.simulation import Crash


class ProcessDied(Crash):
    """A task's process has ended, as requested by the test."""

    def __init__(self, wipe_state: bool) -> None:
        super().__init__("crashed")
        self.wipe_state = wipe_state


@dataclass(frozen=True, slots=True)
class _Armed:
    point: str
    task: int | None
    wipe_state: bool


@dataclass
class Faults:
    """The requested crashes, which happen one after the other.

    Attributes:
        happened: The number of crashes so far.
    """

    happened: int = 0
    _waiting: list[_Armed] = field(default_factory=list)

    def arm(self, point: str, task: int | None, wipe_state: bool) -> None:
        """Requests a crash when a task reaches a point.

        Raises:
            ValueError: The point is unknown.
        """
        if point not in POINTS:
            raise ValueError(f"{point!r} is no crash point; there are {', '.join(POINTS)}")
        self._waiting.append(_Armed(point, task, wipe_state))

    def armed(self, point: str, task: int, version: int) -> bool:
        """Whether `reach` would crash here."""
        return bool(self._waiting) and self._waiting[0].point == point and self._waiting[0].task in (None, task)

    def reach(self, point: str, task: int, version: int) -> None:
        """Crashes, once, if the next crash was requested for this point."""
        if self.armed(point, task, version):
            self.happened += 1
            raise ProcessDied(self._waiting.pop(0).wipe_state)
