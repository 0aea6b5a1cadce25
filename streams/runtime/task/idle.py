"""When a task is idle, and how far that moves event time on.

A task is idle once it has had no record for `idle_timeout_ms` of the wall clock, told by the times of its own steps, which
Spark has logged. Two things are no idleness, since records that come after them would be late for no fault of their own:

* a backlog: a step without records, while the source holds records back for a later micro-batch;
* time in which the application did not run: each start counts from its first step. What stopped the application
  (a broker, a network, a deployment) may have stopped its producers too, and they need their time to catch up.

Invariant: the same steps at the same times give the same result; a step that is repeated at the same time adds nothing.
"""

from __future__ import annotations

from typing import Any


def idle_ms(state: dict[str, Any], timeout_ms: int, now_ms: int, start: str, busy: bool) -> int:
    """How far event time is to move on in this step, ms: the idle time that no step before has counted.

    Args:
        state: JSON-able, survives restarts: since when to count, in which start of the application, and whether the task
            has been found idle.
        timeout_ms: How long it must have been idle.
        now_ms: The step's wall clock.
        start: Names the start of the application.
        busy: There are records in this step, or a backlog waits.
    """
    if busy or state.get("start") != start:
        state.update(start=start, since=now_ms, idle=False)
        return 0
    elapsed: int = now_ms - state["since"]
    if elapsed <= 0 or (elapsed < timeout_ms and not state["idle"]):
        return 0
    state.update(since=now_ms, idle=True)
    return elapsed
