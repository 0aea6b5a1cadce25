"""Scheduled calls: when they are due, and that restarts change nothing."""

import json

from streams.engine.graph.node import Punctuations


def scheduler(state, now_ms, interval_ms=10, kind="stream_time"):
    punctuations = Punctuations(json.loads(json.dumps(state)), now_ms)
    handle = punctuations.schedule("node", interval_ms, kind, lambda time: None)
    return punctuations, handle


def test_stream_time_fires_with_the_first_record_and_collapses_missed_intervals():
    punctuations, _ = scheduler({}, 0)
    assert [bool(punctuations.due("stream_time", t)) for t in (3, 9, 10, 12, 47, 49, 50)] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


def test_wall_clock_is_first_due_after_one_interval():
    punctuations, _ = scheduler({}, 100, kind="wall_clock")
    assert [bool(punctuations.due("wall_clock", t)) for t in (100, 109, 110, 135, 139, 140)] == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]


def test_restarts_keep_due_times_and_cancellations():
    punctuations, handle = scheduler({}, 0)
    assert punctuations.due("stream_time", 25)
    again, _ = scheduler(punctuations._state, 0)
    assert not again.due("stream_time", 29)
    assert again.due("stream_time", 30)
    handle.cancel()
    assert not scheduler(punctuations._state, 0)[0].due("stream_time", 1000)


def test_after_a_clock_that_was_ahead_the_next_call_is_one_interval_away():
    day = 86_400_000
    ahead, _ = scheduler({}, day, kind="wall_clock")
    assert ahead.due("wall_clock", day + 10)
    right, _ = scheduler(ahead._state, 100, kind="wall_clock")
    assert [bool(right.due("wall_clock", t)) for t in (100, 109, 110, 119, 120)] == [False, False, True, False, True]
    # A step later nothing has moved.
    later, _ = scheduler(right._state, 125, kind="wall_clock")
    assert [bool(later.due("wall_clock", t)) for t in (125, 129, 130)] == [False, False, True]
