"""Log records, errors and other programs' lines as lines of JSON.

A line has `time` (UTC), `level`, `logger` and `message`, and `application`, `sub_topology` and `task` where they are known. A
lifecycle event has its name in `event`, and its own fields; an error is an object of its own in `error`.
"""

from __future__ import annotations

import logging
import os
import re
import time
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import orjson

from state.errors import StreamsError
from state.secrets import mask, mask_known
from streams.errors import more_about
from streams.logs.events import Event

PLACE = ("cause", "stage", "node", "topic", "partition", "offset", "task", "transactional_id")
"""The attributes of this project's errors that name the place of an error."""
_KEY_LENGTH = 60
_LOGGED = "_logged_with_event"
"""The attribute that marks an error as logged."""


def error_fields(error: BaseException, *, stack: bool = False) -> dict[str, Any]:
    """The fields of an error: `type`, `message`, `kind`, `more`, the attributes in `PLACE` that it has, and `key`, shortened."""
    fields: dict[str, Any] = {"type": type(error).__name__, "message": mask(str(error))}
    if isinstance(error, StreamsError):
        fields |= {"kind": error.kind.value, "more": more_about(error)}
    named = {name: getattr(error, name, None) for name in PLACE}
    fields |= {name: value for name, value in named.items() if isinstance(value, str | int)}
    key = getattr(error, "key", None)
    if isinstance(key, bytes | str):
        fields["key"] = key if isinstance(key, str) else short(key)
    if stack:
        fields["stack"] = mask("".join(traceback.format_exception(error)))
    return fields


def fields_logged_once(error: BaseException) -> dict[str, Any]:
    """Returns the error's log fields and marks it as logged."""
    setattr(error, _LOGGED, True)
    return error_fields(error)


def was_logged(error: BaseException) -> bool:
    return getattr(error, _LOGGED, False) is True


def short(key: object) -> str:
    """The beginning of a key, in Python's notation."""
    text = mask(repr(key))
    return text if len(text) <= _KEY_LENGTH else text[: _KEY_LENGTH - 3] + "..."


_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
LONGEST = 3900
"""The most bytes of a worker's line: a pipe takes 4096 at once, so the lines of several workers do not mix."""

_context: dict[str, Any] = {}


def set_context(**fields: Any) -> None:
    """Sets the context of all further lines of this process: `application`, `sub_topology`, `task`; None removes one."""
    for name, value in fields.items():
        if value is None:
            _context.pop(name, None)
        else:
            _context[name] = value


def context() -> Mapping[str, Any]:
    """The current context of this process's lines."""
    return dict(_context)


def utc(seconds: float) -> str:
    """A time in ISO 8601, in UTC and with milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(fields: Mapping[str, Any], longest: int | None = None) -> bytes:
    """A line of JSON; values that JSON does not know become text."""
    fields = {name: masked(value) for name, value in fields.items()}
    line = orjson.dumps(fields, default=_as_text, option=_OPTIONS)
    if longest is None or len(line) <= longest:
        return line
    error = fields.get("error")
    brief = {name: value for name, value in error.items() if name != "stack"} if isinstance(error, Mapping) else None
    fields = {**fields, **({"error": brief} if brief else {})}
    cut = {name: _cut(value, longest // 4) for name, value in fields.items()}
    return orjson.dumps(cut, default=_as_text, option=_OPTIONS)


def masked(value: Any) -> Any:
    """A value in which known secrets are masked. The names of fields stay, since a password may be the word `message`."""
    if isinstance(value, str):
        return mask_known(value)
    if isinstance(value, Mapping):
        return {name: masked(one) for name, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list | tuple) else value


def _as_text(value: object) -> str:
    return mask(str(value))


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return value[:length] + "..."
    if isinstance(value, Mapping):
        return {name: _cut(one, length) for name, one in value.items()}
    return value


def record_fields(record: logging.LogRecord) -> dict[str, Any]:
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
        longest: The most bytes of a line; None: no limit.
    """

    def __init__(self, fd: int, longest: int | None = None) -> None:
        self._fd = fd
        self._longest = longest

    def fields(self, fields: Mapping[str, Any]) -> None:
        self.raw(line_of(fields, self._longest))

    def raw(self, line: bytes) -> None:
        """Writes a line as it is; a reader that has gone does no harm."""
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            pass


class JsonHandler(logging.Handler):
    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record. `logging` calls it with the handler's lock."""
        try:
            self._writer.fields(record_fields(record))
        except Exception:
            self.handleError(record)


_RDKAFKA = re.compile(r"%(?P<level>\d)\|[\d.]+\|(?P<facility>\w+)\|(?P<client>[^|]*)\| ?(?P<message>.*)")
_SYSLOG = ("CRITICAL", "CRITICAL", "CRITICAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")
_LOG4J = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (?P<logger>[\w.$]+): (?P<message>.*)"
)
_VM = re.compile(r"(?:OpenJDK|Java HotSpot).* warning: |WARNING: ")
_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL"}
OURS = b'{"time":'
"""The beginning of this project's own lines."""


# Lines that others have written to standard error: librdkafka, Java, libraries, and `print` in a user's function.
#
# A line that is already JSON of ours passes unchanged. A line of Spark's structured log gets the names of our fields. Others are
# recognised by their form. A line in no known form is never dropped, whatever the level: it may be the last words of a process.


def as_json(line: bytes, level: int, context: Mapping[str, Any]) -> bytes | None:
    """A line as JSON, with its line break; None: it is empty, or below the level."""
    if not line.strip():
        return None
    known = _json_of(line)
    if known is not None and line.startswith(OURS):
        return line + b"\n"
    fields = _of_spark(known) if known is not None and "msg" in known else _of_text(line.decode(errors="replace"))
    if fields["level"] is not None and getattr(logging, fields["level"], logging.WARNING) < level:
        return None
    head = {"time": fields.pop("time", None) or utc(time.time()), "level": fields.pop("level") or "WARNING"}
    logger = fields.pop("logger")
    return line_of({**head, "logger": logger, **context, **fields, "message": mask(fields["message"].rstrip())})


def _json_of(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _of_spark(found: Mapping[str, Any]) -> dict[str, Any]:
    """A line of Spark's structured log (`spark.log.structuredLogging.enabled`)."""
    fields = {
        "time": found.get("ts"),
        "level": _level(str(found.get("level"))),
        "logger": f"java.{found.get('logger', 'Spark')}",
        "message": str(found["msg"]),
    }
    error = found.get("exception")
    if isinstance(error, Mapping):
        fields["error"] = {"type": error.get("class"), "message": mask(str(error.get("msg")))}
    return fields


def _of_text(text: str) -> dict[str, Any]:
    if match := _RDKAFKA.match(text):
        level = _SYSLOG[min(int(match["level"]), 7)]
        client = {"client": match["client"], "facility": match["facility"]}
        return {"level": level, "logger": "librdkafka", **client, "message": match["message"]}
    if match := _LOG4J.match(text):
        return {"level": _level(match["level"]), "logger": f"java.{match['logger']}", "message": match["message"]}
    if _VM.match(text):
        return {"level": "WARNING", "logger": "java", "message": text}
    return {"level": None, "logger": "stderr", "message": text}


def _level(name: str) -> str:
    return _LEVELS.get(name, name)
