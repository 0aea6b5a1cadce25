"""What `streams check` says to write for a generated name, and that this ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import Grouped, JoinWindows, KTable, StreamJoined, StreamsBuilder, Suppressed, TimeWindows
from streams.topology.lint import Level, lint

Define = Callable[[StreamsBuilder, dict[str, Any]], Any]
WINDOWS = JoinWindows.of_time_difference_with_no_grace(5)


def join(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    return builder.stream("in").join(builder.stream("other"), lambda a, b: a, WINDOWS, **joined)


def join_all(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    others = {"b": builder.stream("other"), "c": builder.stream("third")}
    return builder.stream("in").join_all(others, lambda values: values["b"], WINDOWS, **joined)


def as_of_join(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    return builder.stream("in").as_of_join(builder.stream("other"), lambda a, b: a, within=5, **joined)


def deduplicate(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    return builder.stream("in").deduplicate(5, **named)


def suppress(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    counts: KTable[Any, int] = (
        builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count("counts")
    )
    return counts.suppress(Suppressed.until_window_closes(), **named).to_stream(lambda key, count: key.key)


def foreign_key_join(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    joined = builder.table("in").join(builder.table("other"), lambda v: str(v), lambda a, b: a, **named)
    return joined.to_stream()


def top(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    grouped = builder.table("in").group_by(lambda k, v: (str(v), v), Grouped("by-value"))
    return grouped.top(2, by=lambda v: v, **named).to_stream()


NAMED, JOINED = {"named": "given"}, {"joined": StreamJoined(name="given")}
CASES: list[tuple[Define, str, dict[str, Any]]] = [
    (join, "join(..., StreamJoined(name='...'))", JOINED),
    (join_all, "join_all(..., StreamJoined(name='...'))", JOINED),
    (as_of_join, "as_of_join(..., StreamJoined(name='...'))", JOINED),
    (deduplicate, "deduplicate(..., named='...')", NAMED),
    (suppress, "suppress(..., named='...')", NAMED),
    (foreign_key_join, "join(..., named='...')", NAMED),
    (top, "top(..., named='...')", NAMED),
]


def problems(define: Define, options: dict[str, Any]) -> list[str]:
    builder = StreamsBuilder()
    define(builder, options).to("out")
    return [one.says for one in lint(builder.build()) if one.level is Level.PROBLEM]


@pytest.mark.parametrize(("define", "advice", "followed"), CASES)
def test_a_generated_name_comes_with_the_option_of_its_operator(
    define: Define, advice: str, followed: dict[str, Any]
) -> None:
    found = problems(define, {})
    assert found
    assert [says for says in found if not says.endswith(f"as in {advice}")] == []


@pytest.mark.parametrize(("define", "advice", "followed"), CASES)
def test_the_option_that_is_named_ends_the_problem(define: Define, advice: str, followed: dict[str, Any]) -> None:
    assert problems(define, followed) == []
