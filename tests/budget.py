"""How much the tests search: an eighth of the examples and of the seeds in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

PART = 8
LEAST = 5

# A wider search, and another one each time: STREAMS_PROPERTY_EXAMPLES=2000.
_ASKED = os.environ.get("STREAMS_PROPERTY_EXAMPLES")
# Otherwise always the same examples, so that a run that passes passes again; and no clocks, for a busy machine is no failure.
_COMMON = settings(
    deadline=None,
    derandomize=_ASKED is None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
_ALL = int(_ASKED) if _ASKED else 100
settings.register_profile("part", _COMMON, max_examples=_ALL // PART)
settings.register_profile("all", _COMMON, max_examples=_ALL)
settings.load_profile("part")


def search_all() -> None:
    """What is collected from now on searches as in `make test-long`."""
    settings.load_profile("all")


def share(number: int) -> int:
    """How many of `number` cases are searched now."""
    if _ASKED:
        return int(_ASKED)
    return number if settings.get_current_profile_name() == "all" else min(number, max(number // PART, LEAST))


def up_to(number: int, **others: Any) -> settings:
    """The settings of a property: at most `number` examples; in `make test`, its share of them."""
    return settings(max_examples=share(number), **others)


def seeds(numbers: Iterable[int], least: int = 1) -> list[Any]:
    """Seeds for `parametrize`: all behind the first eighth, or behind the first `least`, are marked `long`."""
    all_of_them = list(numbers)
    first = max(len(all_of_them) // PART, least)
    return [*all_of_them[:first], *(pytest.param(seed, marks=pytest.mark.long) for seed in all_of_them[first:])]
