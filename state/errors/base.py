"""The root of all errors, and the four kinds of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any


class ErrorKind(str, Enum):
    """Who can resolve an error, so that a supervisor can act on it without reading the message."""

    CONFIGURATION = "configuration"
    """A person: the program, a setting, a topic, a permission or the checkpoint must change before another start helps."""
    DATA = "data"
    """The data: a record, a row of state, or a log that has lost records does not fit."""
    TRANSIENT = "transient"
    """Time: the same call may succeed later (a broker is away, another attempt still has the store open)."""
    BUG = "bug"
    """The engine's developers: calls in an order that the engine itself must never make."""


class StreamsError(Exception):
    """Root of all errors of the engine.

    Attributes:
        kind: Who can resolve the error.
    """

    kind: ErrorKind = ErrorKind.CONFIGURATION

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later without intervention: a broker is away, a leader is being elected."""
        return self.kind is ErrorKind.TRANSIENT

    def __reduce__(self) -> tuple[Callable[..., StreamsError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[StreamsError], args: tuple[Any, ...], attributes: dict[str, Any]) -> StreamsError:
    """Unpickles an error. `__init__` takes the parts of a message, but `args` holds the message itself, so it is not called."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
