"""Joins of two tables give the same results for a step's updates together as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde, Topology
from streams.dsl.ktable import KTable
from streams.operators.operator_batches import OperatorBatches
from tests.both_ways import check_both_ways, counted
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
    "inner": lambda builder, left, right: left.join(right, seen).to_stream().to("out"),
    "left": lambda builder, left, right: left.left_join(right, seen).to_stream().to("out"),
    "outer": lambda builder, left, right: left.outer_join(right, seen).to_stream().to("out"),
    "rows that do not exist": lambda builder, left, right: left.outer_join(right, some).to_stream().to("out"),
    "a joiner that fails": lambda builder, left, right: left.left_join(right, spoilt).to_stream().to("out"),
    "stored": lambda builder, left, right: (
        left.left_join(right, seen, materialized=Materialized(name="joined")).to_stream().to("out")
    ),
    "stored without a cache": lambda builder, left, right: (
        left.outer_join(right, some, materialized=Materialized(name="joined", caching=False))
        .filter(lambda value: value is not None)
        .to_stream()
        .to("out")
    ),
    "old values below": lambda builder, left, right: (
        left.outer_join(right, seen).group_by(lambda key, value: (str(value[1]), [key])).count().to_stream().to("out")
    ),
    "old values of a stored join": lambda builder, left, right: (
        left.join(right, some, materialized=Materialized(name="joined"))
        .group_by(lambda key, value: (str(value[1]), [key]))
        .count()
        .to_stream()
        .to("out")
    ),
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
"""Programs whose updates are cached."""


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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("caches", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("shape", PROGRAMS)
def test_both_tables_change(shape: str, caches: tuple[bool, bool], seed: int) -> None:
    if shape == LOOKED_UP and caches != (True, True):
        pytest.skip("the joined table changes while it is looked up")
    topology = program(PROGRAMS[shape], *caches)
    parts = partitions(topology)
    with counted(OperatorBatches) as answers:
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
