"""A rescale to another placement: each row goes to the task where the new function puts its key, and back."""

from __future__ import annotations

from typing import Any

import pytest

from state.commit.marker import PLACED_FORMAT, read_last_marker
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import Placement
from streams import BytesSerde, Materialized, StreamsBuilder
from streams.application.rescale.plan import UsersChoices
from streams.errors import RescaleError
from streams.testing import TopologyTestDriver
from streams.testing.query import rescaler_of
from streams.testing.simulation import SimulatedKafka

TASKS = 3
KEYS = [f"user-{n}".encode() for n in range(30)]


@pytest.fixture
def driver() -> Any:
    builder = StreamsBuilder(default_key_serde=BytesSerde())
    builder.stream("in").group_by_key().count(materialized=Materialized("n")).to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions={"in": TASKS}) as driver:
        for time, key in enumerate(KEYS * 2):
            driver.create_input_topic("in").pipe_input(key, {}, time)
        yield driver


def move(driver: TopologyTestDriver, tasks: int, placement: Placement | None) -> None:
    rescaler_of(driver._queries, "test", driver._kafka, tasks, UsersChoices(), placement).run()


def rows(kafka: SimulatedKafka, tasks: int) -> dict[bytes, tuple[int, bytes]]:
    """Key -> its task and value."""
    found = {}
    for task in range(tasks):
        columns = kafka.columns("test-n-changelog", task)
        assert columns is not None
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            found[key] = task, value
    return found


@pytest.mark.parametrize("tasks", [TASKS, 2])
def test_rows_move_to_where_the_function_puts_their_keys(driver: TopologyTestDriver, tasks: int) -> None:
    kafka = driver._kafka
    before = rows(kafka, TASKS)
    move(driver, tasks, Placement.CRC32)
    after = rows(kafka, tasks)
    assert {key: value for key, (_, value) in after.items()} == {key: value for key, (_, value) in before.items()}
    assert {key: task for key, (task, _) in after.items()} == {
        key: partition_for_key(key, tasks, Placement.CRC32) for key in KEYS
    }
    for task in range(tasks):
        copy = read_last_marker(kafka, ("test-in-commits", task))
        assert copy is not None
        assert (copy.marker.placement, copy.marker.format) == ("crc32", PLACED_FORMAT)
    # The number of tasks alone leaves the placement as it is, and the way back gives what there was.
    move(driver, TASKS, None)
    assert {key: task for key, (task, _) in rows(kafka, TASKS).items()} == {
        key: partition_for_key(key, TASKS, Placement.CRC32) for key in KEYS
    }
    move(driver, TASKS, Placement.MURMUR2)
    assert rows(kafka, TASKS) == before


def test_rows_whose_partition_was_chosen_otherwise_do_not_move(driver: TopologyTestDriver) -> None:
    with pytest.raises(RescaleError, match="with placement=partition, a key is in the task of the partition"):
        move(driver, TASKS, Placement.PARTITION)


def test_a_rescale_to_one_placement_is_not_finished_with_another(driver: TopologyTestDriver) -> None:
    rescaler = rescaler_of(driver._queries, "test", driver._kafka, TASKS, UsersChoices(), Placement.CRC32)
    (sub,) = rescaler.subs
    sub.begin()
    with pytest.raises(RescaleError, match="--tasks 3 --placement crc32"):
        move(driver, TASKS, Placement.FNV1A)
    move(driver, TASKS, Placement.CRC32)
