"""Named places of a step at which a fault drill may kill the process (SIGKILL, no clean-up, as a crash would).

`STREAMS_FAULT="after_commit@0:3"` kills the process when task 0 reaches `after_commit` in its step to version 3;
`*` stands for any task or version. `STREAMS_FAULT_ONCE=FILE` makes it happen once: the file is created just before, and a
process that finds it there goes on. A drill asks that file whether its fault has really happened.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

POINTS = (
    "before_init",
    "after_init",
    "after_tail_read",
    "after_decide",
    "restore_done",
    "process_done",
    "after_begin",
    "outputs_sent",
    "changelog_sent",
    "marker_sent",
    "after_commit",
    "store_applied",
    "before_report",
)


@dataclass(frozen=True, slots=True)
class CrashPoints:
    """Where to crash; the default is nowhere. `reach` costs a comparison."""

    point: str | None = None
    task: str = "*"
    version: str = "*"
    once: Path | None = None

    @classmethod
    def from_environment(cls) -> CrashPoints:
        """Reads `STREAMS_FAULT` and `STREAMS_FAULT_ONCE`.

        Raises:
            ValueError: an unknown point.
        """
        text = os.environ.get("STREAMS_FAULT")
        if not text:
            return cls()
        point, _, where = text.partition("@")
        task, _, version = where.partition(":")
        if point not in POINTS:
            raise ValueError(f"STREAMS_FAULT names the unknown crash point {point!r}; known: {', '.join(POINTS)}")
        once = os.environ.get("STREAMS_FAULT_ONCE")
        return cls(point, task or "*", version or "*", Path(once) if once else None)

    def reach(self, point: str, task: int, version: int) -> None:
        """Dies here if this is the place."""
        if self.point != point or self.task not in ("*", str(task)) or self.version not in ("*", str(version)):
            return
        if self.once is not None:
            try:
                self.once.touch(exist_ok=False)
            except FileExistsError:
                return
        os.kill(os.getpid(), signal.SIGKILL)
