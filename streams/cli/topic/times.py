"""Timestamps as typed and as printed: milliseconds since 1970, or ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from streams.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_timestamp(text: str) -> int:
    """Milliseconds since 1970 for a typed time; a time without a zone is UTC.

    Raises:
        ConfigError: The text is not a time.
    """
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        # Python 3.10 does not know the Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time: write milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00Z"
        ) from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def shown_time(at: int) -> str:
    """UTC to the millisecond; beyond the range of the calendar, the number itself."""
    try:
        return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(at)
