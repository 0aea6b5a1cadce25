"""Foreign-key joins give the same results for a step's records together as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde, Topology
from streams.dsl.ktable import KTable
from streams.operators.join.foreign_key import ForeignKeySubscribe
from tests.both_ways import check_both_ways, counted
from tests.operators.test_tables_together import failing, feed, seen

Program = Callable[[StreamsBuilder, KTable[Any, Any], KTable[Any, Any]], object]
NAMES = {3: "a", "text": "b"}


def named(value: Any) -> str | None:
    """The right key that a left value names, or None."""
    return NAMES.get(value) if isinstance(value, int | str) else "abc"[len(value) % 3]


def by_key(key: Any, value: Any) -> str:
    """The same for the same value under another key."""
    return "abd"[(ord(key[0]) + len(str(value))) % 3]


def refusing(value: Any) -> str | None:
    """Fails for some values."""
    return named(failing(value))


def spoilt(left: Any, right: Any) -> Any:
    """Fails for some rows."""
    return [left, failing(right)]


PROGRAMS: dict[str, Program] = {
    "left": lambda builder, left, right: left.left_join(right, seen, foreign_key=named).to_stream().to("out"),
    "by key and value": lambda builder, left, right: (
        left.left_join(right, seen, foreign_key=by_key).to_stream().to("out")
    ),
    "an extractor that fails": lambda builder, left, right: (
        left.left_join(right, seen, foreign_key=refusing).to_stream().to("out")
    ),
    "a joiner that fails": lambda builder, left, right: (
        left.left_join(right, spoilt, foreign_key=named).to_stream().to("out")
    ),
    "derived tables": lambda builder, left, right: (
        left.filter(lambda value: value != 3)
        .left_join(right.map_values(lambda value: [value]), seen, foreign_key=named)
        .to_stream()
        .to("out")
    ),
    "a table joined with itself": lambda builder, left, right: [
        left.left_join(left, seen, foreign_key=named).to_stream().to("out"),
        right.to_stream().to("rights"),
    ],
    "both ways": lambda builder, left, right: [
        left.left_join(right, seen, foreign_key=named).to_stream().to("out"),
        right.join(left, seen, foreign_key=named).to_stream().to("others"),
    ],
    "a chain": lambda builder, left, right: (
        left.left_join(right, seen, foreign_key=named)
        .join(builder.table("third", materialized=Materialized(name="third")), seen)
        .to_stream()
        .to("out")
    ),
    "records that are dropped": lambda builder, left, right: (
        (joined := left.join(right, seen, foreign_key=named)).to_stream().to("out"),
        joined.dropped().to("dropped"),
    ),
}
"""What `tests/properties/test_table_joins_both_ways.py` does not play: that has each kind of join, with each sort of store."""


def program(shape: Program) -> Topology:
    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde())
    left, right = (builder.table(topic, consumed, Materialized(name=f"{topic}s")) for topic in ("left", "right"))
    shape(builder, left, right)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", PROGRAMS)
def test_both_tables_change(shape: str, seed: int) -> None:
    topology = program(PROGRAMS[shape])
    parts = {topic: 2 for topic in ("left", "right", "third") if topic in topology.describe()}
    with counted(ForeignKeySubscribe) as answers:
        found = check_both_ways(
            topology,
            feed(seed, [*parts, "left", "right"]),
            restarts=[1, 2],
            partitions=parts,
            rocksdb=seed == 0 and shape == "left",
            mode=["strict", "compat"][seed % 2],
            processing="skip",
        )
    assert "together" in answers
    assert found.topics[("out", 0)]
    assert not found.fallbacks or "fails" in shape


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
def test_records_at_fault(policy: str) -> None:
    """In what order dead letters come, and which record stops the application."""
    for seed, shape in enumerate(["an extractor that fails", "a joiner that fails"]):
        found = check_both_ways(
            program(PROGRAMS[shape]),
            feed(seed, ["left", "right"], poison=True),
            partitions={"left": 2, "right": 2},
            deserialization=policy,
            processing=policy,
            **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
        )
        assert (found.failed is not None) == (policy == "fail")


def test_its_topics_and_sub_topologies() -> None:
    builder = StreamsBuilder()
    orders, users = builder.table("orders"), builder.table("users", materialized=Materialized(caching=True))
    joined = orders.left_join(users, seen, foreign_key=named, named="fk")
    joined.to_stream().to("out")
    text = builder.build().describe()
    assert text.count("Sub-topology") == 2
    for topic in ("fk-subscription-repartition", "fk-response-repartition"):
        assert text.count(f"(topic: {topic})") == text.count(f"(topics: [{topic}])") == 1
    assert "Processor: fk-subscription-processor (stores: [fk-subscription-store, users-STATE-STORE])" in text
