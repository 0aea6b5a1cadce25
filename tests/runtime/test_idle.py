"""When a task is idle, and how its settings are checked."""

from typing import Any

import pytest

from streams.application.prepare import Application
from streams.config import StreamsConfig, load_config
from streams.dsl.builder import StreamsBuilder
from streams.engine.task.task import idle_ms
from streams.errors import ConfigError
from streams.topology.plan import build_plan


def steps(*given: tuple[int, str, bool], timeout_ms: int = 50) -> list[int]:
    """What each step (its time, the start, busy or not) moves event time by."""
    state: dict[str, Any] = {}
    return [idle_ms(state, timeout_ms, now, start, busy) for now, start, busy in given]


def test_counts_from_the_last_busy_step() -> None:
    assert steps((0, "a", True), (30, "a", True), (79, "a", False), (80, "a", False), (81, "a", False)) == [
        0,
        0,
        0,
        50,
        1,
    ]


def test_waits_anew_behind_records() -> None:
    assert steps((0, "a", True), (60, "a", False), (70, "a", True), (119, "a", False), (125, "a", False)) == [
        0,
        60,
        0,
        0,
        55,
    ]


def test_each_start_counts_from_its_first_step() -> None:
    assert steps((0, "a", True), (60, "a", False), (1000, "b", False), (1049, "b", False), (1050, "b", False)) == [
        *(0, 60, 0, 0, 50)
    ]


def test_a_repeated_step_and_a_clock_set_back_add_nothing() -> None:
    assert steps((0, "a", True), (60, "a", False), (60, "a", False), (40, "a", False), (70, "a", False)) == [
        0,
        60,
        0,
        0,
        10,
    ]


def config(**settings: Any) -> StreamsConfig:
    return load_config(options={"application_id": "app", **settings})


def test_the_settings_reach_the_tasks() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")

    def task_settings(**settings: Any) -> tuple[int | None, int]:
        found = Application(build_plan(builder.build(), "app"), config(**settings), ()).task_settings({})
        return found.idle_timeout_ms, found.emit_interval_ms

    idle = {"idle_timeout_ms": 5000, "wall_clock_interval_ms": 1000}
    assert task_settings() == (None, 0)
    assert task_settings(**idle, mode="compat", emit_interval_ms=1000) == (5000, 1000)
    # A run over what is there has no steps without records.
    assert task_settings(**idle, available_now=True) == (None, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"idle_timeout_ms": 5000}, "wall_clock_interval_ms is not"),
        ({"idle_timeout_ms": 0, "wall_clock_interval_ms": 1000}, "idle_timeout_ms"),
        ({"emit_interval_ms": 1000}, "set mode to compat"),
        ({"emit_interval_ms": -1, "mode": "compat"}, "emit_interval_ms"),
    ],
)
def test_settings_that_could_not_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**settings)
