"""Times and dates as ISO 8601 text, read by one rule under every Python (`datetime.fromisoformat` reads more forms from 3.11 on).

A date is `2026-01-31`, `20260131` or `2026-W05-6` (`2026-W05` is the Monday of that week). `T`, `t`, a space or `_` may follow, and
then a time: `12`, `12:00`, `12:00:00` or `120000`, with any number of decimals of a second after a point or a comma (decimals after
the sixth are cut off), and an offset: `Z`, `z`, `+05`, `+0530`, `+05:30` or `-05:30:15`. A time without an offset is UTC, as
everywhere in the engine. A date is read as its first moment.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone

_PLAIN = r"-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})|(?P<month2>[0-9]{2})(?P<day2>[0-9]{2})"
_WEEK = r"-?W(?P<week>[0-9]{2})(?:-?(?P<of_week>[1-7]))?"
_DATE = rf"(?P<year>[0-9]{{4}})(?:{_PLAIN}|{_WEEK})"
_SECOND = r"(?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]+))?"
_TIME = rf"(?P<hour>[0-9]{{2}})(?::?(?P<minute>[0-9]{{2}})(?::?{_SECOND})?)?"
_ZONE = r"(?P<utc>[Zz])|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2})(?::?(?P<seconds>[0-9]{2}))?)?"
_USUAL = (25, 29, 32)
"""The lengths of times with an offset and no, three or six decimals of a second."""
_DAY = re.compile(_DATE)
_MOMENT = re.compile(rf"{_DATE}(?:[Tt _]{_TIME}(?:{_ZONE})?)?")


def moment(text: str) -> datetime:
    """Reads a text as a time with a zone. Raises `ValueError` if it is not a time."""
    usual = text[:-1] + "+00:00" if text[-1:] == "Z" else text
    # A shortcut for the usual forms, ten times as fast. Other forms mean different things in different Pythons: 3.11 takes decimals
    # of an hour for decimals of a second.
    is_usual = len(usual) in _USUAL and usual[4:17:3] == "--T::" and usual[-6] in "+-" and usual[-3] == ":"
    if is_usual and usual[11:13] < "24" and usual[-2] < "6":
        with suppress(ValueError):
            return datetime.fromisoformat(usual)
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.60} is not a time in ISO 8601")
    at = found.groupdict()
    day = _day(at)
    micros = int(((at["part"] or "") + "000000")[:6])
    hour, minute, second = (int(at[name] or 0) for name in ("hour", "minute", "second"))
    return datetime(day.year, day.month, day.day, hour, minute, second, micros, _zone(at))


def day(text: str) -> date:
    """Reads a text as a date. Raises `ValueError` if it is not a date."""
    found = _DAY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.60} is not a date in ISO 8601")
    return _day(found.groupdict())


def _day(at: dict[str, str | None]) -> date:
    year = int(at["year"] or 0)
    if at["week"] is not None:
        return date.fromisocalendar(year, int(at["week"]), int(at["of_week"] or 1))
    return date(year, int(at["month"] or at["month2"] or 0), int(at["day"] or at["day2"] or 0))


def _zone(at: dict[str, str | None]) -> timezone:
    if at["sign"] is None:
        return timezone.utc
    hours, minutes, seconds = (int(at[name] or 0) for name in ("hours", "minutes", "seconds"))
    if minutes > 59 or seconds > 59:
        raise ValueError("an offset from UTC has 60 minutes at most")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if at["sign"] == "-" else offset)
