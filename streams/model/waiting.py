"""Records that wait for their time to come, as they lie in a store: of outer joins, of joins with grace, of expiring tables."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from streams.model.record import Headers

RIGHT: Final = 0
LEFT: Final = 1
"""Sides of a join. At one time the right records lie ahead of the left ones."""

LAST: Final = 255
"""Behind both sides."""


class WaitingKey(NamedTuple):
    """Place of a waiting record.

    Attributes:
        time: What it waits for, ms.
        side: `RIGHT` or `LEFT`; `RIGHT` comes first.
        key: The record key's bytes.
        number: Counts the records in order of arrival.
    """

    time: int
    side: int
    key: bytes
    number: int


class WaitingRecord(NamedTuple):
    """A waiting record, besides its place.

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
