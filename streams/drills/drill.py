"""One drill: what it injects, what must hold, and the function that runs it; and the outcomes other than success."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class DrillFailed(AssertionError):
    """A condition that must hold does not, or the fault was not seen."""


class NotPossibleHere(Exception):
    """This machine cannot inject the fault; the text says what is missing. The drill is skipped, not passed."""


class SpoiledByBroker(Exception):
    """A known bug of the broker made the run inconclusive; another seed is needed."""


@dataclass(frozen=True)
class Conditions:
    """The world that a drill needs.

    Attributes:
        nodes: Brokers: 1, behind a proxy that knows requests, or 3 without one.
        broker: Settings of the brokers.
        options: Options of `streams run`.
        begin_ms: The event time of the first record; None: yesterday.
        soak_s: How long a soak injects random faults, in seconds.
        hosts: Whether the application runs on a Spark cluster of two hosts.
    """

    nodes: int = 1
    broker: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    begin_ms: int | None = None
    soak_s: float = 60.0
    hosts: bool = False


@dataclass(frozen=True)
class Drill:
    """A fault drill.

    Attributes:
        id: Its number, such as `D03`.
        title: A few words.
        injects: What is injected.
        holds: What must hold, besides what the verifier checks after every drill.
        run: Injects the fault into a `World`, and records that it happened (`World.saw`). It leaves the application running: the
            verifier ends it.
        minutes: About how long it takes on two cores.
        conditions: The world that it needs.
        needs: What the machine must have besides Java; shown in the list.
        quick: Whether it belongs to the quick set.
        any_program: Whether it can also run with a user's program.
        not_live: Why it always runs in micro-batches; empty: it also runs live.
        settles: Whether the verifier compares all results. False: after this fault, results cannot be complete, and the drill
            itself checks what must hold.
    """

    id: str
    title: str
    injects: str
    holds: str
    run: Callable[[Any], None]
    minutes: float = 1.0
    conditions: Conditions = field(default_factory=Conditions)
    needs: str = ""
    quick: bool = False
    any_program: bool = False
    not_live: str = ""
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
            "not_live": self.not_live,
        }


KNOWN: dict[str, Drill] = {}
"""The drills by their numbers, in the order of the modules; `streams/drills/cases/__init__.py` has them all."""


def drill(
    number: str, title: str, *, injects: str, holds: str, **more: Any
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Declares that a function is a drill; `more` has further fields of `Drill`."""

    def declared(run: Callable[[Any], None]) -> Callable[[Any], None]:
        KNOWN[number] = Drill(number, title, injects, holds, run, **more)
        return run

    return declared
