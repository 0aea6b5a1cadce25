"""What the doctor says of applications that are paused, rescaled, reset or have snapshots: no false alarm, no harmful advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from state.changelog import pauses_topic, repartition_config
from state.kafka.topics import TopicSpec
from state.restore.place import TaskPlace
from state.restore.task_stores import TaskStateManager
from streams import Processor, Retry, StreamsBuilder
from streams.application.doctor.examine import examine
from streams.application.doctor.inspection import Finding, Severity
from streams.application.prepare import ensure_internal_topics
from streams.application.rescale.plan import Phase, RescaleNotes, RescalePlan
from streams.application.reset import note_reset
from streams.engine.source.pauses import WHOLE, execution_record, pause_record
from tests.doctor.world import NOW_MS, World, only


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application that has processed two micro-batches, with snapshots switched on."""
    return World(tmp_path, settings={"snapshot_dir": str(tmp_path / "snapshots")}).run().run("d", "e")


@pytest.fixture
def plain(tmp_path: Path) -> World:
    """The same without snapshots."""
    return World(tmp_path).run().run("d", "e")


def take_snapshots(world: World) -> None:
    """A snapshot of each task, as of its last commit."""
    _, prepared = world.plan()
    specs = [node.spec for node in prepared.sub.stores.values()]
    for task in range(prepared.tasks):
        place = TaskPlace("app", prepared.sub.name, task, prepared.tasks, prepared.sub.topology_hash)
        marker = world.marker(task)
        stores = TaskStateManager(
            world.kafka,  # type: ignore[arg-type]
            place.identity(marker),
            specs,
            world.config.state_dir,
            snapshots=world.config.snapshots,
        )
        with stores.open() as store:
            stores.restore_to(store, marker)
            stores.snapshot(store)
        assert stores.publishing is not None
        assert stores.publishing.result() is not None


def manifests(world: World) -> list[Path]:
    return sorted(Path(world.config.snapshot_dir).glob("app/in/*/manifests/*.json"))


# --- pauses


def test_a_pause_is_a_note_and_its_topic_is_in_use(plain: World) -> None:
    plain.kafka.create_topics([TopicSpec(pauses_topic("app"), 1)])
    plain.kafka.append(pauses_topic("app"), *pause_record(WHOLE, NOW_MS), partition=0)
    plain.kafka.append(pauses_topic("app"), *pause_record("in", NOW_MS), partition=0)
    plain.cluster.advance(3 * 60_000)
    first, second = plain.findings()["pauses"]
    assert set(plain.findings()) == {"pauses"}, "nothing else is wrong, nothing is left over"
    assert (first.severity, first.command) == (Severity.NOTE, "streams resume app")
    assert "app has been paused for 3 min" in first.says
    assert second.command == "streams resume app --sub-topology in"
    plain.kafka.append(pauses_topic("app"), *pause_record(WHOLE, None), partition=0)
    plain.kafka.append(pauses_topic("app"), *pause_record("in", None), partition=0)
    assert plain.findings() == {}


@pytest.mark.parametrize("asked", ["auto", "micro-batch", None])
def test_an_execution_that_was_asked_for_is_a_note(plain: World, asked: str | None) -> None:
    plain.kafka.create_topics([TopicSpec(pauses_topic("app"), 1)])
    plain.kafka.append(pauses_topic("app"), *execution_record("micro-batch", NOW_MS), partition=0)
    plain.kafka.append(pauses_topic("app"), *execution_record(asked, NOW_MS), partition=0)
    found = plain.findings().get("execution", [])
    assert [one.severity for one in found] == {"auto": [Severity.NOTE] * 2, "micro-batch": [Severity.NOTE], None: []}[
        asked
    ]
    if found:
        assert f"app was asked to run with execution={asked}, which overrides its setting" in found[0].says
        assert found[0].command == "streams execution app as-set"
    if asked == "auto":
        # The world has run in micro-batches only.
        assert found[1].place.sub_topology == "in"
        assert "was a micro-batch's: it cannot run live (the keys of in are not where murmur2" in found[1].says


# --- rescales and resets


@pytest.mark.parametrize("phase", [Phase.COPYING, Phase.REPLACING])
def test_an_unfinished_rescale_is_the_only_finding_and_is_to_be_finished(plain: World, phase: Phase) -> None:
    """Else the doctor would have its copies deleted, and a new checkpoint made of markers that are closed."""
    notes = RescaleNotes(plain.kafka, plain.kafka, "app-in-rescale", "app-in-rescale")  # type: ignore[arg-type]
    notes.create(replace(RescalePlan("q", 2, 3, None), phase=phase))
    plain.kafka.create_topics([TopicSpec("app-counts-changelog-rescale", 3)])
    if phase is Phase.REPLACING:
        plain.kafka.delete_topics(["app-in-commits", "app-counts-changelog"])
    found = only(plain.findings(), "start")
    assert "a rescale of app was started" in found.says
    assert found.command == "streams rescale app.py -a app --tasks 3"


def test_an_unfinished_reset_is_the_only_finding(plain: World) -> None:
    note_reset(plain.config.checkpoint_dir, ["app-counts-changelog"])
    plain.kafka.delete_topics(["app-counts-changelog"])
    assert only(plain.findings(), "start").command == "streams reset app"


def test_retry_topics_have_the_partitions_of_the_first_start(tmp_path: Path) -> None:
    """A rescale leaves repartition topics as they are, and a start accepts them."""
    builder = StreamsBuilder()
    again = Retry((1_000,), dead_letters="dead", keep_order=True)
    builder.stream("in").process_values(Processor, named="ship", on_error=again).to("out")
    world = World(tmp_path, topology=builder.build(), settings={"tasks": 3})
    application = world.plan()[0]
    assert list(application.plan.repartition_topics) == ["app-ship-retry-1-repartition"]
    world.kafka.create_topics(
        [TopicSpec("dead", 1), TopicSpec("app-ship-retry-1-repartition", 2, repartition_config())]
    )
    ensure_internal_topics(application, world.kafka, lambda _: None)  # type: ignore[arg-type]
    assert world.findings() == {}
    # Of several letters with one key only the last would stay; a start refuses that, too.
    world.kafka.settings["dead"] = {"cleanup.policy": "compact"}
    found = only(world.findings(), "output topics")
    assert found.says.startswith("the topic of dead letters 'dead' is compacted")
    assert (found.severity, str(found.place)) == (Severity.ERROR, "topic dead")


# --- snapshots


def of_snapshots(world: World) -> list[Finding]:
    return world.findings().get("snapshots", [])


def test_snapshots_that_can_be_restored_are_well(world: World) -> None:
    take_snapshots(world)
    assert of_snapshots(world) == []


def test_missing_snapshots_are_a_note(world: World) -> None:
    first, second = of_snapshots(world)
    assert "there is none" in first.says
    assert (first.severity, first.command) == (Severity.NOTE, "streams snapshots app.py -a app")
    assert (first.place.task, second.place.task) == (0, 1)


def test_a_damaged_manifest_is_a_warning_and_the_one_before_is_taken(world: World) -> None:
    take_snapshots(world)
    damaged = manifests(world)[0]
    damaged.with_name("999999999999999-9.json").write_bytes(damaged.read_bytes()[:-40])
    (found,) = of_snapshots(world)
    assert "the snapshot 999999999999999-9.json" in found.says
    assert "damaged or incomplete" in found.says
    assert (found.severity, found.command) == (Severity.WARNING, "streams snapshots app.py -a app --verify")


@pytest.fixture
def other_logs(world: World) -> World:
    """The changelog was made anew since, as by a rescale or a reset."""
    take_snapshots(world)
    world.kafka.delete_topic("app-counts-changelog")
    world.kafka.create_topics([TopicSpec("app-counts-changelog", 2)])
    return world


def test_snapshots_that_fit_no_longer_are_a_note(other_logs: World) -> None:
    found = of_snapshots(other_logs)[0]
    assert "none of 1 snapshot fits; of the newest, store 'counts': local state comes from a topic" in found.says
    assert found.severity is Severity.NOTE


def test_a_task_that_commits_without_taking_snapshots_is_a_warning(world: World) -> None:
    take_snapshots(world)
    world.cluster.advance(31 * 60_000)
    world.run("f")
    found = of_snapshots(world)[0]
    assert "the task has committed for 31 min since its newest usable snapshot (step 2)" in found.says
    assert found.severity is Severity.WARNING


def test_without_a_folder_for_snapshots_nothing_is_looked_for(plain: World) -> None:
    assert "snapshots" in [result.check for result in examine(plain.inspection())]
    assert plain.findings() == {}
