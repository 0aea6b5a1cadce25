"""Records for which a join finds nothing on its other side: counted by join, side and reason, in counters and in the state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from streams import JoinWindows, Materialized, StreamsBuilder, StringSerde
from streams.application.rescale.plan import _task_state
from streams.engine.graph.looked_up import STATE, LookedUp, looked_up_by, looked_up_in, note_looked_up
from streams.testing import TopologyTestDriver

Build = Callable[[StreamsBuilder], Any]
ROWS = [("rows", "a", "x", 1)]
RECORDS = [("in", "a", "a", 2), ("in", "b", "q", 3), ("in", None, "a", 4), ("in", "c", "q", 5), ("in", "a", "a", 900)]
WITHIN = JoinWindows.of_time_difference_with_no_grace(10)


def pair(left: Any, right: Any) -> Any:
    return f"{left}{right}"


def with_table(method: str) -> Build:
    return lambda b: getattr(b.stream("in"), method)(b.table("rows", materialized=Materialized("t")), pair)


def with_versioned_table(method: str, **options: Any) -> Build:
    table = Materialized("t", history_retention=10_000)
    return lambda b: getattr(b.stream("in"), method)(b.table("rows", materialized=table), pair, **options)


def with_global_table(method: str) -> Build:
    return lambda b: getattr(b.stream("in"), method)(b.global_table("rows"), lambda key, value: key, pair)


def of_tables(method: str) -> Build:
    return lambda b: getattr(b.table("in"), method)(b.table("rows"), pair).to_stream()


def by_foreign_key(method: str) -> Build:
    def extract(value: str) -> str | None:
        return None if value == "q" else value

    return lambda b: getattr(b.table("in"), method)(b.table("rows"), extract, pair).to_stream()


def of_streams(method: str) -> Build:
    return lambda b: getattr(b.stream("in"), method)(b.stream("rows"), pair, WITHIN)


def as_of(left: bool) -> Build:
    return lambda b: b.stream("in").as_of_join(b.stream("rows"), pair, 20, grace=1, left=left)


def found(build: Build, mode: Any, together: bool) -> dict[str, tuple[int, dict[str, int]]]:
    """The last word of each node's name -> how many records, and the reasons."""
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    build(builder).to("out")
    with TopologyTestDriver(builder.build(), mode=mode) as driver:
        for step in (ROWS, RECORDS):
            with driver.batch() if together else nullcontext():
                for topic, key, value, time in step:
                    driver.create_input_topic(topic).pipe_input(key, value, timestamp=time)
        counted = looked_up_in(driver.counts())
    return {one.node.rpartition("-")[2]: (one.number, dict(one.missing)) for one in counted}


CASES: dict[str, tuple[Build, dict[str, tuple[int, dict[str, int]]]]] = {
    "join": (with_table("join"), {"": (5, {"no_row": 2, "null_key": 1})}),
    "left join": (with_table("left_join"), {"": (5, {"no_row": 2, "null_key": 1})}),
    "versioned": (with_versioned_table("join"), {"": (5, {"no_row": 2, "null_key": 1})}),
    "grace": (with_versioned_table("join", grace=5), {"": (4, {"no_row": 2, "null_key": 1})}),
    "global": (with_global_table("join"), {"": (5, {"no_row": 2, "null_key": 1})}),
    "global left": (with_global_table("left_join"), {"": (5, {"no_row": 2, "null_key": 1})}),
    "streams, inner": (of_streams("join"), {}),
    "streams, left": (of_streams("left_join"), {"merge": (5, {"no_right_record": 2, "null_key": 1})}),
    "streams, outer": (of_streams("outer_join"), {"merge": (6, {"no_right_record": 2, "null_key": 1})}),
    "as-of": (as_of(False), {"merge": (3, {"no_right_record": 2})}),
    "as-of, left": (as_of(True), {"merge": (4, {"no_right_record": 2, "null_key": 1})}),
}


@pytest.mark.parametrize(("mode", "together"), [("strict", False), ("strict", True), ("compat", True)])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_that_looks_up(case: str, together: bool, mode: Any) -> None:
    build, expected = CASES[case]
    counted = found(build, mode, together)
    assert list(counted.values()) == list(expected.values())
    assert not expected or "" in expected or counted == expected


TABLES: dict[str, tuple[Build, dict[str, int]]] = {
    "join": (of_tables("join"), {"no_row": 2}),
    "left join": (of_tables("left_join"), {"no_row": 2}),
    "foreign key": (by_foreign_key("join"), {"null_foreign_key": 2}),
    "foreign key, left": (by_foreign_key("left_join"), {"null_foreign_key": 2}),
}


@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("case", TABLES)
def test_two_tables(case: str, mode: Any) -> None:
    """The row of `rows` was there first, and has found nothing; the other side finds it."""
    build, missing = TABLES[case]
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    build(builder).to("out")
    with TopologyTestDriver(builder.build(), mode=mode) as driver:
        for topic, key, value, time in [*ROWS, *RECORDS]:
            driver.create_input_topic(topic).pipe_input(key, value, timestamp=time)
        driver.create_input_topic("in").pipe_input("b", None, timestamp=1_000)
        counted = {one.node: one for one in looked_up_in(driver.counts())}
    alone = next(one for node, one in counted.items() if node.endswith(("other-join", "foreign-processor")))
    assert (alone.number, alone.found_nothing) == (1, 1)
    mine = next(one for node, one in counted.items() if node.endswith(("this-join", "subscription-registration")))
    assert mine.missing == missing


def test_a_task_adds_them_up_in_its_state() -> None:
    state: dict[str, Any] = {}
    note_looked_up(state, {"in:join": 3})
    assert state == {}
    for counters in ({"looked_up:join": 3, "unmatched:join:no_row": 1}, {"looked_up:join": 1, "in:join": 1}):
        note_looked_up(state, counters)
    assert state == {"task": {STATE: {"join": {"looked_up": 4, "no_row": 1}}}}
    other = {"task": {STATE: {"join": {"looked_up": 6, "null_key": 2}}}}
    assert looked_up_by([state, other, {}]) == [LookedUp("join", 10, {"no_row": 1, "null_key": 2})]


def test_a_rescale_keeps_the_sums_once() -> None:
    parts = [{STATE: {"join": {"looked_up": 4, "no_row": 1}}}, {STATE: {"join": {"looked_up": 6}}}]
    assert [_task_state(parts, task, 2) for task in range(2)] == [{STATE: {"join": {"looked_up": 10, "no_row": 1}}}, {}]


@pytest.mark.parametrize(("number", "missing", "hardly"), [(99, 99, False), (100, 90, False), (100, 91, True)])
def test_hardly_any(number: int, missing: int, hardly: bool) -> None:
    assert LookedUp("join", number, {"no_row": missing}).finds_hardly_any == hardly
