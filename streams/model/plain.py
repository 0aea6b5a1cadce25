"""Keys and values as plain JSON data, for people and programs."""

from __future__ import annotations

from typing import Any

from streams.model.record import Windowed

_PLAIN = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """A key or value as plain JSON data; bytes become text, or hexadecimal digits if they are not valid UTF-8."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, bytes):
        return _readable(value)
    if isinstance(value, Windowed):
        return {"key": plain(value.key), "start": value.window.start, "end": value.window.end}
    if isinstance(value, dict):
        # Most parts are plain already, and rows have many: a call for each would be half of the cost of an answer.
        return {str(name): part if type(part) in _PLAIN else plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | float) else str(value)


def _readable(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
