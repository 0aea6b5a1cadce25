"""Joins of two tables give the same results for a step's updates together as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from orjson import loads

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde, Suppressed, TimeWindows, Topology
from streams.dsl.ktable import KTable
from streams.operators.join.table_table_join import TableTableJoin
from tests.both_ways import check_both_ways, counted, reasons
from tests.operators.test_tables_together import failing, feed, seen

Tables = tuple[KTable[Any, Any], KTable[Any, Any]]
Program = Callable[[StreamsBuilder, KTable[Any, Any], KTable[Any, Any]], object]
TOPICS = ["left", "right"]


LOOKED_UP = "a stream that looks the joined table up"


def some(left: Any, right: Any) -> Any:
    """No row for some pairs."""
    return None if left == right else [left, right]


def spoilt(key: Any, left: Any, right: Any) -> Any:
    """Fails for some rows."""
    return [key, failing(left), right]


PROGRAMS: dict[str, Program] = {
    "outer": lambda builder, left, right: left.outer_join(right, seen).to_stream().to("out"),
    "a joiner that fails": lambda builder, left, right: left.left_join(right, spoilt).to_stream().to("out"),
    "a derived table that fails": lambda builder, left, right: (
        left.filter(lambda value: value != 3)
        .outer_join(right.map_values(lambda value: failing(value)), seen)
        .filter_not(lambda value: value[0] is None)
        .map_values(str)
        .to_stream()
        .to("out")
    ),
    "a chain": lambda builder, left, right: (
        left.left_join(right, seen)
        .outer_join(builder.table("third", materialized=Materialized(name="third")), seen)
        .to_stream()
        .to("out")
    ),
    "a chain of stored joins": lambda builder, left, right: (
        left.left_join(right, seen, materialized=Materialized(name="joined"))
        .join(builder.table("third", materialized=Materialized(name="third")), seen)
        .to_stream()
        .to("out")
    ),
    LOOKED_UP: lambda builder, left, right: [
        (joined := left.outer_join(right, seen, materialized=Materialized(name="joined"))).to_stream().to("out"),
        builder.stream("third").left_join(joined, seen).to("found"),
    ],
    "an aggregate by a function and a table": lambda builder, left, right: (
        builder.stream("third")
        .group_by_key()
        .aggregate(list, lambda key, value, held: [*held, value][-3:])
        .outer_join(right, seen)
        .to_stream()
        .to("out")
    ),
    "aggregates in windows of one stream": lambda builder, left, right: (
        (third := builder.stream("third").group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 30)))
        .aggregate(list, lambda key, value, held: [*held, value][-3:], Materialized(name="lists"))
        .outer_join(third.count(), seen)
        .to_stream()
        .to("out")
    ),
    "aggregates of results": lambda builder, left, right: (
        left.outer_join(right, seen)
        .to_stream()
        .group_by_key()
        .aggregate(list, lambda key, value, held: [*held, value][-3:])
        .to_stream()
        .to("out")
    ),
    "results and updates": lambda builder, left, right: [
        left.to_stream().to("lefts"),
        left.outer_join(right, seen).to_stream().to("out"),
        right.left_join(left, some).to_stream().to("others"),
    ],
}
"""What `tests/properties/test_table_joins_both_ways.py` does not play: that has each kind of join, with each sort of store."""


def program(shape: Program, left: bool, right: bool) -> Topology:
    """A program; `left` and `right` are whether the tables have caches."""
    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde())
    tables = [
        builder.table(topic, consumed, Materialized(name=f"{topic}s", caching=caching))
        for topic, caching in zip(TOPICS, (left, right), strict=True)
    ]
    shape(builder, *tables)
    return builder.build()


def partitions(topology: Topology) -> dict[str, int]:
    return {topic: 2 for topic in ("left", "right", "third") if topic in topology.describe()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caches", "seed"),
    [((True, True), 0), ((True, True), 1), ((True, False), 0), ((False, True), 1), ((False, False), 0)],
)
@pytest.mark.parametrize("shape", PROGRAMS)
def test_both_tables_change(shape: str, caches: tuple[bool, bool], seed: int) -> None:
    if shape == LOOKED_UP and caches != (True, True):
        pytest.skip("the joined table changes while it is looked up")
    topology = program(PROGRAMS[shape], *caches)
    parts = partitions(topology)
    with counted(TableTableJoin) as answers:
        found = check_both_ways(
            topology,
            feed(seed, [*parts, "left", "right"]),
            restarts=[1, 2],
            partitions=parts,
            rocksdb=seed == 0 and shape == "outer",
            mode=["strict", "compat"][seed % 2],
            processing="skip",
        )
    assert "together" in answers
    assert not found.fallbacks or "fails" in shape
    assert any(topic == "test-lefts-changelog" for topic, _ in found.topics)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("caching", [True, False])
def test_records_at_fault(caching: bool, policy: str) -> None:
    """In what order dead letters come, and which record stops the application."""
    for seed, shape in enumerate(["a joiner that fails", "a derived table that fails"]):
        found = check_both_ways(
            program(PROGRAMS[shape], caching, caching),
            feed(seed, ["left", "right"], poison=True),
            partitions={"left": 2, "right": 2},
            deserialization=policy,
            processing=policy,
            **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
        )
        assert (found.failed is not None) == (policy == "fail")


def test_a_joiner_may_change_the_rows_that_it_gets() -> None:
    """Nobody else sees that, as in Kafka Streams."""

    def changing(left: Any, right: Any) -> Any:
        for row in (left, right):
            if isinstance(row, dict):
                row["seen"] = row.get("seen", 0) + 1
        return [left, right]

    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde())
    left, right = (builder.table(topic, consumed, Materialized(name=f"{topic}s")) for topic in TOPICS)
    left.join(right, changing).to_stream().to("out")
    found = check_both_ways(builder.build(), feed(5, TOPICS), partitions={"left": 2, "right": 2})
    values = [loads(value) for _, value, _, _ in found.topics[("out", 0)] if value is not None]
    assert {row["seen"] for rows in values for row in rows if isinstance(row, dict)} == {1}


def related(builder: StreamsBuilder, left: KTable[Any, Any], right: KTable[Any, Any]) -> None:
    """Both sides are made of one table."""
    left.filter(lambda value: value != 3).join(left.map_values(str), seen).to_stream().to("out")
    right.to_stream().to("rights")


def suppressed(builder: StreamsBuilder, left: KTable[Any, Any], right: KTable[Any, Any]) -> None:
    """One side holds its updates back."""
    left.suppress(Suppressed.until_time_limit(10)).outer_join(right, seen).to_stream().to("out")


def test_what_is_looked_up_while_the_same_update_changes_it_goes_one_by_one() -> None:
    (reason,) = {one for one in reasons(program(related, True, True)) if one}
    assert "shares the store 'lefts'" in reason


def test_a_suppressed_side_has_the_same_results() -> None:
    check_both_ways(program(suppressed, True, True), feed(6, TOPICS), restarts=[1], partitions={"left": 2, "right": 2})


def test_explain_names_the_way() -> None:
    for caching in (True, False):
        lines = program(PROGRAMS["outer"], caching, caching).explain().splitlines()
        sides = [line for line in lines if "-join " in line or "KTABLE-SOURCE" in line]
        assert len(sides) == 4
        assert all(line.endswith("records together") for line in sides)
