"""Durations as people write them: `500ms`, `5s`, `10m`, `1h30m`, `7d`, or a bare number of milliseconds.

Settings whose names end in `_ms` accept durations on the command line, in a TOML file and in the environment, as do starting
offsets (`duration:10m`); inside the program durations are plain milliseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART}\s*)+")
_EXAMPLES = "500ms, 5s, 10m, 1h30m or 7d, or a number of milliseconds"


def to_milliseconds(value: Any) -> Any:
    """Milliseconds for a text or a `timedelta`; other values are returned unchanged, for pydantic to check.

    Raises:
        ValueError: The text is not a duration, or not a whole number of milliseconds.
    """
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if not isinstance(value, str):
        return value
    text = value.strip().replace("_", "")
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration: write {_EXAMPLES}")
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    if total != int(total):
        raise ValueError(f"{value!r} is not a whole number of milliseconds")
    return int(total)


def in_words(milliseconds: int) -> str:
    """The shortest exact form of a duration, such as `1d`, `90s` or `1500ms`."""
    if milliseconds == 0:
        return "0"
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS[unit] == 0:
            return f"{milliseconds // _UNITS[unit]}{unit}"
    return f"{milliseconds}ms"


def age_in_words(ms: int) -> str:
    """A duration that can be read at a glance: `3 s`, `12 min`, `5 h`, `40 d`."""
    seconds = max(0, ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


DurationMs = Annotated[int, BeforeValidator(to_milliseconds)]
"""The type of a setting in milliseconds; a field of this type takes durations with a unit as well."""
