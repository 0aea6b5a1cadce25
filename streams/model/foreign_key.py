"""What the parts of a foreign-key join tell one another (Kafka Streams: `kstream.internals.foreignkeyjoin`).

The left row and the right row lie in different tasks. So a left row *subscribes* to the right key that it refers to; the
right table's task keeps the subscriptions and *responds*, at once and at each update of the right row; the left table's task
joins the response with its row, if the row is still the one that asked (the hash of its value).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class Instruction(IntEnum):
    """What a subscription asks for (`SubscriptionWrapper.Instruction`)."""

    DELETE = 0
    """Forget it; no response."""
    DELETE_AND_RESPOND = 1
    """Forget it, and respond with nothing, so that the result is deleted."""
    ALWAYS_RESPOND = 2
    """Keep it, and respond even if there is no right row."""
    RESPOND_IF_FOUND = 3
    """Keep it, and respond if there is a right row."""


class Subscription(NamedTuple):
    """A left row's interest in a right key.

    Attributes:
        hash: 16 bytes, of the left value; None: the row was deleted.
        instruction: An `Instruction`.
        primary_key: Key of the left row.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any


class Response(NamedTuple):
    """The right row, for a left row.

    Attributes:
        hash: That of the subscription.
        value: The right value; None if there is none.
    """

    hash: bytes | None
    value: Any


class CombinedKey(NamedTuple):
    """Key of a kept subscription."""

    foreign: Any
    primary: Any
