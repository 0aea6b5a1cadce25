"""Times and dates as ISO 8601 text: one rule, the same under every Python (`datetime.fromisoformat` knows more from 3.11 on).

Taken are `2026-01-31`, `20260131` and `2026-W05-6` (`2026-W05` is its Monday). Behind `T`, `t`, a space or `_` comes the time:
`12`, `12:00`, `12:00:00` or `120000`, with any number of digits of a second behind a point or a comma (more than six are cut off);
then `Z`, `z`, `+05`, `+0530`, `+05:30` or `-05:30:15`. A time without a zone is UTC, as everywhere where the engine takes a time. A
date is its first moment.
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
"""The lengths of times with an offset, and no, three or six digits of a second."""
_DAY = re.compile(_DATE)
_MOMENT = re.compile(rf"{_DATE}(?:[Tt _]{_TIME}(?:{_ZONE})?)?")


def moment(text: str) -> datetime:
    """The time of a text, with its zone. Raises `ValueError` if it is none."""
    usual = text[:-1] + "+00:00" if text[-1:] == "Z" else text
    # The usual forms, ten times as fast. Pythons read others differently, and 3.11 takes a part of an hour for one of a second.
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
    """The date of a text. Raises `ValueError` if it is none."""
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
