"""An error as fields of a log line: its type, its text, and which record, topic or task it is about."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from typing import Any

from state.errors import StreamsError
from state.secrets import mask

PLACE = ("stage", "node", "topic", "partition", "offset", "task", "transactional_id")
"""Attributes of our errors that say where something happened."""
_KEY_LENGTH = 60
_TOLD = "_told_as_event"
"""The attribute that marks an error as told."""
_NAMED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.*)$", re.DOTALL)
_RECORD = re.compile(r"record at (?P<topic>[\w.-]+)-(?P<partition>\d+) offset (?P<offset>\d+)(?:, key (?P<key>.+?),)? ")
_NODE = re.compile(r" in node '(?P<node>[^']+)' of task (?P<task>\S+):")


def error_fields(error: BaseException, *, stack: bool = False) -> dict[str, Any]:
    """The fields of an error: `type`, `message`, `kind`, those of `PLACE` that it has, and `key`, shortened."""
    text = mask(str(error))
    fields: dict[str, Any] = {"type": type(error).__name__, "message": text}
    if isinstance(error, StreamsError):
        fields["kind"] = error.kind.value
    named = {name: getattr(error, name, None) for name in PLACE}
    fields |= {name: value for name, value in named.items() if isinstance(value, str | int)}
    key = getattr(error, "key", None)
    if isinstance(key, bytes):
        fields["key"] = short(key)
    fields |= {name: value for name, value in _told(text).items() if name not in fields}
    if stack:
        fields["stack"] = mask("".join(traceback.format_exception(error)))
    return fields


def tell(error: BaseException) -> dict[str, Any]:
    """The fields of an error for the event that tells it; the error is marked, so that it is not logged once more."""
    setattr(error, _TOLD, True)
    return error_fields(error)


def was_told(error: BaseException) -> bool:
    """Whether an event has told an error."""
    return getattr(error, _TOLD, False) is True


def short(key: object) -> str:
    """A key's beginning, as Python writes it."""
    text = mask(repr(key))
    return text if len(text) <= _KEY_LENGTH else text[: _KEY_LENGTH - 3] + "..."


def _told(text: str) -> Mapping[str, Any]:
    """What a text says about its cause: the type of the error, and the record, as `streams.runtime.handlers` describes it."""
    found: dict[str, Any] = {}
    if named := _NAMED.match(text):
        found["cause"] = named.group(1)
    if record := _RECORD.search(text):
        found |= {"topic": record["topic"], "partition": int(record["partition"]), "offset": int(record["offset"])}
        if record["key"]:
            found["key"] = record["key"]
    if node := _NODE.search(text):
        found |= node.groupdict()
    return found
