"""Where the process of a task dies under the test driver: at the crash points of the real step (`state/commit/crash_points.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from state.commit.crash_points import POINTS
from streams.testing.simulation import Crash


class ProcessDied(Crash):
    """A task's process has died, as the test wanted."""

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
    """The crashes that are still to come, each once the one before has happened.

    Attributes:
        happened: How many there were.
    """

    happened: int = 0
    _waiting: list[_Armed] = field(default_factory=list)

    def arm(self, point: str, task: int | None, wipe_state: bool) -> None:
        """Lets a task die when it comes to a point.

        Raises:
            ValueError: An unknown point.
        """
        if point not in POINTS:
            raise ValueError(f"{point!r} is no crash point; there are {', '.join(POINTS)}")
        self._waiting.append(_Armed(point, task, wipe_state))

    def armed(self, point: str, task: int, version: int) -> bool:
        """Whether `reach` would die here."""
        return bool(self._waiting) and self._waiting[0].point == point and self._waiting[0].task in (None, task)

    def reach(self, point: str, task: int, version: int) -> None:
        """Dies here, once, if this is the place."""
        if self.armed(point, task, version):
            self.happened += 1
            raise ProcessDied(self._waiting.pop(0).wipe_state)
