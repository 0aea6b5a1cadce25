"""Log records as lines of JSON.

A line has `time` (UTC), `level`, `logger` and `message`, and `application`, `sub_topology` and `task` where they are known. A
lifecycle event has its name in `event`, and its own fields beside; an error is an object of its own in `error`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import orjson

from state.secrets import mask, mask_known
from streams.logs.errors import error_fields
from streams.logs.events import Event

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
LONGEST = 3900
"""Bytes of a worker's line, at most: a pipe takes 4096 at once, so lines of several workers stay whole."""

_context: dict[str, Any] = {}


def set_context(**fields: Any) -> None:
    """Notes what all further lines of this process are about: `application`, `sub_topology`, `task`; None removes one."""
    for name, value in fields.items():
        if value is None:
            _context.pop(name, None)
        else:
            _context[name] = value


def context() -> Mapping[str, Any]:
    """What the lines of this process are about now."""
    return dict(_context)


def utc(seconds: float) -> str:
    """A time in ISO 8601, in UTC and with milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(fields: Mapping[str, Any], longest: int | None = None) -> bytes:
    """A line of JSON; values that JSON does not know become text."""
    fields = {name: _masked(value) for name, value in fields.items()}
    line = orjson.dumps(fields, default=_as_text, option=_OPTIONS)
    if longest is None or len(line) <= longest:
        return line
    error = fields.get("error")
    brief = {name: value for name, value in error.items() if name != "stack"} if isinstance(error, Mapping) else None
    fields = {**fields, **({"error": brief} if brief else {})}
    cut = {name: _cut(value, longest // 4) for name, value in fields.items()}
    return orjson.dumps(cut, default=_as_text, option=_OPTIONS)


def _masked(value: Any) -> Any:
    """A value without known secrets. The names of fields stay: a password may be `message`."""
    if isinstance(value, str):
        return mask_known(value)
    if isinstance(value, Mapping):
        return {name: _masked(one) for name, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list | tuple) else value


def _as_text(value: object) -> str:
    return mask(str(value))


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return value[:length] + "..."
    if isinstance(value, Mapping):
        return {name: _cut(one, length) for name, one in value.items()}
    return value


class JsonFormatter(logging.Formatter):
    """Formats log records as the fields of a line."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of a record, in the order in which people read them."""
        fields: dict[str, Any] = {"time": utc(record.created), "level": record.levelname, "logger": record.name}
        event = getattr(record, "event", None)
        about = dict(_context)
        if isinstance(event, Event):
            fields["event"] = event.name
            about = {"application": event.application, "sub_topology": event.sub_topology, "task": event.task}
        elif isinstance(event, str):
            fields["event"] = event
        own: Mapping[str, Any] = event.fields if isinstance(event, Event) else getattr(record, "fields", {})
        about |= {name: own[name] for name in ("application", "sub_topology", "task") if name in own}
        fields |= {name: value for name, value in about.items() if value is not None}
        fields["message"] = mask(record.getMessage())
        fields |= {name: value for name, value in own.items() if name not in fields}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = error_fields(record.exc_info[1], stack=True)
        return fields


class LineWriter:
    """Writes whole lines to a file descriptor.

    Args:
        fd: The file descriptor.
        longest: The most bytes of a line; None: no limit.
    """

    def __init__(self, fd: int, longest: int | None = None) -> None:
        self._fd = fd
        self._longest = longest

    def fields(self, fields: Mapping[str, Any]) -> None:
        self.raw(line_of(fields, self._longest))

    def raw(self, line: bytes) -> None:
        """Writes a line as it is; a reader that has gone is no reason to fail."""
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            pass


class JsonHandler(logging.Handler):
    """Writes log records as lines of JSON."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer
        self._fields = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record; `logging` holds the handler's lock meanwhile."""
        try:
            self._writer.fields(self._fields.fields(record))
        except Exception:
            self.handleError(record)
