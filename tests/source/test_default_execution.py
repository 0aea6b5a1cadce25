"""The default execution: a new application runs live, and one that began in micro-batches, as was the default, keeps its state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streams import Int64Serde, Materialized, Produced, StreamsBuilder, StringSerde
from streams.config import StreamsConfig
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.simulation.leases import Leases
from tests.source.test_both_executions import World, surrounded

DEFAULT = str(StreamsConfig.model_fields["execution"].default.value)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield from surrounded(World(DEFAULT), monkeypatch)


def counts(new_keys: bool) -> Topology:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    stream = builder.stream("in")
    keyed = stream.select_key(lambda key, value: value[0]) if new_keys else stream
    counted = keyed.group_by_key().count(materialized=Materialized("counts", caching=False))
    counted.to_stream().to("out", Produced(StringSerde(), Int64Serde()))
    return builder.build()


def counted(world: World) -> list[int]:
    columns = world.kafka.columns("out", 0)
    return [] if columns is None else [int.from_bytes(value, "big") for value in columns.values.to_pylist()]


def is_live(world: World) -> bool:
    """Whether all queries of the last start are live, rather than none."""
    (kind,) = {isinstance(run, Leases) for run in world.runs}
    return kind


def began_in_micro_batches(world: World, topology: Topology, *values: str) -> None:
    world.topology = topology
    world.send("in", *values)
    world.run("micro-batch")
    assert not is_live(world)
    assert counted(world) == list(range(1, len(values) + 1))


@pytest.mark.parametrize("new_keys", [False, True])
def test_a_new_application_runs_live(world: World, new_keys: bool) -> None:
    world.topology = counts(new_keys)
    world.send("in", "a", "a")
    world.run(DEFAULT)
    assert is_live(world)
    assert counted(world) == [1, 2]


def test_one_that_began_in_micro_batches_goes_on_live_with_its_state(world: World) -> None:
    began_in_micro_batches(world, counts(False), "a", "a")
    world.send("in", "a")
    world.run(DEFAULT)
    assert is_live(world)
    assert counted(world) == [1, 2, 3]


def test_one_that_needs_a_repartition_topic_for_it_stays_in_micro_batches(world: World) -> None:
    began_in_micro_batches(world, counts(True), "a", "a")
    for value in (3, 4):
        world.send("in", "a")
        world.run(DEFAULT)
        assert not is_live(world)
        assert counted(world)[-1] == value
    assert not [topic for topic in world.kafka.topics if "repartition" in topic]


@pytest.mark.parametrize(
    ("settings", "crosses"),
    [({}, True), ({"execution": "micro-batch"}, False), ({"tasks": 2}, True), ({"tasks": 4}, False)],
)
def test_the_test_driver_plans_as_a_start_does(settings: Any, crosses: bool) -> None:
    with TopologyTestDriver(counts(True), partitions={"in": 2}, **settings) as driver:
        driver.create_input_topic("in").pipe_input("k", "a")
        assert driver.create_output_topic("out").read_value() == 1
        assert any(topic.endswith("-repartition") for topic in driver._kafka.topics) is crosses
