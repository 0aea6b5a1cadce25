"""The soak: random blows for a while, a wait for results after most of them, and a verification at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streams.drills.blows import WEIGHTS, Blow
from streams.drills.failure import DrillFailed
from streams.drills.world import STUCK_S, World

AT_ONCE = 0.25
"""The probability that the next blow comes before the application has recovered from the last."""
_POLL_S = 0.1


def random_faults(world: World) -> None:
    """D30: random faults for a while."""
    soak(world, world.conditions.soak_s)


def soak(world: World, seconds: float, blows: Sequence[Blow] = tuple(WEIGHTS)) -> None:
    """Lets blows fall on a running application.

    Raises:
        DrillFailed: The application ended by itself, or wrote no results for too long.
    """
    world.start()
    weights = [WEIGHTS[blow] for blow in blows]
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        (blow,) = world.drawn.choices(blows, weights)
        world.say(f"{number}. {blow.__name__} …")
        what = blow(world)
        world.saw(f"{number}. {what}")
        world.logs.check()
        if world.drawn.random() >= AT_ONCE:
            _await(world, world.grows(), blow.__name__, what)
        world.pause(2)
    _await(world, world.grows(), "the last blow", "the last blow")


def _await(world: World, there: Callable[[], bool], name: str, after: str) -> None:
    """Waits for new results; an application that has ended by itself is a failure, unless its start found no broker."""
    began = time.monotonic()
    while not there():
        world.logs.check()
        if world.application.revive():
            raise DrillFailed(f"after {after}: the application ended by itself: {world.application.died[-1]}")
        if time.monotonic() - began > STUCK_S:
            raise DrillFailed(f"after {after}: no results within {STUCK_S:g} s")
        time.sleep(_POLL_S)
    if world.application.died:
        raise DrillFailed(f"after {after}: {world.application.died[-1]}")
    world.application.may_end = False
    world.recovered(name, time.monotonic() - began)
