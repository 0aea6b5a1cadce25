"""Lines that others have written to standard error, as JSON: librdkafka, Java, libraries, and `print` in a user's function.

A line that is JSON of ours already passes unchanged. A line of Spark's structured log gets the names of our fields. The others are
recognised by their form. A line in no known form is never dropped, whatever the level: it may be the last words of a process.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

import orjson

from state.secrets import mask
from streams.logs.json_lines import line_of, utc

_RDKAFKA = re.compile(r"%(?P<level>\d)\|[\d.]+\|(?P<facility>\w+)\|(?P<client>[^|]*)\| ?(?P<message>.*)")
_SYSLOG = ("CRITICAL", "CRITICAL", "CRITICAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")
_LOG4J = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (?P<logger>[\w.$]+): (?P<message>.*)"
)
_VM = re.compile(r"(?:OpenJDK|Java HotSpot).* warning: |WARNING: ")
_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL"}
OURS = b'{"time":'
"""The beginning of our own lines."""


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
