"""What people write for a timestamp or for headers, turned into the forms that records have.

A record has its timestamp as milliseconds since the epoch and its headers as pairs of text and bytes. A test, a processor or a
command gives a `datetime`, a dictionary or texts just as well, and all of them convert here, so that they accept the same.
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
    """Milliseconds since the epoch.

    Args:
        timestamp: Milliseconds, a `datetime` (without a zone it is UTC) or a `timedelta` since the epoch.
        what: What the error calls it.

    Raises:
        TypeError: It is none of these.
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
    """Pairs of name and bytes, in order.

    Args:
        headers: Pairs, which may repeat a name, or a dictionary; None stands for no headers.

    Raises:
        TypeError: A name is no text, or a value is neither bytes nor text nor None.
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
