"""JSON whose integers are exact, whatever their size: msgspec reads it, orjson writes it.

orjson reads an integer beyond 64 bits as a float, and cannot write one. msgspec reads such integers exactly, in the same time.
orjson's notation is kept, because equal values must have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import orjson

read: Final = msgspec.json.Decoder().decode
"""Returns the value of a JSON text. Raises one of `UNREADABLE` if the text is not JSON."""
UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)


def write(value: Any, default: Callable[[Any], Any] | None = None, option: int = 0) -> bytes:
    """Returns the text of a value, with the arguments of `orjson.dumps`. Raises `TypeError` for values that are not JSON."""
    try:
        return orjson.dumps(value, default, option)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
    converted = None if default is None else lambda one: _in_pieces(default(one))
    return orjson.dumps(_in_pieces(value), converted, option)


def _in_pieces(value: Any) -> Any:
    """Replaces each large integer in a value by a piece of text."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else orjson.Fragment(str(value))
    if isinstance(value, dict):
        return {str(key) if type(key) is int else key: _in_pieces(part) for key, part in value.items()}
    return list(map(_in_pieces, value)) if type(value) in (list, tuple) else value
