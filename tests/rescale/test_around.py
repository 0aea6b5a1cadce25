"""What other commands make of an application that was rescaled: it is healthy, and a lost checkpoint can be adopted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streams.application.adopt import Adopter, carry_out, plan_moves
from streams.application.rescale.plan import UsersChoices, first_batch
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale
from streams.application.rescale.rows import NobodyListens
from streams.application.reset import Wanted, start_positions
from streams.application.start import Preflight
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint
from streams.checkpoint.files import read_checkpoint
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch
from tests.doctor.world import APP, World

ADOPT = "streams adopt app.py -a app --dry-run"


def rescale(world: World, tasks: int) -> None:
    """Rescales the application, whose number of tasks is then that of its topics."""

    def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch | None:
        checkpoint = read_checkpoint(world.files, sub.name, {one.batch_id for one in markers.values() if one})
        check_checkpoint(sub, checkpoint, markers)
        return first_batch(sub, checkpoint, markers)

    _, prepared = world.plan()
    around = RescaleContext(world.kafka, world.kafka, world.files, first_of, UsersChoices(), NobodyListens())
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
