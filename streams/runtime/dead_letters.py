"""Dead letters (KIP-1034): the original record that failed, with headers that say why, cut to what Kafka accepts.

A dead letter refused by Kafka would stop the application over the very record that it is meant to set aside. A dead letter that
is too large is therefore cut: its stack trace first, then its message, then value and headers (the larger first), at last the
key; a header says what was cut. Its timestamp is that of the step, because the record's own may be the cause of the failure;
the record's own is in a header.
"""

from __future__ import annotations

import traceback
from typing import NamedTuple

from state.kafka.topics import wire_size
from streams.model.error_headers import CUT, ERROR_HEADERS
from streams.model.record import Headers

STACK, MESSAGE = ERROR_HEADERS + "stacktrace", ERROR_HEADERS + "message"
_ROOM = 160
"""Bytes reserved for the header that says what was cut."""
_SHORT = 200
"""The least number of bytes of a message that remain."""
_PLACE = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "stage"))


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic: original key and value, original headers and those of the error."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def error_headers(stage: str, place: tuple[str | None, int, int], timestamp: int, error: BaseException) -> Headers:
    """The headers that a dead letter has in addition to its own (KIP-1034, and `timestamp`, `stage`)."""
    fields = {
        "exception": type(error).__qualname__,
        "message": str(error),
        "stacktrace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        "topic": place[0] or "",
        "partition": str(place[1]),
        "offset": str(place[2]),
        "timestamp": str(timestamp),
        "stage": stage,
    }
    return tuple((ERROR_HEADERS + name, text.encode(errors="replace")) for name, text in fields.items())


def fitted(letter: DeadLetter, limit: int) -> DeadLetter:
    """The letter, cut until `wire_size` is within the limit."""
    if wire_size(*letter) <= limit:
        return letter
    return _Cutter(letter, limit - _ROOM).cut()


class _Cutter:
    def __init__(self, letter: DeadLetter, limit: int) -> None:
        self._key, self._value = letter.key, letter.value
        self._own = tuple(one for one in letter.headers if not one[0].startswith(ERROR_HEADERS))
        self._errors = dict(one for one in letter.headers if one[0].startswith(ERROR_HEADERS))
        self._limit = limit
        self._done: list[str] = []

    @property
    def _excess(self) -> int:
        return wire_size(self._key, self._value, (*self._own, *self._errors.items())) - self._limit

    def cut(self) -> DeadLetter:
        # The end of a stack trace shows where the error happened, the beginning of a message what happened.
        self._errors[STACK] = self._shorter("stacktrace", self._errors.get(STACK), end=True)
        self._errors[MESSAGE] = self._shorter("message", self._errors.get(MESSAGE), least=_SHORT)
        if wire_size(None, None, self._own) > wire_size(None, self._value):
            self._drop_headers()
        self._value = self._shorter("value", self._value)
        self._drop_headers()
        self._key = self._shorter("key", self._key)
        if self._excess > 0:
            self._errors = {name: data for name, data in self._errors.items() if name in _PLACE}
        note = (CUT, ", ".join(self._done).encode())
        return DeadLetter(self._key, self._value, (*self._own, *self._errors.items(), note))

    def _drop_headers(self) -> None:
        if self._excess > 0 and self._own:
            self._done.append("headers")
            self._own = ()

    def _shorter(self, what: str, data: bytes | None, least: int = 0, end: bool = False) -> bytes | None:
        excess = self._excess
        if excess <= 0 or not data or len(data) <= least:
            return data
        self._done.append(f"{what} of {len(data)} bytes")
        size = max(least, len(data) - excess)
        return data[len(data) - size :] if end else data[:size]
