"""Live tasks of topics whose producers put keys where another function than murmur2 does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from state.commit.decide import TaskIdentity
from state.commit.marker import PLACED_LIVE_FORMAT, UNPLACED
from state.commit.step import CommitStep
from state.errors import CheckpointMismatchError
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import FUNCTIONS, Placement
from streams import BytesSerde, Processor, Record, Retry, StreamsBuilder, StringSerde
from streams.engine.live.task import LiveTask
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.step.step import TaskAccess
from streams.errors import KeyPlacementError
from streams.testing.simulation import SimulatedStores
from streams.topology.topology import Topology
from tests.live.test_task import World

PARTITIONS = 4
KEYS = [f"user-{n}".encode() for n in range(40)]


def counts() -> Topology:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream("in").group_by_key().count().to_stream().to("out")
    return builder.build()


class Placed(World):
    """A sub-topology with a placement, whose tasks are what the job makes of them."""

    def __init__(self, topology: Topology, placement: Placement, **settings: Any) -> None:
        super().__init__(topology, PARTITIONS, {"placement": placement, **settings})

    def write(self, by: Placement) -> None:
        for key in KEYS:
            self.kafka.append("in", key, b"v", 1, partition=partition_for_key(key, PARTITIONS, by))

    def task(self, number: int = 0, wakes: int | None = None) -> LiveTask:
        identity: TaskIdentity = self.job.identity(number, "query")
        specs = [node.spec for node in self.sub.stores.values()]
        stores = SimulatedStores(self.kafka, identity, specs, self.table, self.memory)
        step = CommitStep(identity, self.kafka, stores, self.job.crash)
        ids = self.kafka.topic_ids(self.sub.topics)
        start = SourceOffsets({name: TopicOffsets(ids[name], (0,) * self.job.tasks) for name in self.sub.topics})
        access: Any = TaskAccess(step, self.kafka, stores)  # type: ignore[arg-type]
        return LiveTask(self.job, access, start, "run", open_reader=self._open, wakes=wakes, clock=lambda: self.now)


@pytest.mark.parametrize("placement", FUNCTIONS)
def test_what_a_producer_writes_runs_live_by_its_function(placement: Placement) -> None:
    world = Placed(counts(), placement)
    world.write(placement)
    for number in range(PARTITIONS):
        with world.task(number) as task:
            world.run(task)
            last = task.session.last
            assert last is not None
            assert last.placement == placement.value
            assert (last.format == PLACED_LIVE_FORMAT) is (placement is not Placement.MURMUR2)
    counted = [world.kafka.columns("out", number) for number in range(PARTITIONS)]
    assert sum(len(columns) for columns in counted if columns is not None) == len(KEYS)


def test_another_function_than_that_of_the_state_is_refused() -> None:
    world = Placed(counts(), Placement.CRC32)
    world.write(Placement.CRC32)
    with world.task() as task:
        world.run(task)
    for other in (Placement.MURMUR2, Placement.PARTITION):
        world.job = replace(world.job, settings=replace(world.job.settings, placement=other))
        with pytest.raises(
            CheckpointMismatchError, match=f"with the keys of crc32 .*, this query goes by {other.value}"
        ):
            world.task().__enter__()


def test_the_error_names_the_function_of_the_producer() -> None:
    world = Placed(counts(), Placement.MURMUR2)
    world.write(Placement.CRC32)
    with world.task() as task:
        world.readers["in"].due = 100
        with pytest.raises(KeyPlacementError, match=r"by murmur2: crc32 would put it here .*--placement crc32"):
            task.begin(10_000)
        assert task.session.last is None


def test_a_task_without_a_placement_leaves_records_until_there_is_one() -> None:
    world = Placed(counts(), Placement.MURMUR2)
    world.job = replace(world.job, unplaced=True)
    world.write(Placement.CRC32)
    with world.task() as task:
        for _ in range(3):
            world.now += 1
            world.readers["in"].due = 100
            world.step(task)
        assert world.kafka.columns("out", 0) is None
        last = task.session.last
    assert last is None or (last.placement, last.live_positions) == (UNPLACED, {("in", 0): 0})
    world.job = replace(world.job, unplaced=False, settings=replace(world.job.settings, placement=Placement.CRC32))
    with world.task() as task:
        world.run(task)
        assert task.session.last is not None
        assert task.session.last.placement == "crc32"


def test_by_the_partition_alone_any_key_is_processed_where_it_is() -> None:
    world = Placed(counts(), Placement.PARTITION)
    for key in KEYS:
        world.kafka.append("in", key, b"v", 1, partition=2)
    with world.task(2) as task:
        world.run(task)
    columns = world.kafka.columns("out", 2) or world.kafka.columns("out", 0)
    assert columns is not None


class Never(Processor[Any, Any, Any, Any]):
    """Fails for every record."""

    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError("not yet")


@pytest.mark.parametrize("placement", [Placement.CRC32, Placement.PARTITION])
def test_a_retried_record_comes_back_to_its_task(placement: Placement) -> None:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry([1_000], dead_letters="dlq")
    builder.stream("in").process_values(Never, named="never", on_error=retry).to("out")
    world = Placed(builder.build(), placement)
    (retries,) = [topic for topic in world.sub.topics if topic != "in"]
    settings = replace(
        world.job.settings, placements={retries: placement}, partition_counts={"out": 1, "dlq": 1, retries: PARTITIONS}
    )
    world.job = replace(world.job, settings=settings)
    world.write(Placement.CRC32)
    with world.task(1) as task:
        world.run(task)
    assert [number for number in range(PARTITIONS) if world.kafka.columns(retries, number) is not None] == [1]
