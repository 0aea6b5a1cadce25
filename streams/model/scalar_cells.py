"""Cells of values without parts: how each type of Spark SQL makes a JSON value of a Python value, and reads it back.

Equal values have the same cell, because the cells of a key choose its partition. A value that does not fit its type raises
`TypeError`, `ValueError`, `OverflowError` or `InvalidOperation`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

_INT64 = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60, traps=[InvalidOperation])
_LAST_DIGIT = Decimal("1e-18")

Cell: TypeAlias = Any
"""A value that JSON has: text, number, boolean, None, or a list of these."""


def _text(value: Any) -> Cell:
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, UUID):
        value = str(value)
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate is no text in any file
    return value


def _whole(value: Any) -> Cell:
    number = value.item() if type(value) is not int and hasattr(value, "item") else value
    if type(number) is not int or not -_INT64 <= number < _INT64:
        raise TypeError
    return number


def _number(value: Any) -> Cell:
    number = value.item() if type(value) is not float and hasattr(value, "item") else value
    if type(number) not in (int, float):
        raise TypeError
    return float(number) + 0.0 if math.isfinite(number) else str(float(number))  # -0.0 + 0.0 is 0.0


def _boolean(value: Any) -> Cell:
    found = value.item() if hasattr(value, "item") else value
    if type(found) is not bool:
        raise TypeError
    return found


def _bytes(value: Any) -> Cell:
    return base64.b64encode(memoryview(value)).decode()


def _moment(value: Any) -> Cell:
    """Microseconds since 1970 of a `datetime` (UTC if it names no zone), of ISO 8601 text, or of milliseconds since 1970."""
    if type(value) is int:
        return _whole(value * 1000)
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if not isinstance(value, datetime):
        raise TypeError
    moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // _MICROSECOND


def _day(value: Any) -> Cell:
    """The days since 1970 of a `date`, or of ISO 8601 text."""
    if isinstance(value, str):
        value = date.fromisoformat(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError
    return value.toordinal() - _EPOCH.toordinal()


def _decimal(value: Any) -> Cell:
    if type(value) is bool or not isinstance(value, Decimal | int | str):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite() or number.copy_abs() >= 10**20 or number != number.quantize(_LAST_DIGIT, context=_EXACT):
        raise TypeError
    return f"{_EXACT.add(number, Decimal()).normalize(_EXACT):f}"  # without trailing zeros, and without the sign of -0


def _same(cell: Cell) -> Any:
    return cell


SCALARS: Mapping[str, tuple[Callable[[Any], Cell], Callable[[Cell], Any]]] = {
    "STRING": (_text, _same),
    "BIGINT": (_whole, _same),
    "DOUBLE": (_number, float),
    "BOOLEAN": (_boolean, _same),
    "BINARY": (_bytes, base64.b64decode),
    "TIMESTAMP": (_moment, _same),
    "DATE": (_day, _same),
    "DECIMAL(38,18)": (_decimal, Decimal),
}
"""Name -> what makes a cell of a value, and what reads it."""
