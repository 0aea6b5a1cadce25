"""The bound on operators' `ctx.state`: all state of a task is in its commit marker, which is one record.

A marker that is too large cannot be committed, and Kafka's error would name a topic unknown to the user. The sizes are
therefore checked while the operators are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from streams.errors import OperatorStateError

_SHARE = 0.9
"""Share of the marker available to state; the rest is for offsets, ranges and the like."""


def check_operator_state(operator_state: Mapping[str, Mapping[str, Any]], task_id: str, limit: int) -> None:
    """Refuses state that cannot be committed.

    Raises:
        OperatorStateError: The state is too large, or not JSON.
    """
    try:
        size = len(orjson.dumps(operator_state))
    except TypeError as error:
        name = next((name for _, name, size in _sizes(operator_state) if size < 0), "?")
        raise OperatorStateError(
            f"the operator {name!r} of task {task_id} keeps something in ctx.state that is not JSON ({error}): only texts, "
            f"numbers, lists and dicts with text keys can be kept there"
        ) from error
    if size > limit * _SHARE:
        kind, name, largest = max(_sizes(operator_state), key=lambda found: found[2])
        who = f"operator {name!r}" if kind == "nodes" else f"operators that share {name!r}"
        raise OperatorStateError(
            f"the {who} of task {task_id} keep {largest} bytes in ctx.state, and all operators {size}; the commit marker, which "
            f"holds them, takes {int(limit * _SHARE)}: keep what grows in a store (process(..., stores=[...])). Nothing of this "
            f"step was written"
        )


def _sizes(operator_state: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Kind, name, and size as JSON; -1 where it is not JSON."""
    found = []
    for kind, states in operator_state.items():
        for name, state in states.items():
            try:
                found.append((kind, name, len(orjson.dumps(state))))
            except TypeError:
                found.append((kind, name, -1))
    return found
