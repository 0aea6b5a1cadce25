"""Windows of time: size, advance and grace, with Kafka Streams' checks. All times are stored as epoch ms.

`GroupingWindows` is the base of all windows that can divide a grouped stream: windows that are identified by their start
(`Windows`: tumbling, hopping, calendar, user-defined), sliding windows, and sessions. The store, keys and operator of an
aggregation in each kind of windows are in `streams.dsl.nodes.aggregations`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.expressions import Expression, col, reads_record
from streams.model.record import MAX_TIME, to_timestamp_ms

Duration = timedelta | int


def to_ms(duration: Duration, what: str) -> int:
    """Converts a `timedelta` or an int in ms to whole milliseconds; `what` names the duration in the error."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise TopologyError(f"{what} must be a timedelta or whole milliseconds (int), not {duration!r}.")
    return duration


class GroupingWindows(AnswersUnknownNames, ABC):
    """The common base of all windows that `windowed_by` accepts."""

    grace_ms: int
    """How long a window accepts records after its end, ms."""

    closes: ClassVar[bool] = True
    """Whether a window ever closes."""

    inclusive_end: ClassVar[bool] = False
    """Whether the end belongs to the window, which then closes one millisecond later."""

    merges: ClassVar[bool] = False
    """Whether a record between two windows can merge them into one, as sessions do."""

    @property
    def wait_ms(self) -> int:
        """How long after its end a window closes, ms."""
        return self.grace_ms


class WindowsByStart(GroupingWindows):
    """Windows whose ends follow from their starts: all but sessions."""

    @abstractmethod
    def end_of(self, start: int) -> int:
        """End of the window that begins at `start`."""


class Windows(WindowsByStart):
    """Windows `[start, end)` that are identified by their start; subclass it to define your own windows.

    Make the subclass a frozen dataclass, because windows are part of serdes and are pickled. The `repr` is part of names and of the
    topology hash, so it must contain everything that defines the windows. No two windows may have the same start.
    """

    if TYPE_CHECKING:  # Not at run time: a dataclass would take the property for a field's default.

        @property
        def size_ms(self) -> int:
            """The length of the longest window, ms (an attribute or a property). State is retained for this time plus grace."""

    @abstractmethod
    def starts(self, timestamp: int) -> Iterable[int]:
        """The starts of all windows that contain a timestamp (epoch ms), ascending and never below 0."""

    @abstractmethod
    def end_of(self, start: int) -> int:
        """End (exclusive) of the window that begins at `start`."""


@dataclass(frozen=True, slots=True)
class TimeWindows(Windows):
    """Tumbling or hopping windows `[start, start + size)`, aligned to the epoch; a start is never negative.

    For example:

        TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
        TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(minutes=2)).advance_by(timedelta(minutes=5))

    A window accepts records until stream time reaches its end plus grace: with a size of 60 and a grace of 10, `[0, 60)` closes
    when a record at 70 or later arrives. Durations are a `timedelta` or ms (int); an invalid one raises `TopologyError`. Source:
    Kafka Streams' `TimeWindows`.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise TopologyError(f"A window's size must be larger than zero, not {self.size_ms} ms.")
        if not 0 < self.advance_ms <= self.size_ms:
            raise TopologyError(
                f"Windows of {self.size_ms} ms cannot advance by {self.advance_ms} ms: it must be larger than zero, "
                f"and not larger than the size, or records between two windows would belong to none."
            )
        if self.grace_ms < 0:
            raise TopologyError(f"Grace must not be negative, but is {self.grace_ms} ms.")

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that close when stream time reaches their end."""
        return cls.of_size_and_grace(size, 0)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that accept late records for `grace` after their end."""
        size_ms = to_ms(size, "A window's size")
        return cls(size_ms, max(size_ms, 1), to_ms(grace, "Grace"))

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Hopping windows of the same size; one starts every `advance`."""
        return replace(self, advance_ms=to_ms(advance, "A window's advance"))

    def starts(self, timestamp: int) -> Iterator[int]:
        """The starts of the windows that contain a timestamp, ascending (Kafka Streams' `windowsFor`)."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return iter(range(first, timestamp + 1, self.advance_ms))

    def end_of(self, start: int) -> int:
        """End (exclusive) of the window that begins at `start`."""
        return start + self.size_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows(WindowsByStart):
    """Windows `[start, start + difference]`, both inclusive, one for each distinct set of records of a key.

    Two records share a window if they are at most `difference` apart. There is a window that ends at each record, and one that
    begins 1 ms after each record unless it would be empty (KIP-450). With a difference of 10, records at 20 and 27 make three
    windows: `[10, 20]` with the first, `[17, 27]` with both, and `[21, 31]` with the second.

    For example:

        SlidingWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(seconds=30))

    A window accepts records until stream time has passed its end plus grace. A negative duration raises `TopologyError`.
    """

    inclusive_end: ClassVar[bool] = True

    difference_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.difference_ms < 0:
            raise TopologyError(f"A sliding window's time difference must not be negative: {self.difference_ms} ms.")
        if self.grace_ms < 0:
            raise TopologyError(f"Grace must not be negative, but is {self.grace_ms} ms.")

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        """Windows that close when stream time has passed their end."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        """Windows that accept late records for `grace` after their end."""
        return cls(to_ms(difference, "A sliding window's time difference"), to_ms(grace, "Grace"))

    def end_of(self, start: int) -> int:
        """End (inclusive) of the window that begins at `start`."""
        return start + self.difference_ms


@dataclass(frozen=True, slots=True)
class SessionWindows(GroupingWindows):
    """Sessions `[first record, last record]`, both inclusive: records of a key at most `gap` apart share a session.

    A record between two sessions can merge them into one. A session closes when stream time has passed its end by more than gap
    plus grace. With a gap of 10 and a grace of 5, records at 0 and 15 are two sessions. A record at 8 merges them into `[0, 15]`,
    which closes when stream time passes 30.

    For example:

        SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), timedelta(minutes=1))

    A negative duration raises `TopologyError`. Source: Kafka Streams' `SessionWindows` (KIP-94).
    """

    inclusive_end: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    gap_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise TopologyError(f"The gap between two sessions must not be negative: {self.gap_ms} ms.")
        if self.grace_ms < 0:
            raise TopologyError(f"Grace must not be negative, but is {self.grace_ms} ms.")

    @property
    def wait_ms(self) -> int:
        """The gap, in which a session may still continue, plus grace."""
        return self.gap_ms + self.grace_ms

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        """Sessions that do not wait for late records."""
        return cls.of_inactivity_gap_and_grace(gap, 0)

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        """Sessions that wait `grace` for late records."""
        return cls(to_ms(gap, "The gap between two sessions"), to_ms(grace, "Grace"))


@dataclass(frozen=True, slots=True)
class EmitStrategy(AnswersUnknownNames):
    """When a windowed aggregation emits: with every update of a window, or once when the window closes (KIP-825)."""

    on_close: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Emits every update (with caching, the last update of each step); the default."""
        return cls(on_close=False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Emits only the final result of each window."""
        return cls(on_close=True)


@dataclass(frozen=True, slots=True)
class JoinWindows(AnswersUnknownNames):
    """The interval in which records of two streams are joined: right ones from `left - before` to `left + after`, both inclusive.

    With `before` 5 and `after` 10, a left record at 100 is joined with the right records from 95 to 110. For example:

        JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=10))
        JoinWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(minutes=5)).before(0)
        JoinWindows.until(col("expires"), at_most=timedelta(days=30), grace=timedelta(minutes=5))

    Either bound may be negative, but a negative interval raises `TopologyError`. `docs/operators.md` explains which records are
    late, and when a record without a match is given up. Source: Kafka Streams' `JoinWindows`.
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    bound: Expression | None = field(default=None, compare=False)
    """The time in a left value up to which right records are joined with it; None: only `after` counts."""

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise TopologyError(
                f"The window from {self.before_ms} ms before to {self.after_ms} ms after is empty: before + after must "
                f"not be negative."
            )
        if self.grace_ms < 0:
            raise TopologyError(f"Grace must not be negative, but is {self.grace_ms} ms.")

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        """Joins records at most `difference` apart, and does not wait for late records."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        """Joins records at most `difference` apart, and waits `grace` for late records."""
        difference_ms = to_ms(difference, "A join's time difference")
        return cls(difference_ms, difference_ms, to_ms(grace, "Grace"))

    @classmethod
    def until(cls, bound: Expression | str, at_most: Duration, grace: Duration = 0) -> JoinWindows:
        """Joins each left record with right ones from its own time up to the time in one of its fields, inclusive.

        Args:
            bound: The field, or an expression of the left value: ms since 1970, ISO 8601 text (no zone: UTC), or a `datetime`.
                If it is null, only `at_most` counts. Any other value is an error of the left record (policy `processing`).
            at_most: The longest time for which a left record is joined, whatever the field contains. Its rows are stored that long.
            grace: How long to wait for late records.
        """
        if not isinstance(bound, Expression | str) or (isinstance(bound, Expression) and reads_record(bound)):
            raise TopologyError(
                f'JoinWindows.until takes a field of the left value, such as col("expires"), not {bound!r}.'
            )
        windows = cls.of_time_difference_and_grace(at_most, grace).before(0)
        return replace(windows, bound=col(bound) if isinstance(bound, str) else bound)

    def before(self, difference: Duration) -> JoinWindows:
        """Returns windows in which the right record may be earlier by at most `difference`."""
        return replace(self, before_ms=to_ms(difference, "A join's time difference"))

    def after(self, difference: Duration) -> JoinWindows:
        """Returns windows in which the right record may be later by at most `difference`."""
        return replace(self, after_ms=to_ms(difference, "A join's time difference"))

    @property
    def size_ms(self) -> int:
        """The length of the interval."""
        return self.before_ms + self.after_ms

    @property
    def keep_ms(self) -> int:
        """How long a record must be stored in stream time, grace included.

        Kafka Streams stores records for `size + grace`. With a negative bound, a record may be needed longer: with `before` -5
        and `after` 10, a left record waits 10 for its match, although the interval's length is 5.
        """
        return max(self.size_ms, self.before_ms, self.after_ms) + self.grace_ms


CalendarUnit: TypeAlias = Literal["day", "week", "month", "year"]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LONGEST_DAYS: dict[str, int] = {"day": 1, "week": 7, "month": 31, "year": 366}
_LAST_CHANGE_S = 4_102_444_800
"""The year 2100 in seconds since 1970: no known rule of a zone begins later, and the known rules repeat every year."""
_SAMPLE_S = 7 * 86_400


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Days, weeks (from Monday), months or years in a time zone, with all changes of its clocks: a day has 23 to 31 hours.

    A day begins at the first moment whose date is that day or a later one, and ends where the next day begins. So the windows of a
    unit cover all time and never overlap, even where clocks go back across midnight (St. John's until 2011): the last hour of
    yesterday is then repeated, and belongs to the day that has already begun. Java's `LocalDate.atStartOfDay(zone)` is the same.

    A window excludes its end, and closes when stream time reaches its end plus grace. An unknown unit or zone raises
    `TopologyError`.

    For example:

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
            raise TopologyError(
                f"{self.zone!r} is not a time zone: give a name such as Europe/Berlin or UTC."
            ) from error

    @classmethod
    def of(cls, unit: CalendarUnit, zone: str, grace: Duration = 0) -> CalendarWindows:
        """Windows of a calendar unit in a time zone, which accept late records for `grace`."""
        return cls(unit, zone, to_ms(grace, "Grace"))

    @property
    def size_ms(self) -> int:
        """The length of the zone's longest window since 1970, ms; at least the unit's longest length plus an hour."""
        return _longest_ms(self.unit, self.zone)

    def starts(self, timestamp: int) -> Iterable[int]:
        """The start of the one window that contains a timestamp; no window starts before 0."""
        return (_calendar_window(self.unit, self.zone, timestamp)[0],)

    def end_of(self, start: int) -> int:
        """The end (exclusive) of the window, which is the start of the next one."""
        return _calendar_window(self.unit, self.zone, start)[1]


def _calendar_window(unit: CalendarUnit, zone: str, timestamp: int) -> tuple[int, int]:
    """Start and end (epoch ms) of the window that contains a timestamp."""
    first = _first_day(unit, datetime.fromtimestamp(timestamp // 1000, ZoneInfo(zone)).date())
    start, end = _between_midnights(unit, zone, first)
    while end <= timestamp:
        # The clocks have gone back to the day before, but the next window has already begun.
        first = _following(unit, first)
        start, end = _between_midnights(unit, zone, first)
    return start, end


def _first_day(unit: CalendarUnit, day: date) -> date:
    if unit == "day":
        return day
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(day=1, month=1)


def _following(unit: CalendarUnit, first: date) -> date:
    return _first_day(unit, first + timedelta(days=_LONGEST_DAYS[unit]))


@lru_cache(maxsize=4096)
def _between_midnights(unit: CalendarUnit, zone: str, first: date) -> tuple[int, int]:
    """Start and end (epoch ms) of the unit that begins with a date. They are equal for a day that the zone skips."""
    return max(0, _begin_s(zone, first) * 1000), _begin_s(zone, _following(unit, first)) * 1000


def _begin_s(zone: str, day: date) -> int:
    """The first second at which the date in the zone is `day` or later."""
    rules = ZoneInfo(zone)
    midnight = datetime(day.year, day.month, day.day, tzinfo=rules)
    # If there are two midnights, Python takes the earlier one.
    begin = int(midnight.timestamp())
    if _wall_clock(begin, rules) == midnight.replace(tzinfo=None):
        return begin
    # The clocks go forward across midnight, so this midnight does not exist, and the day begins when they change. Python reads such
    # a midnight in two ways (`fold`), as a time before the change and as one after it.
    earliest = int(midnight.replace(fold=1).timestamp())
    seconds = range(earliest, begin)
    return seconds[0] + bisect_left(seconds, True, key=lambda second: _wall_clock(second, rules).date() >= day)


def _wall_clock(second: int, rules: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(second, rules).replace(tzinfo=None)


@lru_cache
def _longest_ms(unit: CalendarUnit, zone: str) -> int:
    """The length of the zone's longest unit, ms. Only times at which the zone's offset from UTC changes are examined."""
    rules = ZoneInfo(zone)
    longest = _LONGEST_DAYS[unit] * _DAY_MS + _HOUR_MS
    offset = None
    for second in range(0, _LAST_CHANGE_S, _SAMPLE_S):
        before, offset = offset, datetime.fromtimestamp(second, rules).utcoffset()
        if offset == before:
            continue
        at, until = max(0, second - _SAMPLE_S - 86_400) * 1000, second * 1000
        while at <= until:
            start, end = _calendar_window(unit, zone, at)
            longest = max(longest, end - start)
            at = end
    return longest


@dataclass(frozen=True)
class UnlimitedWindows(Windows):
    """A single window from `start` on, which never ends or closes; earlier records belong to no window.

    For example:

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
        """A window that begins at a time: a `datetime` (no zone: UTC) or epoch ms."""
        if isinstance(start, datetime):
            start = to_timestamp_ms(start)
        return cls(to_ms(start, "A window's start"))

    @property
    def size_ms(self) -> int:
        """The longest possible duration, ms."""
        return MAX_TIME - self.start_ms

    def starts(self, timestamp: int) -> Iterable[int]:
        """The start of the window; no start for records before it."""
        return (self.start_ms,) if timestamp >= self.start_ms else ()

    def end_of(self, start: int) -> int:
        """The largest time: the window never ends."""
        return MAX_TIME
