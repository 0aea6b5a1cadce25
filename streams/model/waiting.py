"""Records that wait in a store until a certain time: of outer joins, of joins with grace, and of expiring tables."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from streams.model.record import Headers

RIGHT: Final = 0
LEFT: Final = 1
"""Sides of a join. At one time the right records lie ahead of the left ones."""

LAST: Final = 255
"""Behind both sides."""


class WaitingKey(NamedTuple):
    """The key of a waiting record in its store.

    Attributes:
        time: The time until which it waits, ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
        number: Counts the records in order of arrival.
    """

    time: int
    side: int
    key: bytes
    number: int


class WaitingRecord(NamedTuple):
    """The rest of a waiting record.

    Attributes:
        side: `RIGHT` or `LEFT`.
        value: The value.
        headers: The headers.
        data: The value as it was in the store.
    """

    side: int
    value: Any
    headers: Headers
    data: bytes = b""
