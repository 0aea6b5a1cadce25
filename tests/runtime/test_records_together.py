"""Records of a step that are processed together give what they give one by one, bad ones included."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streams import Consumed, JsonSerde, Produced, StreamsBuilder, StringSerde
from streams.dsl.kstream import KStream
from streams.topology.plan import build_plan
from tests.both_ways import Fed, check_both_ways

VALUES = (b'{"a": 1}', b'{"b":[1,2]}', b"null", None, b"3", b'"text"')
POISON = (b"{", b"\xff")


def feed(seed: int, poison: bool = False, topics: tuple[str, ...] = ("in",)) -> list[list[Fed]]:
    """Three steps of records with few keys, null keys, headers, several partitions and times out of order."""
    rng = random.Random(seed)
    values = VALUES + POISON if poison else VALUES
    return [
        [
            Fed(
                rng.choice(topics),
                rng.choice([b"a", b"b", b"c", None, *([b"\xff"] if poison else [])]),
                rng.choice(values),
                rng.randrange(50),
                rng.choice([(), (("h", b"1"),), (("h", None), ("g", b""))]),
                rng.randrange(2),
            )
            for _ in range(size)
        ]
        for size in (30, 1, 12)
    ]


def program(shape: Callable[[KStream[Any, Any]], KStream[Any, Any]], topics: tuple[str, ...] = ("in",)) -> Any:
    builder = StreamsBuilder()
    source = builder.stream(list(topics), Consumed(StringSerde(), JsonSerde()))
    shape(source).to("out", Produced(StringSerde(), JsonSerde()))
    return builder.build()


SHAPES: dict[str, Callable[[KStream[Any, Any]], KStream[Any, Any]]] = {
    "copied": lambda stream: stream,
    "mapped in the readers": lambda stream: stream.map_values(lambda value: {"was": value}),
    "merged": lambda stream: stream.map_values(lambda value: [value]).merge(
        stream.filter(lambda key, value: key == "a")
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_good_records(shape: str, seed: int) -> None:
    seen = check_both_ways(program(SHAPES[shape]), feed(seed), partitions={"in": 2, "out": 2}, tasks=2)
    assert any(topic == "out" for topic, _ in seen.topics)


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("shape", SHAPES)
def test_records_that_cannot_be_read(shape: str, policy: str) -> None:
    settings = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    seen = check_both_ways(
        program(SHAPES[shape]), feed(1, poison=True), partitions={"in": 2}, deserialization=policy, **settings
    )
    assert (seen.failed is not None) == (policy == "fail")
    if policy != "fail":
        assert any(name.endswith(":deserialization") for name in seen.counters)


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_results_that_cannot_be_written(policy: str) -> None:
    topology = program(lambda stream: stream.map_values(lambda value: {1, 2} if value == 3 else value))
    seen = check_both_ways(topology, feed(2), partitions={"in": 2}, production=policy)
    assert (seen.failed is not None) == (policy == "fail")


def test_results_that_the_topic_refuses() -> None:
    limits = {"out": {"cleanup.policy": "compact"}}
    seen = check_both_ways(
        program(SHAPES["copied"]), feed(3), partitions={"in": 2}, production="skip", topic_configs=limits
    )
    assert any("production" in name for name in seen.counters)


def test_several_topics_with_their_own_headers() -> None:
    topics = ("in", "more")
    check_both_ways(program(SHAPES["copied"], topics), feed(5, topics=topics), partitions={"in": 2, "more": 2})


def test_two_sinks_of_one_topic_take_records_in_turns() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("out")
    stream.map_values(str).to("out")
    (sub,) = build_plan(builder.build(), "test").sub_topologies
    (unit,) = sub.units
    assert (len(unit.nodes), unit.groups) == (2, ())
    assert unit.reason.endswith("write to the topic 'out'")
