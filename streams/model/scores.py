"""The scores that `top` ranks by: numbers, texts, booleans, times, and tuples of these; and their order as bytes.

All scores of a group are of one kind: if they are numbers, a text fails its record. `order_bytes` is exact, even where two numbers
have the same nearest float. The bytes of a score are never a prefix of another score's bytes, so inverting them reverses the order.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeAlias

from streams.errors import RecordError
from streams.wording import described

Kind: TypeAlias = "str | tuple[Kind, ...]"
"""The name of a kind; for a tuple, the kinds of its parts."""

NUMBER: Final = "a number"

_DOUBLE: Final = struct.Struct(">d")
_BITS: Final = 2**64 - 1
_MIDDLE: Final = 1 << 127
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_INVERTED: Final = bytes(range(255, -1, -1))


class Score(NamedTuple):
    """A score that can be ranked.

    Attributes:
        kind: The kind of score; only scores of one kind can be compared.
        value: The number, text or boolean itself, a time in microseconds, or the list of a tuple's scores.
    """

    kind: Kind
    value: Any


def score_of(found: Any) -> Score | None:
    """The score for the result of a user's function; None for None. Raises `RecordError` for a value that cannot be ranked."""
    if type(found) is int or (type(found) is float and not math.isnan(found)):
        return Score(NUMBER, found)
    return None if found is None else _score(found, found)


def _score(part: Any, whole: Any) -> Score:
    if isinstance(part, list | tuple):
        scores = [_score(one, whole) for one in part]
        return Score(tuple(one.kind for one in scores), scores)
    found = _time_score(part) if isinstance(part, date | time | timedelta) else _plain_score(part)
    if found is None:
        of = "" if part is whole else f" with {described(part)} in it"
        raise RecordError(
            f"top ranks by a number, a text, a time (datetime, date, time, timedelta) or a tuple of these, but the score is "
            f"{described(whole)}{of}; None leaves the record out"
        )
    return found


def _plain_score(part: Any) -> Score | None:
    if isinstance(part, bool):
        return Score("a truth value", part)
    if isinstance(part, Integral):
        return Score(NUMBER, int(part))
    if isinstance(part, Real) and not math.isnan(part):
        return Score(NUMBER, float(part))
    if isinstance(part, Decimal) and part.is_finite():
        return Score("a Decimal", part)
    return Score("a text", str.__str__(part)) if isinstance(part, str) else None


def _time_score(part: date | time | timedelta) -> Score:
    if isinstance(part, datetime):
        if part.utcoffset() is not None:
            return Score("a datetime with a zone", (part - _EPOCH) // _MICROSECOND)
        return Score("a datetime without a zone", (part.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND)
    if isinstance(part, date):
        return Score("a date", part.toordinal())
    if isinstance(part, timedelta):
        return Score("a timedelta", part // _MICROSECOND)
    seconds = (part.hour * 60 + part.minute) * 60 + part.second
    offset = part.utcoffset()
    since = timedelta(seconds=seconds, microseconds=part.microsecond) - (offset or timedelta())
    return Score("a time" if offset is None else "a time with a zone", since // _MICROSECOND)


def check_alike(score: Score, other: Score) -> None:
    """Raises `RecordError` if two scores of a group cannot be compared."""
    if not _alike(score.kind, other.kind):
        raise RecordError(
            f"top compares scores of one type, but the score of this record is {_said(score.kind)}, and that of another one in its "
            f"group is {_said(other.kind)}"
        )


def _alike(one: Kind, other: Kind) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_alike, one, other))
    return one == other


def _said(kind: Kind) -> str:
    return f"a tuple of {', '.join(map(_said, kind)) or 'nothing'}" if isinstance(kind, tuple) else kind


def order_bytes(score: Score) -> bytes:
    """Bytes that sort in the order of the scores."""
    if isinstance(score.kind, tuple):
        return bytes([_TUPLE]) + b"".join(map(order_bytes, score.value)) + b"\x00"
    number, write = _KINDS[score.kind]
    return bytes([number]) + write(score.value)


def inverted(data: bytes) -> bytes:
    """Bytes that sort in the reverse order of `data`."""
    return data.translate(_INVERTED)


def ordered(score: float, largest: bool) -> bytes:
    """8 bytes that sort in the order of the floats, beginning with the largest if `largest`, otherwise with the smallest."""
    (bits,) = struct.unpack(">Q", _DOUBLE.pack(score + 0.0))  # -0.0 becomes 0.0
    bits = bits ^ _BITS if bits >> 63 else bits | 1 << 63
    return struct.pack(">Q", bits ^ _BITS if largest else bits)


def nearest_float(number: float) -> float:
    """The nearest finite float; infinity stays infinite."""
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


def _number(number: float) -> bytes:
    """The bytes of the nearest float, then the difference of an integer from it."""
    near = nearest_float(number)
    rest = number - int(near) if isinstance(number, int) else 0
    size = (rest.bit_length() + 7) // 8
    data = size.to_bytes(4, "big") + abs(rest).to_bytes(size, "big")
    return ordered(near, largest=False) + (b"\x01" + data if rest >= 0 else b"\x00" + inverted(data))


def _decimal(number: Decimal) -> bytes:
    """The bytes of the first digit's exponent, followed by the bytes of the digits."""
    if not number:
        return b"\x01"
    digits = bytes(digit + 1 for digit in number.as_tuple().digits).rstrip(b"\x01")
    data = (number.adjusted() + _MIDDLE).to_bytes(16, "big") + digits + b"\x00"
    return b"\x02" + data if number > 0 else b"\x00" + inverted(data)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _whole(number: int) -> bytes:
    return (number + _MIDDLE).to_bytes(16, "big")


_KINDS: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "a truth value": (1, lambda value: bytes([value])),
    NUMBER: (2, _number),
    "a Decimal": (3, _decimal),
    "a text": (4, _text),
    "a datetime without a zone": (5, _whole),
    "a datetime with a zone": (6, _whole),
    "a date": (7, _whole),
    "a time": (8, _whole),
    "a time with a zone": (9, _whole),
    "a timedelta": (10, _whole),
}
"""Name of a kind -> the first byte, which is part of stored rows, and the function that writes the other bytes."""
_TUPLE: Final = 11
