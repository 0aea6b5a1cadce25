"""Records that an aggregate refuses: the others have one result, however they come into steps, and in every kind of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    Consumed,
    EmitStrategy,
    JsonSerde,
    KGroupedStream,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    agg,
    col,
)
from streams.testing import TopologyTestDriver
from tests.both_ways import quietly
from tests.budget import up_to

SHAPES: dict[str, Any] = {
    "over all time": lambda grouped: grouped,
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 50)),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 50).advance_by(4)),
    "on close": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 50)).emit_strategy(
        EmitStrategy.on_window_close()
    ),
    "calendar": lambda grouped: grouped.windowed_by(CalendarWindows.of("day", "UTC", grace=50)),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(6, 50)),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(3, 50)),
}
VALUES = (1, 2, -7, 0.5, 2**63, 10**30, -(10**30), 10**310, 1.7e308, -1.7e308, "text", "b", True, None, [1])
"""Numbers, some of which overflow together, and what is none."""
FUNCTIONS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Texts that a function in front makes numbers of."""


class WholeRecords(JsonSerde):
    """Not exactly `JsonSerde`, so values are read whole and aggregated record by record."""


@dataclass(frozen=True)
class Way:
    """How the records are processed: together or one by one, over columns or records, with or without a cache."""

    together: bool
    columns: bool
    caching: bool


WAYS = [Way(True, True, True), Way(False, True, True), Way(True, False, False), Way(False, False, True)]


KINDS = [("sum", "mean", "last"), ("min", "first"), ("max",)]


def played(shape: str, way: Way, records: Sequence[tuple[str, Any, int]], kinds: Sequence[str], in_front: bool) -> Any:
    """The last result of each key, and how many records have failed; the last record of all closes the windows."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(value_serde=JsonSerde() if way.columns else WholeRecords()))
    if in_front:
        stream = stream.map_values(
            lambda value: {"x": FUNCTIONS.get(value["x"], value["x"]) if type(value["x"]) is str else value["x"]}
        )
    grouped: KGroupedStream[Any, Any] = stream.group_by_key()
    how = Materialized("s", caching=way.caching)
    wanted = {kind: getattr(agg, kind)("x") for kind in kinds}
    table = SHAPES[shape](grouped).aggregate(**wanted, product=agg.last(col("y") * 2), n=agg.count(), materialized=how)
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False, processing="skip") as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        with driver.batch() if way.together else nullcontext():
            for number, (key, value, time) in enumerate(records):
                topic.pipe_input(key, {"x": value, "y": number + 2**62}, time)
                if not way.together and number % 3 == 2:
                    driver.restart()
        topic.pipe_input("end", {"x": 1}, 200_000_000)
        found = driver.create_output_topic("out").read_key_values_to_map()
        return {key: value for key, value in found.items() if value is not None}, driver.dropped("processing")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@up_to(10)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from((*VALUES, *FUNCTIONS)), st.integers(0, 40)), max_size=10),
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_the_others_have_one_result_whatever_the_steps(shape, records, kinds, in_front):
    with quietly():
        first, *others = (played(shape, way, records, kinds, in_front) for way in WAYS)
    assert all(one == first for one in others)


# --- Typed values: times in a smallest and a largest value, and objects in a last one, are what JSON has, in each step.


@dataclass
class Place:
    name: str
    since: datetime


@dataclass
class Visit:
    at: datetime
    place: Place | None = None


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_times_and_objects_of_typed_values(shape, together, caching):
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(value_serde=JsonSerde(Visit))).group_by_key()
    table = SHAPES[shape](grouped).aggregate(
        first=agg.min("at"),
        last=agg.max(col("at")),
        where=agg.last("place"),
        n=agg.count(),
        materialized=Materialized("s", caching=caching),
    )
    table.to_stream().filter(lambda key, value: value is not None and value["n"] == 3).map_values(str).to("out")
    early = datetime(2026, 1, 1, tzinfo=timezone.utc)
    at = [early.astimezone(timezone(timedelta(hours=5))) + timedelta(hours=1), early, early + timedelta(minutes=5)]
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde(Visit))
        with driver.batch() if together else nullcontext():
            for time, moment in enumerate(at):
                topic.pipe_input("a", Visit(moment, Place("x", early)), time)
        topic.pipe_input("b", Visit(early), 200_000_000)
        place = {"name": "x", "since": "2026-01-01T00:00:00+00:00"}
        times = {"first": "2026-01-01T00:00:00+00:00", "last": "2026-01-01T06:00:00+05:00"}
        assert driver.create_output_topic("out").read_values_to_list() == [str({**times, "where": place, "n": 3})]
