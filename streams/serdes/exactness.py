"""What is known of a serde without any bytes: whether they are read and written back as they were, and read without others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
    TupleSerde,
    VoidSerde,
)
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde

_EXACT = (StringSerde, BytesSerde, Int16Serde, Int32Serde, Int64Serde)
_CANONICAL = (*_EXACT, Float64Serde, BooleanSerde, VoidSerde)
_WINDOWED = (TimeWindowedSerde, CustomWindowedSerde, SessionWindowedSerde)


@lru_cache(1024)
def is_a(kind: type, kinds: tuple[type, ...]) -> bool:
    """`issubclass`, which is slow for protocols, as serdes are."""
    return issubclass(kind, kinds)


def is_exact(serde: Serde) -> bool:
    """Whether each object has one form of bytes only, so that bytes once read need not be written again.

    JSON, for example, is not exact: the same object may be written with or without spaces.
    """
    return is_a(type(serde), _EXACT)


def always_canonical(serde: Serde) -> bool:
    """Whether all bytes that a serde reads are the ones that it writes for what it has read: it has no two notations."""
    kind = type(serde)
    if is_a(kind, _WINDOWED):
        return always_canonical(cast(Any, serde).inner)
    return is_a(kind, _CANONICAL) or (
        is_a(kind, (TupleSerde,)) and all(map(always_canonical, cast(TupleSerde, serde).entries))
    )


def reads_alone(serde: Serde) -> bool:
    """Whether a serde reads the same bytes, and writes the same object, in the same way under all headers."""
    return is_a(type(serde), (*_EXACT, JsonSerde))
