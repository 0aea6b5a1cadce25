"""Event time that goes on with the wall clock while a task is idle (`idle_timeout_ms`): what `Processor.advance` is made of.

Each operator's own stream time moves on by the time that has passed, but never beyond what operators above it hold back:
what these emit later would be late. Invariants: an operator that has seen no record has no time, and gets none; time
never goes back.
"""

from __future__ import annotations

from typing import Any

NO_LIMIT = 2**63 - 1
_ASKED = "advancing"


def advanced(time: int, elapsed_ms: int, limit: int) -> int:
    """Stream time after an idle while.

    Args:
        time: Before it, ms; negative: none.
        elapsed_ms: How much of the wall clock has passed, ms.
        limit: See `Processor.advance`.
    """
    return time if time < 0 else max(time, min(time + elapsed_ms, limit))


def least_limit(state: dict[str, Any], sides: int, limit: int) -> int | None:
    """Lets the last of several nodes that share a stream time move it on: what comes from above any of them has come then.

    Args:
        state: What they share.
        sides: How many they are.
        limit: That of the node that asks.

    Returns:
        The least limit of all of them for the last one that asks, None for the others.
    """
    limits: list[int] = [*state.pop(_ASKED, []), limit]
    if len(limits) == sides:
        return min(limits)
    state[_ASKED] = limits
    return None
