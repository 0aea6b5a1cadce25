"""Facts about a serde that need no bytes: whether bytes are written back as they were read, and whether headers matter."""

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
    """Whether each object has only one form in bytes, so that bytes that were read need not be written again.

    JSON, for example, is not exact: the same object may be written with or without spaces.
    """
    return is_a(type(serde), _EXACT)


def always_canonical(serde: Serde) -> bool:
    """Whether a serde has no two notations: all bytes that it reads are exactly the bytes that it writes for the same object."""
    kind = type(serde)
    if is_a(kind, _WINDOWED):
        return always_canonical(cast(Any, serde).inner)
    return is_a(kind, _CANONICAL) or (
        is_a(kind, (TupleSerde,)) and all(map(always_canonical, cast(TupleSerde, serde).entries))
    )


def reads_alone(serde: Serde) -> bool:
    """Whether headers make no difference to a serde, both when it reads and when it writes."""
    return is_a(type(serde), (*_EXACT, JsonSerde))
