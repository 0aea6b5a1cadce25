"""Reads a `Decimal` from the text of a JSON number, so that `0.12345678901234567890` keeps all of its digits.

pydantic reads such a number as a float, but converts a text to a `Decimal` exactly. So numbers that a float would change are put in
quotation marks. This affects only fields of type `Decimal`, because no other type accepts a text instead of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from streams.serdes.read_back import parts_of

_SUSPICIOUS = re.compile(rb"[\d.]{17}|\d[eE]")
"""Numbers with more digits than a float holds, or with an exponent. The test is cheap, and may also match within texts."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)

_Span = tuple[int, int]


def read_decimals(read: Callable[[bytes], Any], data: bytes) -> Any:
    """The result of `read` for a JSON text, in which every `Decimal` is exact. Raises the errors of `read`."""
    value = read(data)
    spans = _changed(data) if _SUSPICIOUS.search(data) else []
    if not spans:
        return value
    exact = _read_quoted(read, data, spans, value)
    if exact is not None:
        return exact
    found, taken = value, list[_Span]()  # one at a time, because some are not read as numbers
    for span in spans:
        exact = _read_quoted(read, data, [*taken, span], value)
        if exact is not None:
            found, taken = exact, [*taken, span]
    return found


def _changed(data: bytes) -> list[_Span]:
    """The positions of the numbers that a float cannot hold."""
    tokens = ((match.span(), match.group()) for match in _TOKEN.finditer(data))
    numbers = (
        (span, text.decode()) for span, text in tokens if not text.startswith(b'"') and not text.lstrip(b"-").isdigit()
    )
    return [span for span, text in numbers if Decimal(text) != Decimal(repr(float(text)))]


def _read_quoted(read: Callable[[bytes], Any], data: bytes, spans: Sequence[_Span], like: Any) -> Any:
    """The value with some numbers in quotation marks; None if these are then not read as numbers."""
    parts, at = [], 0
    for start, end in spans:
        parts += [data[at:start], b'"', data[start:end], b'"']
        at = end
    try:
        value = read(b"".join([*parts, data[at:]]))
    except ValueError:
        return None
    return value if _types(value) == _types(like) else None


def _types(value: Any) -> Any:
    """The types of all parts of a value."""
    if isinstance(value, dict):
        return dict, [(key, _types(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), [_types(part) for part in value]
    parts = parts_of(value)
    return type(value) if parts is None else (type(value), _types(parts))
