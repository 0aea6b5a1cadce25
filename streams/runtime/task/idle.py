"""When a task is idle, and how far that advances event time.

A task is idle once it has had no record for `idle_timeout_ms` of the wall clock, according to the times of its own steps, which
Spark has logged. Two situations do not count as idle, because they would make later records late through no fault of their own:

* a backlog: a step without records, while the source holds records back for a later micro-batch;
* time in which the application did not run: each start counts from its first step. Whatever stopped the application
  (a broker, a network, a deployment) may have stopped its producers too, and they need time to catch up.

Invariant: the same steps at the same times give the same result; a step repeated at the same time adds nothing.
"""

from __future__ import annotations

from typing import Any


def idle_ms(state: dict[str, Any], timeout_ms: int, now_ms: int, start: str, busy: bool) -> int:
    """How far event time advances in this step, ms: the idle time that no earlier step has counted."""
    if busy or state.get("start") != start:
        state.update(start=start, since=now_ms, idle=False)
        return 0
    elapsed: int = now_ms - state["since"]
    if elapsed <= 0 or (elapsed < timeout_ms and not state["idle"]):
        return 0
    state.update(since=now_ms, idle=True)
    return elapsed
