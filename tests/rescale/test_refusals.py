"""A rescale that would lose or misplace rows is refused before anything is replaced."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streams import (
    BufferConfig,
    Grouped,
    JsonSerde,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StringSerde,
    Suppressed,
)
from streams.application.adopt import Adopter, carry_out, plan_moves
from streams.application.rescale.plan import UsersChoices, first_batch
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale
from streams.application.reset import Wanted, start_positions
from streams.application.start import Preflight
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint
from streams.checkpoint.files import read_checkpoint
from streams.engine.source.offsets import FirstBatch
from streams.errors import RescaleError
from streams.testing import TopologyTestDriver
from tests.doctor.world import APP, World


class Counting(Processor):
    """Counts the records of each key, or of all keys, in a store."""

    def __init__(self, by_key: bool, remembers: bool = False) -> None:
        self.by_key = by_key
        self.remembers = remembers

    def process(self, record: Any) -> None:
        store = self.ctx.store("seen")
        place = record.key if self.by_key else "all"
        store.put(place, (store.get(place) or 0) + 1)
        if self.remembers:
            self.ctx.state["last"] = record.key
        self.ctx.forward(record.with_value(store.get(place)))


def processing(by_key: bool, remembers: bool = False) -> Any:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", StringSerde(), JsonSerde()))
    counted = builder.stream("in").process(lambda: Counting(by_key, remembers), stores=["seen"], named="counting")
    counted.to("out")
    return builder.build()


def send(driver: TopologyTestDriver, keys: str) -> list[Any]:
    """Sends a record for each key; the new results."""
    before = len(driver.create_output_topic("out").read_records_to_list())
    topic = driver.create_input_topic("in")
    for key in keys:
        topic.pipe_input(key, {"v": 1}, 1)
    return [record.value for record in driver.create_output_topic("out").read_records_to_list()][before:]


def test_a_processors_store_is_moved_on_the_users_word_that_it_is_by_key():
    with TopologyTestDriver(processing(by_key=True), tasks=2) as driver:
        assert send(driver, "abcd") == [1, 1, 1, 1]
        with pytest.raises(RescaleError, match="--by-key seen"):
            driver.rescale(3)
        assert send(driver, "abcd") == [2, 2, 2, 2]
        driver.rescale(3, by_key=["seen"])
        assert send(driver, "abcd") == [3, 3, 3, 3]


def test_a_wrong_word_of_the_user_is_found_out_by_the_rows():
    with TopologyTestDriver(processing(by_key=False), tasks=2) as driver:
        send(driver, "abcdefgh")
        with pytest.raises(RescaleError, match="its rows are not stored under the keys of their records"):
            driver.rescale(3, by_key=["seen"])


def test_a_processors_state_is_refused_copied_or_dropped():
    with TopologyTestDriver(processing(by_key=True, remembers=True), tasks=1) as driver:
        send(driver, "ab")
        with pytest.raises(RescaleError, match="--state counting=copy"):
            driver.rescale(2, by_key=["seen"])
        driver.rescale(2, by_key=["seen"], states={"counting": "copy"})
        assert send(driver, "ab") == [2, 2]


def test_a_store_without_a_changelog_is_lost_only_on_the_users_word():
    builder = StreamsBuilder()
    how = Materialized("counts", logging=False, caching=False)
    builder.stream("in").group_by_key().count(materialized=how).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=1) as driver:
        assert send(driver, "aa") == [1, 2]
        with pytest.raises(RescaleError, match="--drop counts"):
            driver.rescale(2)
        driver.rescale(2, drop=["counts"])
        assert send(driver, "a") == [1]


def test_a_store_with_another_key_serde_than_its_records_have_is_refused():
    class Upper(StringSerde):
        """Writes other bytes than the source has."""

        def serialize(self, topic: str, value: Any, headers: Any = None) -> bytes | None:
            return super().serialize(topic, value and value.upper(), headers)

    builder = StreamsBuilder()
    how = Materialized("counts", key_serde=Upper())
    builder.stream("in").group_by_key(Grouped(key_serde=StringSerde())).count(materialized=how).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=1) as driver:
        send(driver, "a")
        with pytest.raises(RescaleError, match="where a row belongs"):
            driver.rescale(2)


def test_a_bounded_suppression_counts_its_buffer_again():
    builder = StreamsBuilder()
    limit = Suppressed.until_time_limit(1000, BufferConfig(max_records=3, emit_early=True))
    builder.table("in").suppress(limit).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=2) as driver:
        assert send(driver, "abcd") == []
        driver.rescale(1)
        # Five updates in one buffer of three.
        assert len(send(driver, "e")) == 2


# --- What other commands make of an application that was rescaled: it is healthy, and a lost checkpoint can be adopted.

ADOPT = "streams adopt app.py -a app --dry-run"


def rescale(world: World, tasks: int) -> None:
    """Rescales the application, whose number of tasks is then that of its topics."""

    def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch | None:
        checkpoint = read_checkpoint(world.files, sub.name, {one.batch_id for one in markers.values() if one})
        check_checkpoint(sub, checkpoint, markers)
        return first_batch(sub, checkpoint, markers)

    _, prepared = world.plan()
    around = RescaleContext(world.kafka, world.kafka, world.files, first_of, UsersChoices(), None)
    Rescaler([SubRescale(APP, prepared.sub, prepared.tasks, tasks, around)]).run()


def adopt(world: World) -> dict[str, tuple[int, ...]]:
    """Adopts what misfits; where reading then goes on, by topic."""
    application, _ = world.plan()
    adopter = Adopter(Preflight(application, world.files, world.kafka, lambda _: None, world.kafka))  # type: ignore[arg-type]
    for prepared, findings in adopter.misfits():
        adopter.adopt(prepared, findings)
    first = read_checkpoint(world.files, "in").first
    assert first is not None
    return {topic: of.offsets for topic, of in (first.end or first.start).topics.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application with two tasks that has read 5 records of each partition."""
    return World(tmp_path).run().run("d", "e")


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_doctor_finds_nothing_after_a_rescale(world: World, tasks: int) -> None:
    rescale(world, tasks)
    assert world.plan()[1].tasks == tasks
    assert world.findings() == {}


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_checkpoint_that_is_lost_after_a_rescale_is_adopted(world: World, tasks: int) -> None:
    rescale(world, tasks)
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    assert [one.command for one in world.findings()["checkpoint"]] == [ADOPT]
    assert adopt(world) == {"in": (5, 5)}
    assert world.findings() == {}


def test_an_adopted_application_finishes_the_repeated_micro_batch_first(world: World) -> None:
    world.run_half("a", "d")
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    adopt(world)
    topics = sorted(world.kafka.topics)
    with pytest.raises(RescaleError, match="Start the application with tasks=2 until it has finished this micro-batch"):
        rescale(world, 3)
    assert sorted(world.kafka.topics) == topics, "nothing was begun"


def test_after_a_complete_micro_batch_an_adopted_application_is_rescaled_at_once(world: World) -> None:
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    adopt(world)
    rescale(world, 3)
    assert world.plan()[1].tasks == 3
    assert world.findings() == {}


def test_positions_that_were_moved_stay_where_they_are(world: World) -> None:
    """`streams reset --keep-state`, and a rescale before the next start."""
    wanted = Wanted(offsets={("in", 0): 2, ("in", 1): 3})
    start = start_positions(world.config, world.kafka, world.kafka, wanted)
    for move in plan_moves(APP, world.kafka, world.files, {"in": 2}, start):
        carry_out(move, world.files, lambda _: None)
    rescale(world, 3)
    first = read_checkpoint(world.files, "in").first
    assert first is not None
    assert (first.start.topics["in"].offsets, first.fixed) == ((2, 3), True)
    aside = [name for name in world.files.names("") if name.startswith("in~replaced-")]
    assert len(aside) == 2, "both old checkpoints are kept, even if they were replaced within a second"
    assert world.findings() == {}
