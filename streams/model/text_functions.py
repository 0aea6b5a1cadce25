"""The functions by which expressions compute texts, lists and times, from one value and constants; they never get null.

Texts are Python's: positions and lengths count characters; `[start:stop]` and `split` work as for `str`. A time is an integer of
milliseconds since 1970 in UTC, as in Kafka's records, or a `datetime` of a typed value. A wrong type raises `TypeError`, another
value without a result `ValueError`. `streams.model.expressions` turns both into errors of the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from types import UnionType
from typing import Any, Final
from zoneinfo import ZoneInfo

from streams.model import iso

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _of(kinds: type | UnionType, what: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    def checked(value: Any, *constants: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError(f"it takes {what}")
        return compute(value, *constants)

    return checked


of_text = partial(_of, str, "a text")
"""Wraps a function so that it checks that its first argument is a text."""
of_text_or_list = partial(_of, str | list, "a text or a list")
"""Wraps a function so that it checks that its first argument is a text or a list."""


def regexp_extract(text: str, pattern: str, group: int) -> str | None:
    """The group of the first match; None without a match."""
    found = re.search(pattern, text)
    return None if found is None else found[group]


def item(value: Any, index: int) -> Any:
    """An element of a list, or a character of a text; None beyond the ends."""
    return value[index] if -len(value) <= index < len(value) else None


def part(value: Any, start: int, stop: int | None = None) -> Any:
    """A slice of a text or a list, as in Python; without `stop`, up to the end."""
    return value[start:stop]


def read_iso(value: Any) -> int:
    """Reads ISO 8601 text as epoch ms; a text without an offset is UTC."""
    if isinstance(value, datetime):
        return _milliseconds(value)
    if not isinstance(value, str):
        raise TypeError("it takes a text")
    return _milliseconds(iso.moment(value))


def read_time(text: str, pattern: str) -> int:
    """Reads a text in a format of `datetime.strptime` as epoch ms; a text without an offset is UTC."""
    return _milliseconds(datetime.strptime(text, pattern))  # noqa: DTZ007 - UTC is added where no offset is said


def hour(value: Any, zone: str) -> int:
    """The hour of the day, 0 to 23."""
    return _moment(value, zone).hour


def date_format(value: Any, pattern: str, zone: str) -> str:
    """Formats a time as text, in a format of `datetime.strftime`."""
    return _moment(value, zone).strftime(pattern)


def _moment(value: Any, zone: str) -> datetime:
    if isinstance(value, datetime):
        moment = _aware(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        moment = EPOCH + timedelta(milliseconds=value)
    else:
        raise TypeError("it takes whole milliseconds since 1970: to_timestamp() converts a text to them")
    return moment if zone == "UTC" and moment.tzinfo is timezone.utc else moment.astimezone(ZoneInfo(zone))


def _milliseconds(moment: datetime) -> int:
    return (_aware(moment) - EPOCH) // _MILLISECOND


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
