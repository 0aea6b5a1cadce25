"""Each fault is produced as it comes about, and the doctor says what is wrong, where, and which command mends it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from state.kafka.topics import TopicSpec
from streams import StreamsBuilder
from streams.application.doctor.inspection import Finding, Severity
from streams.application.reset import note_reset
from streams.config import StreamsConfig
from streams.testing.simulation import Crash
from tests.doctor.world import World, only

ADOPT = "streams adopt app.py -a app --dry-run"
RESET = "streams reset app --dry-run"
COMMITS, CHANGELOG = "app-in-commits", "app-counts-changelog"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application that has processed two micro-batches."""
    return World(tmp_path).run().run("d", "e")


def where(finding: Finding) -> str:
    return str(finding.place)


# --- checkpoint and markers


def test_a_lost_checkpoint_is_adopted(world: World) -> None:
    shutil.rmtree(Path(world.config.checkpoint_dir) / "in")
    found = only(world.findings(), "checkpoint")
    assert "there is no checkpoint, but 2 of 2 tasks have committed" in found.says
    assert (found.severity, found.command, where(found)) == (Severity.ERROR, ADOPT, "sub-topology in")


def test_a_checkpoint_that_was_rolled_back(world: World) -> None:
    for log in ("offsets", "commits"):
        (Path(world.config.checkpoint_dir) / "in" / log / "1").unlink()
    found = only(world.findings(), "checkpoint")
    assert "the checkpoint knows them up to 0 only: it was rolled back to an older copy" in found.says
    assert found.command == ADOPT


def test_a_damaged_checkpoint(world: World) -> None:
    (Path(world.config.checkpoint_dir) / "in" / "metadata").unlink()
    found = only(world.findings(), "checkpoint")
    assert "the checkpoint is damaged: its file in/metadata is missing" in found.says
    assert found.command == ADOPT


def test_the_checkpoint_of_another_application(world: World, tmp_path: Path) -> None:
    config = StreamsConfig(
        application_id="other",
        bootstrap_servers="nowhere:1",
        base_dir=tmp_path,
        checkpoint_dir=world.config.checkpoint_dir,
    )
    found = only(world.findings(config=config), "program")
    assert "belongs to another application id, 'app'" in found.says
    assert found.command == "streams run app.py -a other --set checkpoint_dir=FOLDER"


def test_commits_that_were_lost_under_a_checkpoint(world: World) -> None:
    settings = world.kafka.settings[COMMITS]
    world.kafka.delete_topic(COMMITS)
    world.kafka.create_topics([TopicSpec(COMMITS, 2, settings)])
    found = world.findings()
    (finding,) = found["checkpoint"]
    assert "the commits topic has nothing at all of task 0: the commits topic was deleted, truncated" in finding.says
    assert finding.command is None, "a new checkpoint would not help, and a reset gives the state up"
    (first, second) = found["changelogs"]
    assert "has records in offsets" in first.says
    assert (where(first), first.command) == ("sub-topology in, task 0", RESET)
    assert second.place.task == 1


def test_a_micro_batch_that_is_half_committed(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    driver = world.start()
    world.feed("d", "e")

    number = world.kafka.end_offsets([(COMMITS, 0), (COMMITS, 1)])

    original = world.cluster.happen

    def die(kind: str, where: str) -> None:
        if kind == "state file":
            raise Crash(where)
        original(kind, where)

    world.cluster.happen = die  # type: ignore[method-assign]
    with pytest.raises(Crash):
        driver.trigger()
    assert world.kafka.end_offsets(number) != number, "one task has committed"
    found = only(world.findings(), "micro-batch")
    assert "micro-batch 1 is committed by task 0, and not yet by task 1" in found.says
    assert (found.severity, found.command) == (Severity.NOTE, "streams run app.py -a app")


def test_an_unfinished_reset(world: World) -> None:
    note_reset(world.config.checkpoint_dir, ["t"])
    found = only(world.findings(), "start")
    assert "a reset of app was begun and has not come to its end" in found.says
    assert found.command == "streams reset app"


def test_another_program(world: World) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named="other").to_stream().to("out")
    found = world.findings(topology=builder.build())
    (finding,) = found["start"]
    assert "was written by another topology" in finding.says
    assert finding.command == f"streams diff {world.config.checkpoint_dir}/topology.json app.py"


# --- changelogs and internal topics


def test_a_changelog_that_is_missing(world: World) -> None:
    world.kafka.delete_topic(CHANGELOG)
    found = only(world.findings(), "internal topics")
    assert "the changelog of store 'counts' is missing, and the task has written it up to offset" in found.says
    assert found.command == RESET
    assert where(found).startswith(f"sub-topology in, task 0, topic {CHANGELOG}, partition 0, offset ")


def test_a_changelog_that_was_made_anew(world: World) -> None:
    settings = world.kafka.settings[CHANGELOG]
    world.kafka.delete_topic(CHANGELOG)
    world.kafka.create_topics([TopicSpec(CHANGELOG, 2, settings)])
    found = only(world.findings(), "changelogs")
    assert "was deleted and created again after step 2" in found.says
    assert (found.severity, where(found)) == (
        Severity.ERROR,
        f"sub-topology in, task 0, topic {CHANGELOG}, partition 0",
    )


def test_a_changelog_that_was_cut(world: World) -> None:
    world.kafka.log(CHANGELOG, 1).cut(2)
    found = only(world.findings(), "changelogs")
    assert "records of store 'counts' before offset 2 are gone, and the task still needs them" in found.says
    assert where(found) == f"sub-topology in, task 1, topic {CHANGELOG}, partition 1, offset 2"
    assert found.command is not None
    assert f"--entity-name {CHANGELOG}" in found.command


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cleanup.policy": "delete"}, "cleanup.policy is 'delete' where 'compact' is needed"),
        ({"retention.ms": "1000"}, "retention.ms is '1000' where '-1' is needed"),
    ],
)
def test_internal_topics_with_settings_that_lose_state(world: World, changes: dict[str, str], said: str) -> None:
    world.kafka.settings[CHANGELOG] |= changes
    found = only(world.findings(), "internal topics")
    assert said in found.says
    assert found.command is not None
    assert found.command.startswith("kafka-configs.sh --bootstrap-server HOST:PORT --alter")


def test_internal_topics_of_the_wrong_size(world: World) -> None:
    world.kafka.create_topic(CHANGELOG, 3)
    found = only(world.findings(), "internal topics")
    assert "it has 3 partitions, but the application runs with 2 tasks" in found.says
    assert where(found) == f"sub-topology in, topic {CHANGELOG}"


def test_topics_that_are_left_over(world: World) -> None:
    world.kafka.create_topic("app-old-changelog")
    found = only(world.findings(), "left-over topics")
    assert "nothing proves" in found.says
    assert found.command == "streams reset app --topics app-old-changelog --dry-run"
    assert found.severity is Severity.NOTE


def test_an_output_topic_that_is_missing(world: World) -> None:
    world.kafka.delete_topic("out")
    found = only(world.findings(), "output topics")
    assert found.command == "streams topic create out --partitions N"


# --- reading


def test_records_that_are_lost_before_they_were_read(world: World) -> None:
    world.feed("f", "g")
    world.kafka.log("in", 1).cut(6)
    found = world.findings()
    (finding,) = found["positions"]
    assert "With on_lost_offsets=fail, a start fails" in finding.says
    assert (finding.severity, where(finding)) == (
        Severity.ERROR,
        "sub-topology in, topic in, partition 1, offset 5",
    )
    assert finding.command == "streams run app.py -a app --set on_lost_offsets=earliest"


def test_an_input_that_was_made_anew(world: World) -> None:
    world.kafka.delete_topic("in")
    world.kafka.create_topic("in", 2)
    world.feed(*"abcdefgh")
    found = only(world.findings(), "positions")
    assert "topic 'in' was deleted and created again" in found.says


def test_unread_records_that_retention_is_about_to_delete(world: World) -> None:
    world.feed("f")
    world.cluster.advance(9_000)
    world.kafka.settings["in"] = {"retention.ms": "10000"}
    found = only(world.findings(), "retention")
    assert "1 offset not read yet, and the next one is older than 80% of the topic's retention (10 s)" in found.says
    assert where(found) == "sub-topology in, topic in, partition 0, offset 5"


def test_unread_records_close_to_the_start_of_a_log_that_is_being_cut(world: World) -> None:
    world.feed(*("f" for _ in range(40)))
    world.kafka.log("in", 0).cut(5)
    found = only(world.findings(), "retention")
    assert "the log begins 0 offsets before them" in found.says
    assert found.severity is Severity.WARNING


def test_group_offsets_that_somebody_has_moved(world: World) -> None:
    world.kafka.groups["app"]["in", 1] = 1
    found = only(world.findings(), "consumer group")
    assert "the consumer group's offset is 1, and the task has committed 5" in found.says
    assert found.command is not None
    assert "--topic in:1 --reset-offsets --to-offset 5" in found.command
    assert where(found) == "sub-topology in, task 1, topic in, partition 1, offset 1"


def test_group_offsets_that_kafka_has_forgotten(world: World) -> None:
    del world.kafka.groups["app"]["in", 0]
    found = only(world.findings(), "consumer group")
    assert (found.severity, found.command) == (
        Severity.NOTE,
        "streams adopt app.py -a app --position in:0=5 --dry-run",
    )


def test_consumers_in_the_applications_group(world: World) -> None:
    world.kafka.members = ["rdkafka on 10.0.0.7"]
    found = only(world.findings(), "consumer group")
    assert "(rdkafka on 10.0.0.7)" in found.says
