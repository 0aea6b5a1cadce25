"""Ranges of keys: where their rows are in a store, which sorts the bytes of keys, and which ranges are refused.

A range is in the order of the keys. For texts (code points), bytes, UUIDs and booleans, the bytes sort as the keys do. The number
serdes write Java's bytes: negative numbers come after the others, negative floats with the largest first. Their ranges are read as
two, one on each side of zero. All other bytes (JSON, tuples, Avro) do not sort as the keys do: 10 comes before 9, and "New York"
before "New", because of the quote. A range with such a bound is refused (`KeyOrderError`) instead of missing rows. Dates and UUIDs
in JSON all have one length, so they sort. For a user's serde, the order of keys is the order of its bytes.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from streams.errors import KeyOrderError
from streams.serdes.base import Serde, shown
from streams.serdes.by_type import DerivedSerde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    ListSerde,
    TupleSerde,
)
from streams.serdes.registry import RegistrySerde
from streams.serdes.wrappers import (
    CustomWindowedSerde,
    SessionWindowedSerde,
    TimeWindowedSerde,
    VersionedSerde,
)

_SIGN = 0x80
_UNSORTED = (
    ListSerde,
    TupleSerde,
    RegistrySerde,
    CustomWindowedSerde,
    SessionWindowedSerde,
    TimeWindowedSerde,
    VersionedSerde,
)


class KeySpan(NamedTuple):
    """A range of rows that are adjacent in a store.

    Attributes:
        lower: The smallest bytes of their keys, inclusive; None: no bound.
        upper: The largest bytes of their keys, inclusive; None: no bound.
        backwards: Whether to read the largest bytes first.
    """

    lower: bytes | None
    upper: bytes | None
    backwards: bool


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """The order of keys, by their bytes.

    Attributes:
        size: The length in bytes, if keys are numbers; 0: the bytes sort as the keys do.
        floating: Whether the numbers are floats.
    """

    size: int = 0
    floating: bool = False

    def rank(self, key: bytes) -> bytes:
        """The rank of a key: bytes that sort as the keys do."""
        if not self.size:
            return key
        return self._inverted(key) if self.floating and key[0] & _SIGN else _other_sign(key)

    def key_of(self, rank: bytes) -> bytes:
        """The bytes of the key that has a rank."""
        if not self.size:
            return rank
        return _other_sign(rank) if not self.floating or rank[0] & _SIGN else self._inverted(rank)

    def spans(self, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> list[KeySpan]:
        """The ranges in a store of the rows with keys from `lower` to `upper`, both inclusive, in the order of the keys."""
        if not self.size:
            return [KeySpan(lower, upper, reverse)]
        first = bytes(self.size) if lower is None else self.rank(self._zero(lower, _SIGN))
        last = b"\xff" * self.size if upper is None else self.rank(self._zero(upper, 0))
        zero, below = bytes((_SIGN,)) + bytes(self.size - 1), bytes((_SIGN - 1,)) + b"\xff" * (self.size - 1)
        parts = [(first, min(last, below)), (max(first, zero), last)]
        return [self._span(low, high, reverse) for low, high in (parts[::-1] if reverse else parts) if low <= high]

    def _span(self, first: bytes, last: bytes, reverse: bool) -> KeySpan:
        low, high = self.key_of(first), self.key_of(last)
        return KeySpan(low, high, reverse) if low <= high else KeySpan(high, low, not reverse)

    def _zero(self, bound: bytes, sign: int) -> bytes:
        """A bound with the given sign if it is zero: 0.0 and -0.0 are the same number, and a range includes both."""
        is_zero = self.floating and not any(bound[1:]) and not bound[0] & ~_SIGN
        return bytes((sign,)) + bound[1:] if is_zero else bound

    def _inverted(self, data: bytes) -> bytes:
        return bytes(0xFF ^ byte for byte in data)


def _other_sign(data: bytes) -> bytes:
    return bytes((data[0] ^ _SIGN,)) + data[1:]


_BYTES = KeyOrder()
_NUMBERS: dict[type, KeyOrder] = {
    Int16Serde: KeyOrder(2),
    Int32Serde: KeyOrder(4),
    Int64Serde: KeyOrder(8),
    Float32Serde: KeyOrder(4, floating=True),
    Float64Serde: KeyOrder(8, floating=True),
}


def key_order(serde: Serde[Any]) -> KeyOrder:
    """The order of the keys of a serde."""
    if isinstance(serde, DerivedSerde):
        return key_order(serde.taken())
    return _NUMBERS.get(type(serde), _BYTES)


def check_bound(serde: Serde[Any], key: Any, store: str) -> None:
    """Checks that bytes sort as keys do, so that a key can be the bound of a range.

    Args:
        serde: The keys' serde.
        key: The bound.
        store: The store's name in the error.

    Raises:
        KeyOrderError: The bytes do not sort as the keys do, or the bound is NaN.
    """
    if isinstance(serde, DerivedSerde):
        check_bound(serde.taken(), key, store)
    elif isinstance(serde, _UNSORTED) or (isinstance(serde, JsonSerde) and not _sorts_as_json(key)):
        raise KeyOrderError(
            f"{store} cannot give a range of keys with the bound {shown(key)}: its keys are bytes of {serde!r}, which do not sort "
            f"as the keys do, so rows would be missing.{_cure(key)} Or read all rows and choose, or scan a prefix of the bytes."
        )
    elif type(serde) in _NUMBERS and isinstance(key, float) and math.isnan(key):
        raise KeyOrderError(f"{store} cannot give a range of keys with the bound NaN: no number is above or below it.")


def _sorts_as_json(key: Any) -> bool:
    return isinstance(key, uuid.UUID) or (isinstance(key, date) and not isinstance(key, datetime))


def _cure(key: Any) -> str:
    if isinstance(key, str):
        return " Keys of StringSerde() do."
    is_number = isinstance(key, int | float) and not isinstance(key, bool)
    return " Keys of a number serde, such as Int64Serde(), do." if is_number else ""
