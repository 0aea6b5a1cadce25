"""Built-in aggregates of grouped tables give the aggregate of the rows that are there, whatever came and went before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import Aggregate, Materialized, StreamsBuilder, TopologyError, agg, col, fields
from streams.testing import TopologyTestDriver

rows = st.fixed_dictionaries({"team": st.sampled_from(["r", "b", None]), "n": st.none() | st.integers(-(2**70), 2**70)})
updates = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | rows), max_size=12)


def played(records: Sequence[tuple[str, Any]], together: bool, caching: bool) -> dict[str, Any]:
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(col("team"))
    table = grouped.aggregate(
        n=agg.count(),
        known=agg.count("n"),
        sum=agg.sum("n"),
        positive=agg.sum("n", where=col("n") > 0),
        mean=agg.mean(col("n") % 1000),
        materialized=Materialized("teams", caching=caching),
    )
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch() if together else nullcontext():
            for number, (key, value) in enumerate(records):
                topic.pipe_input(key, value, number)
                if not together and number % 4 == 3:
                    driver.restart()
        return driver.create_output_topic("out").read_key_values_to_map()


def expected(records: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    last = dict(records)
    seen = {value["team"] for _, value in records if value is not None and value["team"] is not None}
    found = {}
    for team in seen:
        here = [value["n"] for value in last.values() if value is not None and value["team"] == team]
        known = [one for one in here if one is not None]
        found[team] = {
            "n": len(here),
            "known": len(known),
            "sum": sum(known),
            "positive": sum(one for one in known if one > 0),
            "mean": sum(one % 1000 for one in known) / len(known) if known else None,
        }
    return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(updates, st.booleans(), st.booleans())
def test_the_result_is_that_of_the_rows_that_are_there(records, together, caching):
    found = played(records, together, caching)
    for one in found.values():
        # Without a number the sum is null, or 0 if there was one and rows without are left.
        one["sum"], one["positive"] = one["sum"] or 0, one["positive"] or 0
    # A group that came and went within a step may never have been sent.
    assert {team: one for team, one in found.items() if one["n"]} == {
        team: one for team, one in expected(records).items() if one["n"]
    }


def test_fractions_leave_nothing_behind():
    records = [("a", {"team": "r", "n": 0.1}), ("b", {"team": "r", "n": 0.2}), ("a", None), ("b", None)]
    assert played(records, False, True)["r"] == {"n": 0, "known": 0, "sum": None, "positive": None, "mean": None}


def test_a_row_that_an_aggregate_refuses_is_in_no_group_and_can_leave_it():
    builder = StreamsBuilder()
    builder.table("in").group_by(fields("team")).mean("n").to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        for key, n in (("a", 4), ("b", "text"), ("b", 6), ("a", None)):
            topic.pipe_input(key, {"team": "r", "n": n})
        means = [value["mean"] for value in driver.create_output_topic("out").read_values_to_list()]
        assert (means, driver.dropped("processing")) == ([4.0, 5.0, 6.0], 1)


class Xor(Aggregate):
    def initial(self):
        return 0

    def add(self, accumulator, value):
        return accumulator ^ value

    def remove(self, accumulator, value):
        return accumulator ^ value

    def merge(self, earlier, later):
        return earlier ^ later


def test_an_aggregate_of_a_users_own_that_takes_values_back():
    builder = StreamsBuilder()
    builder.table("in").group_by(col("team")).aggregate(x=Xor("n")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for key, n in (("a", 4), ("b", 7), ("a", 1)):
            topic.pipe_input(key, {"team": "r", "n": n})
        assert [one["x"] for one in driver.create_output_topic("out").read_values_to_list()] == [4, 3, 6]


@pytest.mark.parametrize("kind", ["min", "max", "first", "last"])
def test_what_cannot_be_taken_back_is_refused(kind):
    grouped = StreamsBuilder().table("in").group_by(col("team"))
    with pytest.raises(TopologyError, match=r"cannot remove a value.*\.top\(1, by=\.\.\.\)"):
        grouped.aggregate(x=getattr(agg, kind)("n"))
    with pytest.raises(TopologyError, match="either an initializer, an adder and a subtractor, or built-in"):
        grouped.aggregate(lambda: 0)
