"""An hour of curves: what a point has, what is remembered of trouble, and how much memory it takes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from state.errors import KafkaClientError
from state.kafka.error_mapping import timed_out
from streams.metrics.application import PartitionMetrics, SubTopologyMetrics, TaskMetrics
from streams.ui.curves import POINT_MS, POINTS, FigureCurve, Trouble
from streams.ui.pulse import LATE_S, Pulse


def sub(read: int, end: int | None, dead: int = 0, failed: int = 0, partitions: int = 1) -> SubTopologyMetrics:
    places = {("in", n): PartitionMetrics(read, None if end is None else end + n) for n in range(partitions)}
    return SubTopologyMetrics(
        1,
        ("in",),
        counters={"dead_letters:processing": dead},
        tasks={0: TaskMetrics(failed_attempts=failed)},
        partitions=places,
    )


def add(curve: FigureCurve, at_ms: int, one: SubTopologyMetrics) -> None:
    place = one.partitions["in", 0]
    curve.add(at_ms, one, (place.position, place.end), lambda: (5.0, 9.0))


def test_a_point_has_the_rates_and_counts_since_the_one_before() -> None:
    curve = FigureCurve()
    add(curve, 0, sub(0, 100))
    add(curve, 5_000, sub(500, 600))
    add(curve, POINT_MS, sub(1_000, 1_300, dead=3))
    add(curve, 2 * POINT_MS, sub(2_000, None, dead=5, failed=1))
    found = curve.as_json
    assert found["at"] == [10_000, 20_000]
    assert found["records_per_s"] == [100, 100]
    assert found["arriving_per_s"] == [120, None]
    # A lag that cannot be asked is unknown, not the last one.
    assert found["lag_records"] == [300, None]
    assert found["partitions"] == [{"topic": "in", "partition": 0, "lag_records": [300, None]}]
    assert (found["dead_letters"], found["failed_attempts"]) == ([3, 2], [0, 1])
    assert found["visible_after_p99_ms"] == [9.0, 9.0]


def test_trouble_is_news_for_ten_minutes() -> None:
    curve = FigureCurve()
    add(curve, 0, sub(0, 0))
    add(curve, POINT_MS, sub(0, 0, dead=2))
    # Three more since the last point.
    assert curve.trouble(15_000, sub(0, 0, dead=5)) == Trouble(5, 0)
    add(curve, 2 * POINT_MS, sub(0, 0, dead=5))
    assert curve.trouble(610_000, sub(0, 0, dead=5)) == Trouble(3, 0)
    assert curve.trouble(700_000, sub(0, 0, dead=5)) == Trouble()


def test_an_hour_is_kept_and_the_partitions_that_are_furthest_behind_are_shown() -> None:
    curve = FigureCurve()
    for number in range(POINTS + 50):
        add(curve, number * POINT_MS, sub(0, 10, partitions=300))
    found = curve.as_json
    assert len(found["at"]) == POINTS
    assert len(found["partitions"]) == 32
    assert found["partitions"][0]["partition"] == 255


def test_the_pulse_says_for_how_long_the_brokers_are_silent() -> None:
    now, answers = [100.0], [True]

    def ask() -> None:
        if not answers[0]:
            raise KafkaClientError("away", timed_out("no answer"))

    pulse = Pulse(ask, lambda: None, lambda: now[0])
    pulse._looked = 100.0
    pulse.turn()
    assert pulse.silent_s() is None
    answers[0] = False
    for now[0] in (102.0, 104.0, 107.0):
        pulse.look()
        pulse.turn()
    assert pulse.silent_s() == 5.0
    answers[0] = True
    pulse.turn()
    assert pulse.silent_s() is None


def test_the_first_look_waits_for_an_answer_and_says_that_none_came() -> None:
    never = threading.Event()
    with Pulse(lambda: never.wait(20) and None, lambda: None) as pulse:
        assert pulse.look() == pytest.approx(1.5, abs=0.6)
        assert LATE_S > 1.5
    never.set()


def test_nobody_asks_while_nobody_looks() -> None:
    asked: list[float] = []
    now = [0.0]
    pulse = Pulse(lambda: asked.append(now[0]), lambda: None, lambda: now[0])
    pulse._looked = 0.0
    for now[0] in (2.0, 8.0, 14.0):
        pulse.turn()
    assert asked == [2.0, 8.0]


def test_lags_of_new_partitions_have_no_past() -> None:
    curve = FigureCurve()
    add(curve, 0, sub(0, 0))
    add(curve, POINT_MS, sub(0, 7))
    grown = sub(0, 7)
    add(curve, 2 * POINT_MS, replace(grown, partitions={**grown.partitions, ("in", 1): PartitionMetrics(0, 9)}))
    assert curve.as_json["partitions"][0] == {"topic": "in", "partition": 1, "lag_records": [None, 9]}
