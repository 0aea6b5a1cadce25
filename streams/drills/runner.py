"""Holds drills, one after the other, each in a world of its own, and collects their results."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from streams.drills.drill import Drill
from streams.drills.failure import DrillFailed, NotPossibleHere, SpoiledByBroker
from streams.drills.subject import Subject
from streams.drills.world import World

ATTEMPTS = 5
"""Worlds that a drill may use up if a known defect of the broker spoils them."""
Say = Callable[[str], None]


class Outcome(str, Enum):
    """How a drill ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not possible on this machine; the result says why."""
    SPOILED = "spoiled"
    """A known defect of the broker made each attempt inconclusive."""


@dataclass
class DrillResult:
    """The result of one drill.

    Attributes:
        drill: The drill.
        outcome: How it ended.
        seconds: How long it took.
        evidence: The proofs that its fault has happened.
        recoveries: What the application recovered from, and the seconds until new results.
        wrong: What did not hold, or why the drill was skipped.
        folder: Logs and state; None: deleted.
    """

    drill: Drill
    outcome: Outcome = Outcome.PASSED
    seconds: float = 0.0
    evidence: list[str] = field(default_factory=list)
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def recovery_s(self) -> float | None:
        """The longest recovery, in seconds; None: there was none."""
        return max((seconds for _, seconds in self.recoveries), default=None)

    def as_dict(self) -> dict[str, object]:
        return {
            "drill": self.drill.id,
            "title": self.drill.title,
            "outcome": self.outcome.value,
            "seconds": round(self.seconds, 1),
            "recovery_s": None if self.recovery_s is None else round(self.recovery_s, 1),
            "recoveries": [{"after": after, "seconds": round(seconds, 1)} for after, seconds in self.recoveries],
            "evidence": self.evidence,
            "wrong": self.wrong,
            "folder": None if self.folder is None else str(self.folder),
        }


def run_drill(drill: Drill, subject: Subject, say: Say, *, seed: int = 1, folder: Path | None = None) -> DrillResult:
    """Holds one drill. Its folder is deleted if it passes or is skipped."""
    began = time.monotonic()
    result = DrillResult(drill)
    for attempt in range(ATTEMPTS):
        place = Path(tempfile.mkdtemp(prefix=f"streams-drill-{drill.id}-", dir=folder))
        result = _attempt(drill, subject, seed + attempt, place, say)
        if result.outcome in (Outcome.PASSED, Outcome.SKIPPED):
            shutil.rmtree(place, ignore_errors=True)
            result.folder = None
        if result.outcome is not Outcome.SPOILED:
            break
        say(f"the broker has spoiled seed {seed + attempt}: {result.wrong[0]}")
    result.seconds = time.monotonic() - began
    return result


def _attempt(drill: Drill, subject: Subject, seed: int, folder: Path, say: Say) -> DrillResult:
    result = DrillResult(drill, folder=folder)
    world = World(folder, subject, drill.conditions, seed, say)
    result.evidence, result.recoveries = world.evidence, world.recoveries
    try:
        with world:
            try:
                drill.run(world)
                if not world.evidence:
                    raise DrillFailed("no fault was seen, so the drill proves nothing")
                result.wrong = world.settle() if drill.settles else []
            finally:
                # Whatever failed, a broker that has left a transaction hanging is the first thing to know.
                world.logs.check()
    except NotPossibleHere as reason:
        result.outcome, result.wrong = Outcome.SKIPPED, [str(reason)]
    except SpoiledByBroker as reason:
        result.outcome, result.wrong = Outcome.SPOILED, [str(reason)]
    except DrillFailed as error:
        result.wrong = [str(error)]
    except Exception as error:
        # Whatever a fault has broken in the drill itself: the other drills are still to be held.
        result.wrong = [f"{type(error).__name__}: {error}"]
    if result.wrong and result.outcome is Outcome.PASSED:
        result.outcome = Outcome.FAILED
    return result
