"""Dead letters of records that some operator has counted already: the letter names it, and a replay leaves the record out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import (
    Grouped,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.testing import TopologyTestDriver

UNCACHED = Materialized("s", caching=False)
Build = Callable[[StreamsBuilder], None]


def refuse(value: Any) -> Any:
    raise ValueError("not yet")


def first(builder: StreamsBuilder) -> None:
    builder.stream("in").map_values(refuse).group_by_key().count().to_stream().to("out")


def count(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count(materialized=UNCACHED).to_stream().map_values(refuse).to("out")


def reduce(builder: StreamsBuilder) -> None:
    table = builder.stream("in").group_by_key().reduce(lambda total, value: total + value, materialized=UNCACHED)
    table.to_stream().map_values(refuse).to("out")


def windows(builder: StreamsBuilder) -> None:
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(materialized=UNCACHED).to_stream().map_values(refuse).map(lambda k, v: (k.key, v)).to("out")


def deduplicate(builder: StreamsBuilder) -> None:
    builder.stream("in").deduplicate(1_000).map_values(refuse).to("out")


def other_branch(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.group_by_key().count(materialized=Materialized("s")).to_stream().to("counts")
    stream.map_values(refuse).to("out")


def behind_another_topic(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    by_value = stream.group_by(lambda key, value: str(value), Grouped(name="by-value"))
    by_value.count(materialized=Materialized("s")).to_stream().to("counts")
    stream.map_values(refuse).to("out")


def sink(builder: StreamsBuilder) -> None:
    table = builder.stream("in").group_by_key().count(materialized=UNCACHED)
    table.to_stream().map_values(lambda value: object()).to("out")


def aggregator(builder: StreamsBuilder) -> None:
    counted = builder.stream("in").group_by_key().aggregate(lambda: 0, lambda k, v, a: refuse(v), materialized=UNCACHED)
    counted.to_stream().to("out")


def table(builder: StreamsBuilder) -> None:
    """A row that is written again is the same row."""
    builder.table("in", materialized=Materialized("t", caching=False)).to_stream().map_values(refuse).to("out")


def beside_a_table_aggregate(builder: StreamsBuilder) -> None:
    """So is what it adds to a group: it is subtracted first."""
    rows = builder.table("in", materialized=Materialized("t", caching=False))
    rows.group_by(lambda key, value: (str(value), value), Grouped(name="by-value")).count(
        materialized=Materialized("s")
    )
    rows.to_stream().map_values(refuse).to("out")


def table_aggregate(builder: StreamsBuilder) -> None:
    """In the repartition topic, the update stands without the row that it replaces."""
    rows = builder.table("in", materialized=Materialized("t", caching=False))
    grouped = rows.group_by(lambda key, value: (str(value), value), Grouped(name="by-value"))
    grouped.count(materialized=UNCACHED).to_stream().map_values(refuse).to("out")


def looked_up(builder: StreamsBuilder) -> None:
    builder.stream("in").left_join(builder.table("rows"), lambda left, row: left).map_values(refuse).to("out")


PROGRAMS: list[tuple[Build, bool]] = [
    (first, False),
    (count, True),
    (reduce, True),
    (windows, True),
    (deduplicate, True),
    (other_branch, True),
    (behind_another_topic, True),
    (aggregator, False),
    (table, False),
    (beside_a_table_aggregate, False),
    (table_aggregate, True),
    (looked_up, False),
    (sink, True),
]


def letters(build: Build) -> list[dict[str, str]]:
    builder = StreamsBuilder(default_key_serde=StringSerde())
    build(builder)
    policies: Any = {"processing": "dlq", "production": "dlq", "dead_letter_topic": "dead"}
    with TopologyTestDriver(builder.build(), **policies) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, timestamp=1)
        found = driver.create_output_topic("dead").read_records_to_list()
    return [{name: value.decode() for name, value in letter.headers} for letter in found]


@pytest.mark.parametrize(("build", "is_counted"), PROGRAMS, ids=lambda one: getattr(one, "__name__", str(one)))
def test_what_lies_beside_the_way_to_the_failing_node(build: Build, is_counted: bool) -> None:
    (letter,) = letters(build)
    assert ("__streams.errors.counted.by" in letter) == is_counted
    if is_counted:
        assert letter["__streams.errors.counted.by"].startswith(("KSTREAM-", "KTABLE-"))


class Steps(Processor[str, Any, str, Any]):
    """Does some of what it can do, and fails."""

    def __init__(self, before: str) -> None:
        self.before = before

    def process(self, record: Any) -> None:
        store = self.ctx.store("seen")
        if self.before == "put":
            store.put(record.key, 1)
        elif self.before == "delete":
            store.put(record.key, 1)
            store.delete(record.key)
        elif self.before == "refused put":
            store.put(record.key, object())
        elif self.before == "get":
            store.get(record.key)
        elif self.before == "forward":
            self.ctx.forward(record)
        elif self.before == "state":
            self.ctx.state["n"] = 1
        raise ValueError("not yet")


@pytest.mark.parametrize(
    ("before", "is_counted"),
    [
        ("", False),
        ("get", False),
        ("refused put", False),
        ("put", True),
        ("delete", True),
        ("forward", True),
        ("state", True),
    ],
)
def test_a_processor_that_fails_half_way(before: str, is_counted: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.add_state_store(Stores.key_value_store("seen", StringSerde(), JsonSerde()))
        builder.stream("in").process(lambda: Steps(before), stores=["seen"], named="steps").to("out")

    (letter,) = letters(build)
    assert letter.get("__streams.errors.counted.by") == ("steps" if is_counted else None)


@pytest.mark.parametrize(("fails_at", "is_counted"), [(1, False), (2, True)])
def test_a_join_that_fails_at_its_second_partner(fails_at: int, is_counted: bool) -> None:
    """The pair with the first one is there already, and would come again."""

    def join(left: Any, right: Any) -> Any:
        return refuse(left) if left == fails_at else (left, right)

    builder = StreamsBuilder()
    within = JoinWindows.of_time_difference_with_no_grace(10)
    builder.stream("left").join(builder.stream("right"), join, within).to("out")
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="dead") as driver:
        left = driver.create_input_topic("left")
        left.pipe_input("a", 1, timestamp=1)
        left.pipe_input("a", 2, timestamp=2)
        driver.create_input_topic("right").pipe_input("a", 3, timestamp=3)
        (letter,) = driver.create_output_topic("dead").read_records_to_list()
        assert ("__streams.errors.counted.by" in dict(letter.headers)) == is_counted
