"""The messages between the parts of a foreign-key join (Kafka Streams' `kstream.internals.foreignkeyjoin`).

The left row and the right row belong to different tasks. So a left row *subscribes* to the right key that it refers to. The right
table's task stores the subscriptions and *responds*, at once and at each update of the right row. The left table's task joins
the response with its row if the row has not changed since (by the hash of its value).
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
        hash: The hash of the left value, 16 bytes; None: the row was deleted.
        instruction: An `Instruction`.
        primary_key: The key of the left row.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any


class Response(NamedTuple):
    """The right row, in answer to a subscription.

    Attributes:
        hash: The hash of the subscription.
        value: The right value; None if there is none.
    """

    hash: bytes | None
    value: Any


class CombinedKey(NamedTuple):
    """The key of a stored subscription."""

    foreign: Any
    primary: Any
