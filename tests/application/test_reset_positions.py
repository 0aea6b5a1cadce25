"""A reset to a time or to offsets: the next start begins exactly there, with nothing of the old state."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from state.changelog import pauses_topic
from state.commit.last_marker import read_last_marker
from state.errors import KafkaClientError
from state.kafka.topics import TopicSpec
from streams import Processor, Retry, StreamsBuilder
from streams.application.adopt import carry_out, plan_moves
from streams.application.markers import MarkerAccess
from streams.application.reset import Wanted, note_reset, noted_start, parse_offsets, plan_reset, reset, start_positions
from streams.checkpoint.compare import NEVER
from streams.checkpoint.files import read_checkpoint
from streams.cli.reset import move_positions
from streams.errors import ConfigError, RescaleUnfinishedError, ResetUnfinishedError
from streams.source.offsets import FirstBatch
from streams.source.pauses import WHOLE, pause_record
from tests.doctor.world import NOW_MS, World
from tests.rescale.test_around import adopt


class Shipping(Processor):
    """Never fails."""

    def process(self, record: Any) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application that has counted `a` and `b` twice: at NOW_MS, and a minute later."""
    world = World(tmp_path)
    world.feed("a", "b")
    world.cluster.advance(60_000)
    world.feed("a", "b", at_ms=NOW_MS + 60_000)
    world.run("c")
    world.restore()
    return world


class FailsOnce(Processor):
    """Fails on records that were not retried."""

    def process(self, record: Any) -> None:
        if self.ctx.record_metadata.topic == "in":
            raise ConnectionError
        self.ctx.forward(record)


def do(world: World, wanted: Wanted | None) -> list[str]:
    said: list[str] = []
    start = start_positions(world.config, world.kafka, world.kafka, wanted) if wanted else {}
    reset(plan_reset(world.config, world.kafka, world.kafka, start=start), world.kafka, said.append)  # type: ignore[arg-type]
    return said


def counted_from_here(world: World) -> list[tuple[bytes | None, int]]:
    """Starts the application again, and gives what it counts."""
    before = world.counted()
    driver = world.start()
    while driver.trigger():
        pass
    return sorted((Counter(world.counted()) - Counter(before)).elements())


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(NOW_MS + 30_000),
        Wanted(offsets=dict.fromkeys([("in", 0), ("in", 1)], 2)),
    ],
)
def test_the_next_start_reads_from_there_with_empty_stores(world: World, wanted: Wanted) -> None:
    said = do(world, wanted)
    assert said[-1] == "made a new checkpoint of in, which begins at the chosen offsets"
    assert not list(world.config.state_dir.glob("app/*/*"))
    assert counted_from_here(world) == [(b"a", 1), (b"a", 2), (b"b", 1), (b"b", 2), (b"c", 1), (b"c", 2)]


def test_a_reset_without_positions_begins_at_the_start(world: World) -> None:
    do(world, None)
    assert not Path(world.config.checkpoint_dir).exists()


def test_an_interrupted_reset_goes_on_to_the_same_positions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(names: object) -> None:
        raise KafkaClientError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.kafka, "delete_topics", refuse)
        with pytest.raises(ResetUnfinishedError):
            do(world, Wanted(NOW_MS + 30_000))
    noted = noted_start(world.config.checkpoint_dir)
    assert noted["in"].start.topics["in"].offsets == (2, 2)
    do(world, None)
    assert read_checkpoint(world.files, "in").first == noted["in"]
    assert counted_from_here(world)[0] == (b"a", 1)


def test_the_plan_says_what_happens_to_the_state(world: World) -> None:
    start = start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS + 30_000))
    told = "\n".join(plan_reset(world.config, world.kafka, world.kafka, start=start).lines())  # type: ignore[arg-type]
    assert "in then begins to read at in-0: 2, in-1: 2, with empty stores: older records are not in them" in told


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({("in", 0): 1}, r"in-1 is missing, whose log has \[0, 5\)"),
        ({("in", 0): 1, ("in", 1): 9}, "offset 9 of in-1 is not in the log"),
        ({("in", 0): 1, ("in", 1): 1, ("out", 0): 0}, "out-0 is no partition that the application reads"),
    ],
)
def test_offsets_that_are_not_exactly_possible_are_refused(world: World, offsets: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start_positions(world.config, world.kafka, world.kafka, Wanted(offsets=offsets))


def test_files_of_offsets_have_the_form_of_kafkas_own_tool() -> None:
    assert parse_offsets(["in,0,7", "", "in, 1, 8"]) == {("in", 0): 7, ("in", 1): 8}
    with pytest.raises(ConfigError, match="line 1 is 'in,0', and topic,partition,offset is needed"):
        parse_offsets(["in,0"])


def test_a_pause_is_neither_a_commit_nor_in_the_way(world: World) -> None:
    """The topic of pauses is named like a commits topic, and goes with a reset."""
    pauses = pauses_topic("app")
    world.kafka.create_topics([TopicSpec(pauses, 1)])
    world.kafka.append(pauses, *pause_record(WHOLE, NOW_MS), int(time.time() * 1000), partition=0)
    assert list(start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS))) == ["in"]
    plan = plan_reset(world.config, world.kafka, world.kafka)  # type: ignore[arg-type]
    assert plan.topics[pauses] == "its pauses"
    assert plan.warnings == ()
    assert "resumes" in "\n".join(plan.lines())


def test_retry_topics_are_no_inputs_even_without_a_description(tmp_path: Path) -> None:
    """A reset deletes them, so there is nothing to begin at."""
    builder = StreamsBuilder()
    again = Retry((1_000,), dead_letters="dead")
    builder.stream("in").process_values(Shipping, named="ship", on_error=again).to("out")
    world = World(tmp_path, topology=builder.build())
    world.kafka.create_topics([TopicSpec("dead", 1), TopicSpec("app-ship-retry-1-repartition", 2, {})])
    world.run("a")
    (Path(world.config.checkpoint_dir) / "topology.json").unlink()
    start = start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS))
    assert [(sub, list(first.start.topics)) for sub, first in start.items()] == [("in", ["in"])]


def test_an_unknown_application_has_no_inputs(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(ConfigError, match="which topics app reads is not known"):
        start_positions(world.config, world.kafka, world.kafka, Wanted(0))


def test_positions_can_be_moved_and_the_state_kept(world: World) -> None:
    """From the second record on: counted again, on top of what was counted."""
    start = start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS + 30_000))
    said: list[str] = []
    for move in plan_moves("app", world.kafka, world.files, {"in": 2}, start):
        carry_out(move, world.files, said.append)
    assert said[-1] == "in: made a new checkpoint, at the tasks' last commits"
    assert world.kafka.groups["app"] == {("in", 0): 2, ("in", 1): 2}
    assert counted_from_here(world) == [(b"a", 5), (b"a", 6), (b"b", 5), (b"b", 6), (b"c", 3), (b"c", 4)]
    assert world.kafka.groups["app"] == {("in", 0): 5, ("in", 1): 5}


def test_a_move_that_was_interrupted_goes_on_with_its_own_positions(world: World) -> None:
    (move,) = plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 2))
    replaced: list[int] = []
    original = MarkerAccess.replace

    def dies(self: MarkerAccess, task: int, *more: Any) -> bool:
        if replaced:
            raise KeyboardInterrupt
        replaced.append(task)
        return original(self, task, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarkerAccess, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            carry_out(move, world.files, lambda _: None)
    assert [one.command for one in world.findings()["checkpoint"]][-1] == "streams adopt app.py -a app --dry-run"
    (again,) = plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 3))
    carry_out(again, world.files, lambda _: None)
    first = read_checkpoint(world.files, "in").first
    assert first is not None
    assert first.start.topics["in"].offsets == (2, 2), "the plan of the first attempt"
    assert set(world.findings()) == {"local state"}, "it is restored for the new checkpoint, as after an adoption"


def test_positions_are_not_moved_while_a_rescale_or_a_reset_is_unfinished(world: World) -> None:
    start = at(world, 2)
    world.kafka.create_topics([TopicSpec("app-in-rescale", 1)])
    with pytest.raises(RescaleUnfinishedError, match="topic app-in-rescale"):
        move_positions(world.config, world.kafka, world.kafka, start, execute=True)  # type: ignore[arg-type]
    world.kafka.delete_topic("app-in-rescale")
    note_reset(world.config.checkpoint_dir, [])
    with pytest.raises(ResetUnfinishedError):
        move_positions(world.config, world.kafka, world.kafka, start, execute=True)  # type: ignore[arg-type]
    assert world.kafka.groups["app"] == {("in", 0): 5, ("in", 1): 5}


def test_positions_are_not_moved_within_a_micro_batch(world: World) -> None:
    (Path(world.config.checkpoint_dir) / "in/commits/0").unlink()
    with pytest.raises(ConfigError, match="micro-batch 0 is logged and not complete"):
        plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 2))


def test_positions_are_not_moved_before_an_adopted_micro_batch_is_complete(world: World) -> None:
    """Task 0 has committed it, task 1 has not, and the checkpoint was lost: a move would skip the records of task 1."""
    world.run_half("a", "d")
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    assert adopt(world) == {"in": (7, 7)}
    markers = [read_last_marker(world.kafka, ("app-in-commits", task)) for task in (0, 1)]
    assert [each.marker.batch_id for each in markers if each] == [0, NEVER], "only half of it is committed"
    with pytest.raises(ConfigError, match="micro-batch 0 is logged and not complete"):
        plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 7))
    assert counted_from_here(world) == [(b"d", 1), (b"d", 2)], "the records of task 1"


def test_a_second_move_keeps_the_positions_in_retry_topics(tmp_path: Path) -> None:
    """Without them, the topic counts as new, and everything in it is processed again."""
    builder = StreamsBuilder()
    again = Retry((0,), dead_letters="dead")
    builder.stream("in").process_values(FailsOnce, named="ship", on_error=again).to("out")
    world, retries = World(tmp_path, topology=builder.build()), "app-ship-retry-1-repartition"
    world.kafka.create_topics([TopicSpec("dead", 1), TopicSpec(retries, 2, {})])
    world.run("a", "b")
    ends = tuple(world.kafka.log(retries, number).end for number in (0, 1))
    assert any(ends), "records were retried"
    for _ in range(2):
        for move in plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 2)):
            carry_out(move, world.files, lambda _: None)
        first = read_checkpoint(world.files, "in").first
        assert first is not None
        assert first.start.topics[retries].offsets == ends
    assert counted_from_here(world) == []


def test_without_state_there_is_nothing_to_keep(world: World) -> None:
    with pytest.raises(ConfigError, match="no task has committed"):
        plan_moves("app", world.kafka, world.files, {}, at(world, 2))


def at(world: World, offset: int) -> dict[str, FirstBatch]:
    wanted = Wanted(offsets={("in", 0): offset, ("in", 1): offset})
    return start_positions(world.config, world.kafka, world.kafka, wanted)
