"""A result that a function fails on: its dead letter names the result, and never the record that has moved time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from streams import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from streams.errors import RecordFailedError
from streams.model.record import Windowed
from streams.testing import TopologyTestDriver

TUMBLING = TimeWindows.of_size_with_no_grace(10)
HOPPING = TimeWindows.of_size_with_no_grace(10).advance_by(10)
SLIDING = SlidingWindows.of_time_difference_with_no_grace(10)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(5)
BOUNDS = {"tumbling": (0, 10), "hopping": (0, 10), "sliding": (0, 10), "sessions": (1, 1)}
"""The window of the record at 1."""


def refuse(key: Windowed[str], value: Any) -> Any:
    if key.key in ("a", "c"):
        raise ValueError(f"the result of {key.key}")
    return value


def counted(windows: Any, how: str, **store: Any) -> Topology:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(windows)
    if how == "on close":
        windowed = windowed.emit_strategy(EmitStrategy.on_window_close())
    table = windowed.count(materialized=Materialized("s", **store))
    if how == "suppress":
        table = table.suppress(Suppressed.until_window_closes())
    table.to_stream().map_values(refuse, named="shown").map(lambda key, value: (key.key, value)).to("out")
    return builder.build()


def headers_of(letter: Any) -> dict[str, str]:
    prefix = "__streams.errors."
    return {name.removeprefix(prefix): value.decode() for name, value in letter.headers if name.startswith(prefix)}


def letters_of(driver: TopologyTestDriver) -> list[Any]:
    return driver.create_output_topic("dead").read_records_to_list()


def ways() -> Iterator[Any]:
    kinds = {"tumbling": TUMBLING, "hopping": HOPPING, "sliding": SLIDING, "sessions": SESSIONS}
    for name, windows in kinds.items():
        for how in ("on close", "suppress", "each update"):
            for caching in (True, False) if how != "each update" else (True,):
                yield pytest.param(name, windows, how, caching, id=f"{name}, {how}, {'' if caching else 'no '}cache")


@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("name", "windows", "how", "caching"), list(ways()))
def test_the_result_of_a_window(name: str, windows: Any, how: str, caching: bool, together: bool, mode: Any) -> None:
    topology = counted(windows, how, caching=caching)
    with TopologyTestDriver(topology, processing="dlq", dead_letter_topic="dead", mode=mode) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch() if together else nullcontext():
            for key, time in (("a", 1), ("c", 2), ("b", 33)):
                topic.pipe_input(key, 1, timestamp=time, headers=(("of", key.encode()),))
        letters = letters_of(driver)
        assert [(letter.key, letter.value) for letter in letters] == [(b"a", None), (b"c", None)]
        for letter, moved in zip(letters, (0, 1), strict=True):
            found = headers_of(letter)
            assert (found["topic"], found["partition"], found["offset"]) == ("", "-1", "-1")
            assert (found["node"], "counted.by" in found) == ("shown", False)
            bounds = BOUNDS[name] if moved == 0 or name != "sessions" else (2, 2)
            if name == "sliding" and moved:
                bounds = (0, 10)
            assert (int(found["window.start"]), int(found["window.end"])) == bounds
            assert found["timestamp"] == str(moved + 1)


@pytest.mark.parametrize("how", ["on close", "suppress"])
@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSIONS])
def test_in_stores_on_disk_and_after_a_restart(windows: Any, how: str) -> None:
    settings: Any = {"processing": "dlq", "dead_letter_topic": "dead"}
    with TopologyTestDriver(counted(windows, how), rocksdb=True, **settings) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, timestamp=1)
        driver.restart()
        topic.pipe_input("b", 1, timestamp=33)
        (letter,) = letters_of(driver)
        assert (letter.key, letter.value, headers_of(letter)["topic"]) == (b"a", None, "")


@pytest.mark.parametrize("how", ["on close", "suppress"])
@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSIONS])
def test_by_idle_time(windows: Any, how: str) -> None:
    settings: Any = {"processing": "dlq", "dead_letter_topic": "dead", "idle_timeout_ms": 50}
    with TopologyTestDriver(counted(windows, how), **settings) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, timestamp=1)
        driver.advance_wall_clock_time(1_000)
        (letter,) = letters_of(driver)
        assert (letter.key, letter.value) == (b"a", None)
        assert {"window.start", "window.end"} <= headers_of(letter).keys()


@pytest.mark.parametrize("how", ["on close", "suppress"])
def test_under_fail_the_error_names_the_window(how: str) -> None:
    with TopologyTestDriver(counted(TUMBLING, how)) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, timestamp=1)
        with pytest.raises(
            RecordFailedError, match="the result of the window from 0 to 10 ms of key b'a' made"
        ) as failed:
            topic.pipe_input("b", 1, timestamp=33)
    assert (failed.value.topic, failed.value.key) == (None, b"a")


def one_table(suppressed: Suppressed) -> Topology:
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().count(materialized=Materialized("s")).suppress(suppressed)

    def refuse_a(key: str, value: Any) -> Any:
        if key == "a":
            raise ValueError("the result of a")
        return value

    table.to_stream().map_values(refuse_a).to("out")
    return builder.build()


def cogrouped() -> Topology:
    builder = StreamsBuilder()
    first, second = (builder.stream(name).group_by_key() for name in ("in", "other"))
    add: Callable[[Any, Any, Any], Any] = lambda key, value, total: total + value  # noqa: E731
    windowed = first.cogroup(add).cogroup(second, add).windowed_by(TUMBLING)
    table = windowed.aggregate(lambda: 0, materialized=Materialized("s")).suppress(Suppressed.until_window_closes())
    table.to_stream().map_values(refuse).map(lambda key, value: (key.key, value)).to("out")
    return builder.build()


@pytest.mark.parametrize(
    "topology",
    [
        one_table(Suppressed.until_time_limit(10)),
        one_table(Suppressed.until_time_limit(1_000, BufferConfig.of_max_records(1))),
        cogrouped(),
    ],
    ids=["time limit", "full buffer", "cogroup"],
)
def test_other_final_results(topology: Topology) -> None:
    with TopologyTestDriver(topology, processing="dlq", dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, timestamp=1)
        topic.pipe_input("b", 1, timestamp=33)
        (letter,) = letters_of(driver)
        assert (letter.key, letter.value, headers_of(letter)["topic"]) == (b"a", None, "")


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_row_of_an_outer_join_that_meets_none(mode: Any) -> None:
    """It is the record that has waited, with its value, and not the one that has moved time."""
    builder = StreamsBuilder()
    within = JoinWindows.of_time_difference_with_no_grace(10)
    joined = builder.stream("left").left_join(builder.stream("right"), lambda left, right: (left, right), within)

    def refuse_first(value: Any) -> Any:
        if value[0] == "first":
            raise ValueError("no partner")
        return value

    joined.map_values(refuse_first).to("out")
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="dead", mode=mode) as driver:
        left = driver.create_input_topic("left")
        left.pipe_input("a", "first", timestamp=1)
        left.pipe_input("b", "second", timestamp=1_000)
        (letter,) = letters_of(driver)
        assert (letter.key, letter.value, headers_of(letter)["topic"]) == (b"a", b'"first"', "")
