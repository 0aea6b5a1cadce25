"""What a step checks before it believes what it assumes, each in a function of its own.

Why functions: each of these stands between a fault and silent loss, and none of them does anything while all is well. So
each can be switched off by itself, and a simulation must then find what it guards against.
"""

from __future__ import annotations

from collections.abc import Sequence

from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.errors import RoutingMismatchError


def check_routing(identity: TaskIdentity, found: CommitMarker, routing: str, keyed_by: Sequence[str]) -> None:
    """A step that is committed already must have been given the same rows by keys that functions made.

    Args:
        identity: the task.
        found: the committed step.
        routing: digest of the keys as they were made now.
        keyed_by: names of the nodes that make them.

    Raises:
        RoutingMismatchError: rows have moved between tasks.
    """
    # A program that kept no digest has left "".
    if found.routing and found.routing != routing:
        raise RoutingMismatchError(str(identity), found.batch_id, found.version, keyed_by)
