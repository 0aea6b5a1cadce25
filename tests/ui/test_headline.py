"""The sentence at the top of the page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.metrics.application import ApplicationMetrics, Readiness, StoreRestore, SubTopologyMetrics
from streams.metrics.recorder import START, MetricsRecorder
from streams.ui.curves import Trouble
from streams.ui.headline import Throughput, headline

RUNNING = Readiness(True, True, "app is running")
LIVE = Throughput(20_150.4, 20_000, 1_204, 60, (62.0, 131.4), 70)


def app(readiness: Readiness = RUNNING, **subs: SubTopologyMetrics) -> ApplicationMetrics:
    return ApplicationMetrics("app", 100_000, 0, readiness, subs)


def test_an_application_that_keeps_up() -> None:
    found = headline(app(), {"sub": LIVE}, {})
    assert (found.state, found.level) == ("RUNNING", "ok")
    assert (
        found.sentence == "20,150 records read/s · visible after 62 ms (p50), 131 ms (p99) · lag 1,204 records, 60 ms"
    )


def test_one_that_is_behind_says_when_it_will_have_caught_up() -> None:
    found = headline(app(), {"sub": Throughput(30_000, 20_000, 140_000, 7_000, (7_100.0, 7_300.0))}, {})
    assert found.level == "busy"
    assert found.sentence.endswith("lag 140,000 records, 7.0 s · caught up in 14 s")
    assert found.pace.caught_up_in_s == 14


def test_only_a_lag_that_has_grown_for_a_minute_is_bad() -> None:
    slower = Throughput(309, 310, 18, 2_100)
    assert headline(app(), {"sub": slower}, {}).level == "ok"
    behind = replace(slower, lag=140_000, lag_ms=7_000)
    assert headline(app(), {"sub": behind}, {}).level == "busy"
    found = headline(app(), {"sub": replace(behind, falls_behind=True)}, {})
    assert found.level == "bad"
    assert found.sentence.endswith("falling behind for a minute: 310 records/s arrive")
    # Three micro-batches are no lag, however long they take.
    assert headline(app(), {"sub": replace(behind, falls_behind=True, usual_ms=2_500)}, {}).level == "ok"


def test_dead_letters_and_failed_attempts_come_first() -> None:
    found = headline(app(), {"sub": LIVE}, {}, Trouble(119, 1))
    assert (found.state, found.level) == ("RUNNING", "busy")
    assert found.sentence.startswith(
        "119 dead letters and 1 failed attempt in the last 10 min · 20,150 records read/s · "
    )


def test_nothing_is_green_while_the_brokers_are_silent() -> None:
    found = headline(app(), {"sub": LIVE}, {}, silent_s=8.2)
    assert (found.state, found.level) == ("WAITING", "bad")
    assert found.sentence == "no answer from the brokers for 8.2 s: the figures are from before"


def test_records_of_long_ago_have_no_waiting_time() -> None:
    found = headline(app(), {"sub": Throughput(10, 0, 0, 0, None, 3 * 3_600_000)}, {})
    assert found.sentence == "10 records read/s · event time is 3 h behind the clock · nothing left to read"


def test_event_times_of_old_input_say_nothing_about_the_application() -> None:
    found = headline(app(), {"sub": Throughput(10, 0, 0, 0, None, 30 * 86_400_000)}, {})
    assert found.sentence == "10 records read/s · nothing left to read"


def test_the_whole_has_the_sums_and_the_slowest() -> None:
    found = headline(app(), {"one": LIVE, "other": Throughput(100, 100, 6, 900, (500.0, 800.0), 10)}, {}).pace
    assert (found.records_per_s, found.lag, found.lag_ms) == (20_250.4, 1_210, 900)
    assert (found.visible_ms, found.event_time_lag_ms) == ((500.0, 800.0), 70)


@pytest.mark.parametrize(
    ("obstacles", "state", "level"),
    [
        ({START: "the application is starting"}, "STARTING", "busy"),
        ({"broker": "the broker at x does not answer"}, "WAITING", "bad"),
        ({"query sub": "sub has failed and starts again", START: "starting"}, "WAITING", "bad"),
        ({"stop": "the application is stopping"}, "STOPPING", "busy"),
    ],
)
def test_what_keeps_it_from_working_is_the_sentence(obstacles: dict[str, str], state: str, level: str) -> None:
    recorder = MetricsRecorder("app")
    recorder.obstacle(START, None)
    for name, why in obstacles.items():
        recorder.obstacle(name, why)
    found = headline(recorder.snapshot(), {}, {})
    assert (found.state, found.level) == (state, level)
    assert found.sentence == "; ".join(obstacles.values())


def test_a_start_that_restores_says_how_far_it_is() -> None:
    recorder = MetricsRecorder("app")
    recorder.starting("sub", 1, ("in",))
    recorder.begun("sub")
    recorder.restoring("sub", 0, "counts", StoreRestore(200, 100))
    found = headline(recorder.snapshot(), {}, {})
    assert found.state == "RESTORING"
    assert "50 % of 200 changelog offsets" in found.sentence


def test_an_error_and_a_pause() -> None:
    failed = headline(app(Readiness(False, False, "app has ended with an error: no luck")), {}, {})
    assert (failed.state, failed.level, failed.sentence) == ("FAILED", "bad", "app has ended with an error: no luck")
    paused = headline(app(), {"sub": LIVE}, {"sub": 40_000})
    assert (paused.state, paused.sentence) == ("PAUSED", "sub is paused for 60 s · lag 1,204 records, 60 ms")
    assert headline(app(), {}, {None: 40_000}).sentence.startswith("everything is paused")


def test_waiting_times_of_live_steps_are_an_upper_bound() -> None:
    found = headline(app(), {"one": Throughput(10.0, 10.0, 0, 0, (62.0, 131.0), at_most=True)}, {})
    assert (
        found.sentence == "10 records read/s · visible after at most 62 ms (p50), 131 ms (p99) · nothing left to read"
    )
