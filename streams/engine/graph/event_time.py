"""Limits of timestamps: whole milliseconds of 64 bits, and not too far ahead of the batch's logged time.

One record from the year 2200 (a wrong clock, or microseconds taken for milliseconds) would close every window of its task and
make all later records late. Such a record is therefore refused before it advances any time: the time of its partition in the
head, or stream time in the task. "Now" is the logged time of the micro-batch and not a clock's, so a repeated batch refuses the
same records.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.engine.graph.settings import TaskSettings
from streams.errors import FutureTimestampError, RecordError, TimestampError

LATEST: Final = 2**62 - 1
"""The last millisecond accepted as a time. Windows add to times, and the sums must fit 64 bits."""

UNKNOWN_NOW: Final = -1
"""Says that the micro-batch's time is unknown: then no timestamp counts as too far ahead."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def latest(settings: TaskSettings, now_ms: int) -> int:
    """The last timestamp that a micro-batch with this time accepts."""
    if settings.max_future_ms is None or now_ms == UNKNOWN_NOW:
        return LATEST
    return min(LATEST, now_ms + settings.max_future_ms)


SECONDS: Final = (10**9, 10**10)
"""Times from here to there are the first months of 1970 in milliseconds or, far more likely, the years 2001 to 2286 in seconds."""
MICROSECONDS: Final = 10**14
"""From here on a time (in milliseconds the year 5138) is far more likely in micro- or nanoseconds."""
IN_SECONDS: Final = "in_seconds"
IN_MICROSECONDS: Final = "in_microseconds"
"""Counters of a source, `<counter>:<source>`: how many of its records have a time that looks like another unit than
milliseconds."""


def in_other_units(timestamps: npt.NDArray[np.int64]) -> dict[str, int]:
    """Counts the times that look like another unit; empty if there are none. For usual times, only the extremes are looked at."""
    smallest, largest = timestamps.min(initial=SECONDS[1]), timestamps.max(initial=0)
    if smallest >= SECONDS[1] and largest < MICROSECONDS:
        return {}
    first, last = SECONDS
    found = {
        IN_SECONDS: int(((timestamps >= first) & (timestamps < last)).sum()),
        IN_MICROSECONDS: int((timestamps >= MICROSECONDS).sum()),
    }
    return {name: count for name, count in found.items() if count}


def unit_warning(counter: str, source: str) -> str:
    """Explains in a sentence what a counter of other units means and what to do."""
    taken, written, unit = (
        ("seconds", "the first months of 1970", "s")
        if counter == IN_SECONDS
        else ("micro- or nanoseconds", "5138 or later", "us")
    )
    return (
        f"the event times of '{source}' look like {taken}: read as milliseconds they are of {written}. For a field, say its unit: "
        f"timestamp_field('...', unit='{unit}'); for the records' own timestamps, the producer has to write milliseconds"
    )


def too_far(timestamp: int, settings: TaskSettings, now_ms: int) -> RecordError:
    """Makes the error for a timestamp beyond `latest`."""
    bound = settings.max_future_ms
    if bound is None or now_ms == UNKNOWN_NOW:
        return TimestampError(
            f"the timestamp {timestamp} ({in_words(timestamp)}) is not a valid time: {LATEST} is the last one"
        )
    return FutureTimestampError(
        f"its timestamp {timestamp} ({in_words(timestamp)}) is {timestamp - now_ms} ms ahead of the batch's time {now_ms} "
        f"({in_words(now_ms)}), {bound} ms are allowed (max_future_ms){_hint(timestamp)}"
    )


def _hint(timestamp: int) -> str:
    return "; it looks like micro- or nanoseconds" if timestamp >= MICROSECONDS else ""


def checked(timestamp: object) -> int:
    """Returns the timestamp if it is a whole number of 64 bits; the caller decides whether it is negative or too late."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise TimestampError(f"the timestamp {timestamp!r:.60} is not a whole number of milliseconds")
    if not -(2**63) <= timestamp < 2**63:
        raise TimestampError(f"the timestamp {timestamp:.6e} does not fit 64 bits")
    return timestamp


def in_words(timestamp: int) -> str:
    try:
        return f"{_EPOCH + timedelta(milliseconds=timestamp):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return "no year of four digits"
