"""Records for joins of streams: few keys, equal times, times out of order, null keys and null values."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from streams import JoinWindows
from tests.both_ways import Fed

KEYS = (b"a", b"b", b"ab", b"a", None)
VALUES = (b'{"v":1}', b'{"v": 2}', b'"text"', b"[]", b"3.0", b"null", None)
PARTITIONS = {"left": 2, "right": 2, "out": 2}
KINDS = ("inner", "left", "outer")


def both(key: Any, left: Any, right: Any) -> Any:
    return [key, left, right]


def in_a_list(value: Any) -> Any:
    """A value that a function makes, so that it is an object before it is bytes."""
    return value if value is None else [value, 1]


def feed(
    seed: int, sizes: tuple[int, ...] = (40, 1, 50, 12), late: int = 30, values: tuple[Any, ...] = VALUES
) -> list[list[Fed]]:
    """Steps of records of few keys, with equal times, times out of order, null keys and null values."""
    rng, now = random.Random(seed), 0

    def record() -> Fed:
        nonlocal now
        now += rng.choice((0, 0, 1, 3))
        return Fed(
            rng.choice(("left", "right")),
            rng.choice(KEYS),
            rng.choice(values),
            max(0, now - rng.choice((0, 0, 1, 4, late))),
            rng.choice(((), (), (("h", b"1"),), (("h", None), ("g", b"")))),
            rng.randrange(2),
        )

    return [[record() for _ in range(size)] for size in sizes]


def refuses(key: Any, left: Any, right: Any) -> Any:
    if left == "text" and right in (3.0, None):
        raise ValueError("this pair is refused")
    return [key, left, right]


@st.composite
def windows(draw: Any) -> JoinWindows:
    before = draw(st.integers(-6, 20))
    return JoinWindows(before, draw(st.integers(max(-6, -before), 20)), draw(st.sampled_from((0, 3, 60))))
