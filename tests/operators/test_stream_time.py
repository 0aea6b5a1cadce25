"""Stream time of operators, their own and one that several share."""

from __future__ import annotations

from typing import Any

import pytest

from streams.model.record import NO_TIME
from streams.operators.stream_time import SharedStreamTime, StreamTime


def test_it_is_the_largest_timestamp_and_never_goes_back() -> None:
    time = StreamTime({})
    assert [time.observe(timestamp) for timestamp in (5, 3, 9, 9, 0)] == [5, 5, 9, 9, 9]


def test_it_goes_on_where_its_state_was_left() -> None:
    state: dict[str, Any] = {}
    StreamTime(state).observe(7)
    assert StreamTime(state).now == 7


def test_before_the_first_record_there_is_none_and_idle_time_gives_none() -> None:
    state: dict[str, Any] = {}
    time = StreamTime(state)
    assert (time.now, time.advance(100, 1000), state) == (NO_TIME, NO_TIME, {})


@pytest.mark.parametrize(("elapsed", "limit", "then"), [(10, 100, 15), (10, 12, 12), (10, 3, 5)])
def test_idle_time_moves_it_on_as_far_as_the_limit_and_never_back(elapsed: int, limit: int, then: int) -> None:
    time = StreamTime({})
    time.observe(5)
    assert time.advance(elapsed, limit) == then == time.now


def test_the_last_of_several_sides_gets_the_least_limit_of_all() -> None:
    state: dict[str, Any] = {}
    left, right = SharedStreamTime(state, 2), SharedStreamTime(state, 2)
    left.observe(1)
    assert (left.common_limit(50), right.common_limit(80)) == (None, 50)
    assert (left.common_limit(90), right.common_limit(80)) == (None, 80)


def test_sides_without_a_record_get_no_limit() -> None:
    state: dict[str, Any] = {}
    sides = [SharedStreamTime(state, 2), SharedStreamTime(state, 2)]
    assert [side.common_limit(5) for side in sides] == [None, None]
