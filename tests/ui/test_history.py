"""Rates, waiting times and the lag in time, from samples and micro-batches at given moments."""

from __future__ import annotations

import pytest

from streams.logs.events import PAUSED, RESUMED, Events
from streams.metrics.application import MicroBatchFigures
from streams.metrics.recorder import MetricsRecorder
from streams.ui import history as module
from streams.ui.history import RATE_OVER_MS, History, Sample, SubHistory
from tests.metrics.made import step


def sample(at_ms: int, read: int, end: int, **counters: int) -> Sample:
    return Sample(at_ms, 0, 0, 0.0, counters, read, end)


def batch(at_ms: int, began_ms: int | None, newest: int, records: int) -> MicroBatchFigures:
    """A micro-batch of one task that has read records of one partition."""
    figures = step(records_in=records, records_out=0, changelog_records=0, event_times=[("in", 0, newest)])
    return MicroBatchFigures("app", "sub", 0, at_ms, (figures,), began_ms)


def test_rates_are_those_of_the_last_seconds() -> None:
    made = SubHistory()
    for second in range(40):
        made.add(sample(second * 1000, 10 * second if second < 20 else 200, 0))
    assert made.per_s(lambda one: one.read) == 0
    assert made.samples[0].at_ms == 39_000 - RATE_OVER_MS
    made.add(sample(41_000, 300, 0))
    assert made.per_s(lambda one: one.read) == 10
    assert SubHistory().per_s(lambda one: one.read) is None


def test_the_counts_of_an_operator_have_a_rate_of_their_own() -> None:
    made = SubHistory()
    made.add(sample(0, 0, 0, **{"in:join": 10}))
    made.add(sample(2_000, 0, 0, **{"in:join": 50}))
    assert made.per_s(lambda one: one.counters.get("in:join", 0)) == 20
    assert made.per_s(lambda one: one.counters.get("in:other", 0)) == 0


def test_samples_that_come_too_fast_are_left_out() -> None:
    made, now = History(), [0]
    recorder = MetricsRecorder("app", lambda: now[0])
    recorder.starting("sub", 1, ("in",))
    for now[0] in (0, 100, 499, 500, 999, 1_000):
        made.sample(recorder.snapshot())
    with made.reading() as subs:
        assert [one.at_ms for one in subs["sub"].samples] == [0, 500, 1_000]


def test_the_lag_in_time_is_when_the_topics_ended_where_reading_is() -> None:
    made = SubHistory()
    assert made.lag_ms(0) is None
    for second in range(10):
        made.add(sample(second * 1000, 10 * second // 2, 10 * second))
    # 45 records are read; the topics had as many 5 s before now, at the latest look that did not have more.
    assert made.lag_ms(9_000) == 5_000
    made.add(sample(10_000, 100, 100))
    assert made.lag_ms(12_000) == 0


def test_the_lag_in_time_is_unknown_where_the_history_does_not_reach_back() -> None:
    made = SubHistory()
    made.add(sample(0, 5, 1_000))
    assert made.lag_ms(1_000) is None


def test_records_that_came_while_the_micro_batch_before_ran_have_waited_for_it() -> None:
    made = SubHistory()
    made.measured(batch(at_ms=1_000, began_ms=800, newest=790, records=1))
    made.measured(batch(at_ms=1_300, began_ms=1_010, newest=1_000, records=200))
    waits = made.waits_ms(1_300, 0.0, 0.5, 0.99)
    assert waits is not None
    shortest, median, longest = waits
    # The newest came 300 ms before the commit; the first of those that came since 800 about 500 ms before.
    assert shortest == pytest.approx(210, rel=0.02)
    assert 380 <= median <= 410
    assert 460 <= longest <= 500


def test_records_after_a_quiet_time_have_waited_since_they_came() -> None:
    made = SubHistory()
    made.measured(batch(at_ms=1_000, began_ms=900, newest=890, records=1))
    made.measured(batch(at_ms=61_000, began_ms=60_900, newest=60_890, records=50))
    assert made.waits_ms(61_000, 0.5, 0.99) == pytest.approx((110, 110), rel=0.02)


def test_records_of_a_backlog_are_as_old_as_their_timestamps() -> None:
    made = SubHistory()
    made.measured(batch(at_ms=400_000, began_ms=399_000, newest=10_000, records=100))
    made.measured(batch(at_ms=402_000, began_ms=400_010, newest=20_000, records=100))
    waits = made.waits_ms(402_000, 0.0, 0.99)
    assert waits is not None
    assert waits == pytest.approx((382_000, 392_000), rel=0.03)


def test_records_of_another_time_have_no_waiting_time() -> None:
    made = SubHistory()
    made.measured(batch(at_ms=1_000_000, began_ms=999_000, newest=10_000, records=100))
    assert made.waits_ms(1_000_000, 0.5) is None


def test_waiting_times_are_of_the_last_minute_and_without_repeated_steps() -> None:
    made = SubHistory()
    made.measured(batch(at_ms=1_000, began_ms=900, newest=900, records=1))
    assert made.waits_ms(1_000 + module.WAITS_OVER_MS, 0.5) == pytest.approx((100,), rel=0.02)
    assert made.waits_ms(1_001 + module.WAITS_OVER_MS, 0.5) is None
    again = step(decision="skip", event_times=[("in", 0, 5)])
    made.measured(MicroBatchFigures("app", "sub", 1, 100_000, (again,), 99_000))
    assert made.waits_ms(100_000, 0.5) is None


def test_the_memory_of_a_history_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 10)
    made = SubHistory()
    steps = tuple(step(task, event_times=[]) for task in range(4))
    for number in range(20):
        made.measured(MicroBatchFigures("app", "sub", number, number, steps))
    assert [one.batch_id for one in made.micro_batches] == [18, 19]


def test_a_restore_has_a_rate_and_an_end(monkeypatch) -> None:
    from streams.metrics.application import StoreRestore

    now = [1_000]
    recorder, made = MetricsRecorder("app", lambda: now[0]), History()
    recorder.starting("sub", 1, ("in",))
    recorder.begun("sub")
    for at_ms, remaining in ((1_000, 500), (3_000, 300)):
        now[0] = at_ms
        recorder.restoring("sub", 0, "counts", StoreRestore(500, remaining))
        made.sample(recorder.snapshot())
    assert made.restored_per_s("sub", 0, "counts", 3_000, 300) == 100
    recorder.restoring("sub", 0, "counts", StoreRestore(500, 0))
    made.sample(recorder.snapshot())
    assert made.restored_per_s("sub", 0, "counts", 4_000, 0) is None


def test_events_and_pauses_are_kept() -> None:
    made = History()
    events = Events("app", listener=made.happened)
    events.emit(PAUSED, "paused", "sub", since_ms=7)
    assert made.paused_since_ms() == {"sub": 7}
    events.emit(RESUMED, "continues", "sub")
    assert made.paused_since_ms() == {}
    assert [event.name for event in made.events()] == ["paused", "resumed"]


def test_live_reports_are_columns_with_each_task_once() -> None:
    made = SubHistory()
    for second in range(3):
        for task in (0, 1):
            # Three steps of 20 ms of CPU time each; the second task has nothing to do in the second second.
            if (task, second) != (1, 1):
                one = step(task, steps=3, cpu_s=0.06, event_times=[])
                made.measured(MicroBatchFigures("app", "sub", second, 1_000 * second + task, (one,)))
    assert made.live
    columns = [[(one.task, one.steps, one.cpu_ms) for one in column.steps] for column in made.columns(60)]
    assert columns == [[(0, 3, 20.0), (1, 3, 20.0)], [(0, 3, 20.0)], [(0, 3, 20.0), (1, 3, 20.0)]]
    assert [len(column.steps) for column in made.columns(2)] == [1, 2]


def test_micro_batches_stay_apart_whatever_their_tasks() -> None:
    made = SubHistory()
    for number in range(3):
        made.measured(MicroBatchFigures("app", "sub", number, number, (step(number, event_times=[]),)))
    assert not made.live
    assert [column.batch_id for column in made.columns(60)] == [0, 1, 2]


def test_a_lag_that_rises_and_falls_is_not_falling_behind() -> None:
    saw, grows = SubHistory(), SubHistory()
    for second in range(70):
        end = 100 * second
        saw.add(sample(second * 1000, end - 100 * (second % 5), end))
        grows.add(sample(second * 1000, end - 10 * second - 10 * (second % 5), end))
    assert not saw.falls_behind(69_000)
    assert grows.falls_behind(69_000)
    assert not SubHistory().falls_behind(69_000)


def test_a_task_is_busy_while_it_has_steps_and_waits_for_the_rest() -> None:
    made = SubHistory()
    for second in range(1, 11):
        one = step(0, total_s=0.25, cpu_s=0.1, records_in=40, records_out=20)
        steps = (one, step(1, total_s=1.0, cpu_s=0.9)) if second == 1 else (one,)
        made.measured(MicroBatchFigures("app", "sub", second, second * 1000, steps, second * 1000 - 1000))
    work = made.work(10_000)
    assert (work[0].busy, work[0].cpu) == (pytest.approx(0.25), pytest.approx(0.1))
    assert (work[0].in_per_s, work[0].out_per_s) == (40, 20)
    assert work[1].busy == pytest.approx(0.1)
    assert made.usual_ms == 1_000
    # A minute later nothing of it counts.
    assert made.work(100_000) == {}
