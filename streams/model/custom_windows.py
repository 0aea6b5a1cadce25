"""Windows without a fixed length: calendar windows, and windows without an end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streams.errors import TopologyError
from streams.model.times import MAX_TIME
from streams.model.windows import Duration, Windows, to_ms

CalendarUnit: TypeAlias = Literal["day", "week", "month", "year"]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LONGEST_DAYS: dict[str, int] = {"day": 1, "week": 7, "month": 31, "year": 366}


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Days, weeks (from Monday), months or years of a time zone, summer time included: a day has 23 to 25 hours.

    Windows are half open, and close when stream time reaches the end plus grace. An unknown unit or zone raises `TopologyError`.

    Example::

        CalendarWindows.of("day", "Europe/Berlin", grace=timedelta(minutes=10))
    """

    unit: CalendarUnit
    zone: str
    grace_ms: int

    def __post_init__(self) -> None:
        if self.unit not in _LONGEST_DAYS:
            raise TopologyError(f"Calendar windows are day, week, month or year, not {self.unit!r}.")
        if self.grace_ms < 0:
            raise TopologyError(f"Grace must not be negative, but is {self.grace_ms} ms.")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise TopologyError(f"{self.zone!r} is no time zone: give a name such as Europe/Berlin or UTC.") from error

    @classmethod
    def of(cls, unit: CalendarUnit, zone: str, grace: Duration = 0) -> CalendarWindows:
        """Windows of a calendar unit in a time zone, which accept late records for `grace`."""
        return cls(unit, zone, to_ms(grace, "Grace"))

    @property
    def size_ms(self) -> int:
        """The longest possible size, including the extra hour at the end of summer time."""
        return _LONGEST_DAYS[self.unit] * _DAY_MS + _HOUR_MS

    def starts(self, timestamp: int) -> Iterable[int]:
        """The start of the one window of a timestamp; no window starts before 0."""
        return (max(0, _epoch_ms(self._first_day(timestamp))),)

    def end_of(self, start: int) -> int:
        """The start of the next window."""
        first = self._first_day(start)
        if self.unit == "month":
            following = (first + timedelta(days=31)).replace(day=1)
        elif self.unit == "year":
            following = first.replace(year=first.year + 1)
        else:
            following = first + timedelta(days=_LONGEST_DAYS[self.unit])
        return _epoch_ms(following)

    def _first_day(self, timestamp: int) -> datetime:
        # Wall-clock arithmetic: a date plus a day is the next date at midnight, however long the day is.
        day = datetime.fromtimestamp(timestamp / 1000, ZoneInfo(self.zone)).replace(
            hour=0, minute=0, second=0, microsecond=0, fold=0
        )
        if self.unit == "week":
            return day - timedelta(days=day.weekday())
        if self.unit == "day":
            return day
        return day.replace(day=1) if self.unit == "month" else day.replace(day=1, month=1)


@dataclass(frozen=True)
class UnlimitedWindows(Windows):
    """A single window from `start` on, which never ends or closes; earlier records belong to no window.

    Example::

        UnlimitedWindows.start_on(datetime(2026, 1, 1, tzinfo=timezone.utc))
    """

    closes: ClassVar[bool] = False

    start_ms: int = 0
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise TopologyError(f"A window cannot begin before the epoch, but at {self.start_ms} ms.")

    @classmethod
    def start_on(cls, start: datetime | int) -> UnlimitedWindows:
        """The window that begins at a time, a `datetime` with a zone or epoch ms."""
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise TopologyError(f"{start} has no time zone: give one, as in datetime(..., tzinfo=timezone.utc).")
            start = _epoch_ms(start)
        return cls(to_ms(start, "A window's start"))

    @property
    def size_ms(self) -> int:
        """The longest possible time."""
        return MAX_TIME - self.start_ms

    def starts(self, timestamp: int) -> Iterable[int]:
        """The start of the window, for records that are not before it."""
        return (self.start_ms,) if timestamp >= self.start_ms else ()

    def end_of(self, start: int) -> int:
        """Never."""
        return MAX_TIME


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
