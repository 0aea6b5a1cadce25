"""Where the process of a task dies under the test driver: between the parts of a commit (`state/commit/step.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from state.commit.crash_points import POINTS

_STAGES = {
    point: "after_commit"
    if point == "after_commit"
    else ("process_done" if POINTS.index(point) < POINTS.index("after_commit") else "store_applied")
    for point in POINTS
}


class CrashedError(Exception):
    """A task's process has died, as the test wanted."""

    def __init__(self, wipe_state: bool) -> None:
        super().__init__("crashed")
        self.wipe_state = wipe_state


@dataclass
class Faults:
    """The next crash, if there is to be one.

    Attributes:
        happened: how many there were.
    """

    happened: int = 0
    _stage: str | None = None
    _task: int | None = None
    _wipe_state: bool = False

    def arm(self, point: str, task: int | None, wipe_state: bool) -> None:
        """Lets the next step crash. What is in one transaction is there or not: all points before its end are alike.

        Raises:
            ValueError: An unknown point.
        """
        if point not in _STAGES:
            raise ValueError(f"{point!r} is no crash point; there are {', '.join(POINTS)}")
        self._stage, self._task, self._wipe_state = _STAGES[point], task, wipe_state

    def reach(self, stage: str, task: int) -> None:
        """Dies here, once, if this is the place."""
        if self._stage == stage and self._task in (None, task):
            self._stage = None
            self.happened += 1
            raise CrashedError(self._wipe_state)
