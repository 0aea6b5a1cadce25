"""Where nothing with state follows: a live task processes what is in its partition, and topics may have fewer partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from state.kafka.key_hash import partition_for_key
from streams import BytesSerde, Materialized, StreamsBuilder
from streams.errors import KeyPlacementError
from streams.topology.topology import Topology
from tests.live.test_task import World

ELSEWHERE = next(key for key in (b"a", b"b", b"c", b"d") if partition_for_key(key, 2) == 1)
"""A key of the other partition."""


def built(build: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    build(builder)
    return builder.build()


PROGRAMS: dict[str, Callable[[StreamsBuilder], object]] = {
    "a copy": lambda builder: builder.stream("in").to("out"),
    "a new key": lambda builder: builder.stream("in").select_key(lambda key, value: value).to("out"),
    "a new value": lambda builder: builder.stream("in").map_values(lambda value: value).to("out"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_key_will_do(name: str) -> None:
    world = World(built(PROGRAMS[name]), partitions=2)
    world.kafka.append("in", ELSEWHERE, b"v", 0, partition=0)
    with world.task(0) as task:
        world.run(task)
    assert sum(world.kafka.columns("out", number) is not None for number in (0, 1)) == 1


def test_state_needs_the_key_of_the_task() -> None:
    world = World(
        built(lambda b: b.stream("in").group_by_key().count(materialized=Materialized("counts"))), partitions=2
    )
    world.kafka.append("in", ELSEWHERE, b"v", 0, partition=0)
    with world.task(0) as task, pytest.raises(KeyPlacementError):
        world.run(task)


def test_a_topic_may_have_fewer_partitions_than_tasks() -> None:
    world = World(built(lambda b: b.stream("in").merge(b.stream("few")).to("out")), partitions=2)
    del world.kafka._topics["few"]  # the simulated Kafka has it with as many as the other one
    world.kafka.create_topic("few", 1)
    world.kafka.append("in", b"k", b"in", 0, partition=1)
    world.kafka.append("few", b"k", b"few", 0, partition=0)
    for number in (0, 1):
        with world.task(number) as task:
            world.run(task)
            assert set(task.positions) == {("in", number), *([("few", 0)] if number == 0 else [])}
    found = [world.kafka.columns("out", number) for number in (0, 1)]
    assert sorted(value for one in found if one is not None for value in one.values.to_pylist()) == [b"few", b"in"]
