"""One drill: what it injects, what must hold, and the function that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streams.drills.conditions import Conditions
from streams.drills.world import World


@dataclass(frozen=True)
class Drill:
    """A fault drill.

    Attributes:
        id: Its number, such as `D03`.
        title: A few words.
        injects: What is injected.
        holds: What must hold, besides what the verifier checks after every drill.
        run: Injects the fault and sees it (`World.saw`). It leaves the application running: the verifier ends it.
        minutes: About how long it takes on two cores.
        conditions: What its world must be like.
        needs: What it needs of the machine, beyond Java; shown in the list.
        quick: Whether it belongs to the quick set.
        any_program: Whether it can be held with a user's program.
        settles: Whether the verifier compares all results. False: the fault is such that they cannot be complete, and the
            drill itself compares what must hold.
    """

    id: str
    title: str
    injects: str
    holds: str
    run: Callable[[World], None]
    minutes: float = 1.0
    conditions: Conditions = field(default_factory=Conditions)
    needs: str = ""
    quick: bool = False
    any_program: bool = False
    settles: bool = True

    def as_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "title": self.title,
            "injects": self.injects,
            "holds": self.holds,
            "minutes": self.minutes,
            "needs": self.needs,
            "brokers": self.conditions.nodes,
            "quick": self.quick,
            "any_program": self.any_program,
        }
