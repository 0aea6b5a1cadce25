"""A reset says what it will delete, deletes that and nothing else, and is carried on where it was stopped."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from state.changelog import pauses_topic
from state.commit.marker import read_last_marker
from state.errors import CheckpointMismatchError, KafkaClientError
from state.kafka.topics import TopicSpec
from state.restore.directory import StateDirectory
from streams import Processor, Retry, StreamsBuilder
from streams.application.adopt import carry_out, plan_moves
from streams.application.markers import MarkerAccess
from streams.application.owned_topics import write_manifest
from streams.application.reset import (
    Wanted,
    check_no_reset,
    note_reset,
    noted_start,
    noted_topics,
    parse_offsets,
    plan_reset,
    reset,
    start_positions,
)
from streams.checkpoint.compare import NEVER
from streams.checkpoint.files import read_checkpoint
from streams.cli.reset import move_positions
from streams.config import StreamsConfig
from streams.engine.source.offsets import FirstBatch
from streams.engine.source.pauses import WHOLE, pause_record
from streams.errors import ConfigError, RescaleUnfinishedError, ResetUnfinishedError
from streams.topology.plan import build_plan
from tests.application.cluster import CONTROL, files
from tests.application.test_owned_topics import KEPT, MADE, PROGRAM, all_made, neighbours
from tests.doctor.world import NOW_MS, World
from tests.rescale.test_refusals import adopt

OTHERS = {"orders-eu-in-commits", "orders-eu-counts-changelog", "orders-eu-changelog", "orders.in"}


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    """Of an application with a checkpoint, a description and local state, beside another one's."""
    settings = StreamsConfig(application_id="orders", bootstrap_servers="nowhere:1", base_dir=tmp_path)
    write_manifest(build_plan(PROGRAM.build(), "orders"), settings.checkpoint_dir)
    for folder in (
        "checkpoint/orders/in/offsets",
        "checkpoint/orders/in~replaced-7/offsets",
        "checkpoint/orders/of-an-old-program/offsets",
        "checkpoint/orders-eu/in/offsets",
        "state/orders/in/0/db",
        "state/orders-eu/in/0/db",
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0").touch()
    (tmp_path / "checkpoint/orders/of-an-old-program/metadata").touch()
    return settings


def planned(config: StreamsConfig, kafka: Any, *named: str) -> Any:
    return plan_reset(config, kafka, kafka, named)


def do(config: StreamsConfig, kafka: Any, *named: str) -> list[str]:
    said: list[str] = []
    reset(planned(config, kafka, *named), kafka, said.append)
    return said


def test_what_is_its_own_goes_in_this_order_and_nothing_else(config: StreamsConfig, tmp_path: Path) -> None:
    kafka = neighbours(all_made())
    kafka.groups["orders"] = {("orders.in", 0): 1}
    said = do(config, kafka)
    assert set(kafka.topics) == OTHERS
    assert kafka.asked == [MADE[2], MADE[1], MADE[3], MADE[0], "group orders"], (
        "commits prove the others, so they go last"
    )
    assert set(files(tmp_path)) == {"checkpoint/orders-eu/in/offsets/0", "state/orders-eu/in/0/db/0"}
    assert not Path(config.checkpoint_dir).exists()
    assert said[-2:] == ["deleted local state of 1 task", f"deleted checkpoint {config.checkpoint_dir}"]


def test_looking_changes_nothing_and_tells_all(config: StreamsConfig, tmp_path: Path) -> None:
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row", CONTROL)
    topics, before = dict(kafka.topics), files(tmp_path)
    told = "\n".join(planned(config, kafka).lines())
    assert (kafka.topics, files(tmp_path)) == (topics, before)
    assert "topics: 4" in told
    assert "orders-in-commits: up to 2 records (known from topology.json)" in told
    assert "not orders-eu-in-commits: it belongs to the application orders-eu" in told
    assert "not orders-eu-changelog, orders-old-changelog: nothing proves" in told
    assert f"{tmp_path / 'state/orders'}, 1 task (on" in told
    assert f"{config.checkpoint_dir}, 3 queries" in told
    assert "topology.json in" not in told
    assert "warning" not in told


def test_without_a_description_the_markers_tell(config: StreamsConfig) -> None:
    (Path(config.checkpoint_dir) / "topology.json").unlink()
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row")
    told = "\n".join(planned(config, kafka).lines())
    assert "checkpoint/orders has no topology.json: only commit markers" in told
    assert "(known from the commits of query query-1)" in told
    do(config, kafka, "orders-old-changelog")
    assert set(kafka.topics) == OTHERS


@pytest.mark.parametrize("name", ["orders-eu-in-commits", "orders.in", "orders-gone-changelog", "elsewhere-x-commits"])
def test_only_internal_topics_of_the_application_can_be_named(name: str, config: StreamsConfig) -> None:
    kafka = neighbours(all_made()).put("elsewhere-x-commits")
    with pytest.raises(ConfigError, match=f"--topics: '{name}'"):
        planned(config, kafka, name)


@pytest.mark.parametrize("protected", [MADE[1], MADE[0]])
def test_an_interrupted_reset_is_reported_noted_and_finished(protected: str, config: StreamsConfig) -> None:
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row")
    kafka.protected = {protected}
    with pytest.raises(ResetUnfinishedError, match=rf"{protected}.*run `streams reset orders` again"):
        do(config, kafka, "orders-old-changelog")
    assert noted_topics(config.checkpoint_dir) == sorted([*MADE, "orders-old-changelog"])
    with pytest.raises(ResetUnfinishedError, match="`streams reset orders` again"):
        check_no_reset("orders", config.checkpoint_dir)
    assert (Path(config.checkpoint_dir) / "in").exists(), "the checkpoint says what was: it stays until Kafka is done"
    kafka.protected = set()
    do(config, kafka)
    assert set(kafka.topics) == OTHERS
    check_no_reset("orders", config.checkpoint_dir)


def test_what_was_named_is_known_to_the_next_attempt(config: StreamsConfig) -> None:
    kafka = all_made().put("orders-old-changelog", b"row")
    kafka.protected = {"orders-old-changelog"}
    with pytest.raises(ResetUnfinishedError):
        do(config, kafka, "orders-old-changelog")
    kafka.protected = set()
    assert planned(config, kafka).topics == {
        **dict.fromkeys(MADE[:1], "topology.json"),
        "orders-again-repartition-commits": "topology.json",
        "orders-old-changelog": "a reset that was begun",
    }
    do(config, kafka)
    assert not kafka.topics


def test_what_is_not_the_engines_stays_in_the_folder(config: StreamsConfig, tmp_path: Path) -> None:
    folder = Path(config.checkpoint_dir)
    (folder / "notes.txt").touch()
    (folder / "photos").mkdir()
    (folder / "link").symlink_to(tmp_path / "checkpoint/orders-eu/in")
    said = do(config, all_made())
    assert said[-1].endswith("but for link, notes.txt, photos")
    assert (tmp_path / "checkpoint/orders-eu/in/offsets/0").exists()
    check_no_reset("orders", config.checkpoint_dir)


def test_another_applications_checkpoint_is_left_alone(config: StreamsConfig, tmp_path: Path) -> None:
    before = files(tmp_path)
    foreign = config.model_copy(update={"application_id": "stranger"})
    with pytest.raises(CheckpointMismatchError, match="belongs to another application id, 'orders'"):
        planned(foreign, all_made())
    assert files(tmp_path) == before


def test_a_checkpoint_in_a_remote_storage_is_left_to_its_tools(config: StreamsConfig) -> None:
    kafka = all_made()
    said = do(config.model_copy(update={"checkpoint_dir": "s3://bucket/orders"}), kafka)
    assert not kafka.topics
    assert "delete the checkpoint s3://bucket/orders with your storage's own tools" in said[-1]


def test_a_running_application_is_reported(config: StreamsConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = all_made()
    kafka.open = {(MADE[0], 0)}
    (warning,) = planned(config, kafka).warnings
    assert "a transaction is open" in warning
    monkeypatch.setattr("streams.application.reset.time.time", lambda: 5.007)
    assert "the last commit is 5 s old" in planned(config, kafka).warnings[1]
    monkeypatch.setattr("streams.application.reset.time.time", lambda: -86_400.0)
    assert "by the clock of this machine, the last commit comes in 86400 s" in planned(config, kafka).warnings[1]


@pytest.mark.parametrize("name", [".", "..", "...", "", "a/b", "/tmp"])
def test_ids_that_lead_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="application"):
        StreamsConfig(application_id=name, base_dir=tmp_path)
    keep = tmp_path / "state/app/sub/0"
    keep.mkdir(parents=True)
    with pytest.raises(ValueError, match="no folder of its own"):
        StateDirectory(tmp_path / "state").wipe(name)
    with pytest.raises(ValueError, match="no folder of its own"):
        StateDirectory(tmp_path / "state").task("app", name, 0)
    assert keep.exists()


def test_the_description_is_the_one_of_this_program() -> None:
    assert set(KEPT["sub_topologies"]) == {"in", "again-repartition"}


# --- A reset to a time or to offsets: the next start begins exactly there, with nothing of the old state.


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


def reset_to(world: World, wanted: Wanted | None) -> list[str]:
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
    said = reset_to(world, wanted)
    assert said[-1] == "made a new checkpoint of in, which begins at the chosen offsets"
    assert not list(world.config.state_dir.glob("app/*/*"))
    assert counted_from_here(world) == [(b"a", 1), (b"a", 2), (b"b", 1), (b"b", 2), (b"c", 1), (b"c", 2)]


def test_a_reset_without_positions_begins_at_the_start(world: World) -> None:
    reset_to(world, None)
    assert not Path(world.config.checkpoint_dir).exists()


def test_an_interrupted_reset_goes_on_to_the_same_positions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(names: object) -> None:
        raise KafkaClientError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.kafka, "delete_topics", refuse)
        with pytest.raises(ResetUnfinishedError):
            reset_to(world, Wanted(NOW_MS + 30_000))
    noted = noted_start(world.config.checkpoint_dir)
    assert noted["in"].start.topics["in"].offsets == (2, 2)
    reset_to(world, None)
    assert read_checkpoint(world.files, "in").first == noted["in"]
    assert counted_from_here(world)[0] == (b"a", 1)


def test_the_plan_says_what_happens_to_the_state(world: World) -> None:
    start = start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS + 30_000))
    told = "\n".join(plan_reset(world.config, world.kafka, world.kafka, start=start).lines())  # type: ignore[arg-type]
    assert "in then begins to read at in-0: 2, in-1: 2, with empty stores: older records are not in them" in told


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({("in", 0): 1}, r"in-1 is missing; its log has \[0, 5\)"),
        ({("in", 0): 1, ("in", 1): 9}, "offset 9 of in-1 is not in the log"),
        ({("in", 0): 1, ("in", 1): 1, ("out", 0): 0}, "out-0 is not a partition"),
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
    assert "resume with the next start" in "\n".join(plan.lines())


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
    with pytest.raises(ConfigError, match="cannot tell which topics app reads"):
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
    with pytest.raises(ConfigError, match="micro-batch 0 is logged"):
        plan_moves("app", world.kafka, world.files, {"in": 2}, at(world, 2))


def test_positions_are_not_moved_before_an_adopted_micro_batch_is_complete(world: World) -> None:
    """Task 0 has committed it, task 1 has not, and the checkpoint was lost: a move would skip the records of task 1."""
    world.run_half("a", "d")
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    assert adopt(world) == {"in": (7, 7)}
    markers = [read_last_marker(world.kafka, ("app-in-commits", task)) for task in (0, 1)]
    assert [each.marker.batch_id for each in markers if each] == [0, NEVER], "only half of it is committed"
    with pytest.raises(ConfigError, match="micro-batch 0 is logged"):
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
