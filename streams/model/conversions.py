"""Converts timestamps and headers from the forms that users write to those of records.

A record's timestamp is in milliseconds since the epoch, and its headers are pairs of text and bytes. Tests, processors and
commands also accept a `datetime`, a dictionary or text; all of them convert here, so that all accept the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"
"""Headers as a record has them."""
TimestampLike: TypeAlias = "int | datetime | timedelta"
"""Milliseconds since the epoch, a moment (no zone: UTC), or the time since the epoch."""
HeaderValue: TypeAlias = "bytes | str | None"
HeadersLike: TypeAlias = "Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]"
"""Pairs of name and value, or a dictionary; text is written as UTF-8."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


def to_timestamp_ms(timestamp: TimestampLike, what: str = "a timestamp") -> int:
    """Converts a timestamp to milliseconds since the epoch.

    Args:
        timestamp: Milliseconds, a `datetime` (without a zone: UTC) or a `timedelta` since the epoch.
        what: The argument's name, for the error message.

    Raises:
        TypeError: The timestamp has another type.
    """
    if isinstance(timestamp, datetime):
        moment = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(timestamp, timedelta):
        return timestamp // _MILLISECOND
    if not isinstance(timestamp, bool):
        try:
            return operator.index(timestamp)
        except TypeError:
            pass
    raise TypeError(
        f"{what} is whole milliseconds since the epoch (int), a datetime, or a timedelta since the epoch, not {timestamp!r}"
    )


def to_headers(headers: HeadersLike | None) -> Headers:
    """Converts headers to pairs of name and bytes, in order.

    Args:
        headers: Pairs, in which names may repeat, or a dictionary; None: no headers.

    Raises:
        TypeError: A name is not text, or a value is neither bytes nor text nor None.
    """
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(_header(pair) for pair in pairs)


def _header(pair: object) -> tuple[str, bytes | None]:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        name, value = pair
        if isinstance(name, str) and isinstance(value, bytes | str | None):
            return name, value.encode() if isinstance(value, str) else value
    raise TypeError(
        f"headers are a dictionary or pairs of a name and bytes, text or None, such as {{'source': b'web'}} or "
        f"[('source', 'web')]; {pair!r} is no such pair"
    )
