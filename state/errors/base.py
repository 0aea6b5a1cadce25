"""The root of all errors, and the four kinds of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any


class ErrorKind(str, Enum):
    """Who can do something about an error, so that a supervisor may act on it without reading the message."""

    CONFIGURATION = "configuration"
    """A person: the program, a setting, a topic, a right or the checkpoint must change before another start helps."""
    DATA = "data"
    """What was read does not fit: a record, a row of state, a log that has lost records."""
    TRANSIENT = "transient"
    """Nobody: the same call may succeed later (a broker is away, another attempt still holds the store)."""
    BUG = "bug"
    """The engine's developers: calls in an order that the engine itself must never make."""


class StreamsError(Exception):
    """Root of all errors of the engine.

    Attributes:
        kind: Who can do something about it.
    """

    kind: ErrorKind = ErrorKind.CONFIGURATION

    @property
    def transient(self) -> bool:
        """Whether the same may succeed later without anybody's doing: a broker is away, a leader is being elected."""
        return self.kind is ErrorKind.TRANSIENT

    def __reduce__(self) -> tuple[Callable[..., StreamsError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[StreamsError], args: tuple[Any, ...], attributes: dict[str, Any]) -> StreamsError:
    """Unpickle: constructors take the parts of a message, `args` holds the message itself, so `__init__` is not run."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
