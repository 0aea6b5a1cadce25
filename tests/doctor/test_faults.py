"""Each fault is produced as it comes about, and the doctor says what is wrong, where, and which command mends it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from state.commit.marker import MARKER_KEY, CommitMarker
from state.errors import ClientFailure, KafkaClientError
from state.kafka.topics import TopicSpec
from streams import Joined, JoinWindows, JsonSerde, Materialized, StreamsBuilder, StringSerde, agg, col, fields
from streams.application.doctor.examine import CHECKS, examine
from streams.application.doctor.inspection import Finding, Severity, worst
from streams.application.doctor.program import FEWEST, key_format
from streams.application.reset import note_reset
from streams.cluster.admin import Replicas
from streams.config import StreamsConfig
from streams.testing.simulation import Crash
from tests.application.cluster import files
from tests.doctor.world import NOW_MS, World, only

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
    assert "but the checkpoint has them only up to 0: it was rolled back to an older copy" in found.says
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
    assert "a reset of app was started" in found.says
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


def test_group_offsets_of_live_tasks_may_be_behind_but_not_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitMarker, "live", property(lambda marker: True))
    world.kafka.groups["app"]["in", 1] = 1
    assert "consumer group" not in world.findings()
    world.kafka.groups["app"]["in", 1] = 6
    assert "the consumer group's offset is 6" in only(world.findings(), "consumer group").says


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


# --- Faults around the application: other writers, brokers and disks. Each is produced, and the doctor says what mends it.


def test_a_transaction_that_hangs(world: World) -> None:
    span = world.kafka.hang(COMMITS, 1)
    found = only(world.findings(), "transactions")
    assert "a transaction of an unknown transactional id (producer id 999) hangs" in found.says
    assert found.command == "streams transactions app.py -a app --hanging"
    assert where(found) == f"topic {COMMITS}, partition 1, offset {span.first}"


def test_a_transaction_of_a_producer_at_work_is_no_hanging_one(world: World) -> None:
    producer = world.kafka.producer("writer")
    producer.init_transactions()
    producer.begin()
    producer.send("in", 0, b"k", b"v", 1)
    found = only(world.findings(), "transactions")
    assert "a transaction of writer is open for 5 s; its coordinator aborts it after 60000 ms" in found.says
    assert found.severity is Severity.NOTE


def test_without_java_an_open_transaction_is_seen_nevertheless(world: World) -> None:
    world.kafka.hang("in", 0)
    found = only(world.findings(transactions=lambda: None), "transactions")
    assert "that needs Java and the broker's jars" in found.says
    assert found.command == "streams transactions app.py -a app"


def test_two_drivers_that_take_turns(world: World) -> None:
    for turn in ("query of two", world.checkpoint.query_id, "query of two", world.checkpoint.query_id):
        producer = world.kafka.producer("app-in-0")
        producer.init_transactions()
        producer.begin()
        marker = replace(world.marker(), query_id=str(turn))
        producer.send(COMMITS, 0, MARKER_KEY, marker.to_bytes(), NOW_MS)
        producer.commit()
    found = only(world.findings(), "drivers")
    assert "take turns: two drivers run under the application id app" in found.says
    assert where(found) == f"sub-topology in, task 0, topic {COMMITS}, partition 0"


def test_attempts_that_were_fenced(world: World) -> None:
    producer = world.kafka.producer("app-in-0")
    producer.init_transactions()
    producer.begin()
    producer.send(COMMITS, 0, MARKER_KEY, world.marker().to_bytes(), NOW_MS)
    world.run("f")
    found = only(world.findings(), "drivers")
    assert "1 attempt of this task were aborted within the last 10 min" in found.says
    assert found.severity is Severity.WARNING


# --- brokers and disks


@pytest.mark.parametrize(
    ("settings", "said", "severity"),
    [
        ({"transaction.max.timeout.ms": "1000"}, "broker 1 allows transactions of 1000 ms at most", Severity.ERROR),
        ({"unclean.leader.election.enable": "true"}, "broker 1 allows unclean leader election", Severity.WARNING),
        ({"offsets.retention.minutes": "5"}, "forgets the offsets of a group", Severity.NOTE),
    ],
)
def test_brokers_that_break_exactly_once(world: World, settings: dict[str, str], said: str, severity: Severity) -> None:
    world.kafka.brokers = {1: settings}
    found = only(world.findings(), "brokers")
    assert said in found.says
    assert found.severity is severity


def test_a_cluster_that_keeps_its_own_logs_once(world: World) -> None:
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    world.kafka.brokers = dict.fromkeys((1, 2, 3), settings)
    found = world.findings()
    assert ["log of transactions" in one.says or "min.isr is 1" in one.says for one in found["brokers"]] == [True, True]
    assert {one.place.topic for one in found["replicas"]} == {COMMITS, CHANGELOG}
    assert "the topic has 1 replica in a cluster of 3 brokers: the loss of one disk" in found["replicas"][0].says


def test_a_partition_without_enough_replicas_in_sync(world: World) -> None:
    world.kafka.settings["out"] = {"min.insync.replicas": "2"}
    world.kafka.in_sync = {("out", 0): Replicas(3, 1), ("out", 1): Replicas(3, 3)}
    found = only(world.findings(), "replicas")
    assert "1 replica of 3 in sync, and min.insync.replicas is 2" in found.says
    assert where(found) == "topic out, partition 0"


def test_local_state_of_another_origin(world: World) -> None:
    world.restore()
    other = World(world.folder / "other")
    other.driver = other.start(name="two")
    other.run().run("d", "e", "f")
    found = only(
        other.findings(config=other.config.model_copy(update={"state_dir": world.config.state_dir})), "local state"
    )
    assert "store 'counts' cannot continue" in found.says
    assert found.severity is Severity.NOTE


def test_local_state_that_is_damaged(world: World) -> None:
    world.restore()
    (world.config.state_dir / "app/in/1/db/CURRENT").write_text("no such manifest\n")
    found = only(world.findings(), "local state")
    assert "local state cannot be read" in found.says
    assert where(found) == "sub-topology in, task 1"


def test_local_state_of_a_task_that_is_gone(world: World) -> None:
    (world.config.state_dir / "app/in/7/db").mkdir(parents=True)
    found = only(world.findings(), "local state")
    assert found.command == f"rm -r {world.config.state_dir}/app/in/7"


def test_a_disk_that_is_nearly_full(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=usage.total // 100))
    found = only(world.findings(), "disk")
    assert "MiB free of" in found.says
    assert found.command == "streams run app.py -a app --set state_dir=FOLDER"


def test_a_state_folder_of_another_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.restore()
    monkeypatch.setattr("os.getuid", lambda: 12_345)
    found = world.findings()["disk"][0]
    assert "this is user 12345" in found.says
    assert found.command == f"chown -R 12345 {world.config.state_dir}"


@pytest.mark.parametrize("objects", [FEWEST, FEWEST - 1])
def test_a_field_that_no_record_has(tmp_path: Path, objects: int) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", value_serde=JsonSerde())
    orders.filter(col("amuont") > 0).select_key(col("id.nr")).map_values(fields(n=col("amount") * 2)).to("out")
    orders.group_by_key().aggregate(total=agg.sum("amount"), most=agg.max("amunt"))
    world = World(tmp_path, builder.build())
    for value in [b'{"amount":1,"id":{"nr":1}}'] * objects + [b"no JSON"]:
        world.kafka.append("in", b"k", value, NOW_MS, partition=0)
    found = world.findings().get("fields", [])
    assert [one.severity for one in found] == [Severity.NOTE] * (2 if objects == FEWEST else 0)
    for one, name in zip(found, ("amuont", "amunt"), strict=False):
        assert f"reads the field '{name}', which none of the last {objects} objects has" in one.says
        assert "Did you mean 'amount'?" in one.says


# --- A healthy application is said to be so, a line for each check, and nothing is changed by looking.


def test_a_healthy_application_has_a_line_per_check(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    world.restore()
    before, events = files(tmp_path), {name: world.kafka.end_offsets([(name, 0)]) for name in world.kafka.topics}
    results = list(examine(world.inspection()))
    said = [finding for result in results for finding in result.findings]
    assert [one for one in said if one.severity is not Severity.OK] == []
    assert len(said) == len(CHECKS) + 2
    assert worst(results) is Severity.OK
    assert files(tmp_path) == before
    assert {name: world.kafka.end_offsets([(name, 0)]) for name in world.kafka.topics} == events


def test_before_the_first_start_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert World(tmp_path).findings() == {}


def test_a_program_that_cannot_be_planned_is_the_only_finding(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.delete_topic("in")
    results = list(examine(world.inspection()))
    assert [result.check for result in results] == ["brokers", "program"]
    (finding,) = results[-1].findings
    assert "topic 'in' does not exist" in finding.says
    assert finding.command == "streams topic create in --partitions N"
    assert worst(results) is Severity.ERROR


def test_a_check_that_brokers_cannot_answer_yet_is_repeated_and_one_that_they_refuse_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path).run()
    loading = ClientFailure(14, "COORDINATOR_LOAD_IN_PROGRESS", "loading", retriable=True)
    answers: list[KafkaClientError | None] = [KafkaClientError("not yet", loading), None]

    def members(group: str) -> list[str]:
        if (error := answers.pop(0)) is not None:
            raise error
        return []

    monkeypatch.setattr(world.kafka, "group_members", members)
    assert world.findings() == {}
    answers.append(KafkaClientError("no right to describe the group"))
    found = only(world.findings(), "consumer group")
    assert (found.severity, found.says) == (
        Severity.WARNING,
        "this could not be checked: no right to describe the group",
    )


def test_what_a_running_application_commits_meanwhile_is_no_finding(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    inspection = world.inspection()
    assert [look.found[0].version for look in inspection.subs] == [1], "the markers are read"
    world.run("d")
    world.restore()
    found = {result.check: result.findings[0].severity for result in examine(inspection)}
    assert {found["consumer group"], found["local state"]} == {Severity.OK}


@pytest.mark.parametrize("keys", ["same", "quoted"])
def test_an_inner_join_whose_sides_have_keys_of_different_formats(tmp_path: Path, keys: str) -> None:
    builder = StreamsBuilder(default_value_serde=JsonSerde())
    left, right, table = builder.stream("left"), builder.stream("right"), builder.table("table")
    left.filter(lambda value: True).join(right, min, JoinWindows.of_time_difference_with_no_grace(10)).to("out")
    left.join(table, min).to("out")
    left.left_join(table, min, name="left-join").to("out")
    world = World(tmp_path, builder.build())
    for topic in ("left", "right", "table"):
        world.kafka.create_topic(topic, 2)
    for number in range(FEWEST):
        for topic in ("left", "right", "table"):
            key = b'"%d"' % number if topic == "left" and keys == "quoted" else b"%d" % number
            world.kafka.append(topic, key, b"1", NOW_MS, partition=0)
    found = world.findings().get("joins", [])
    assert [one.severity for one in found] == [Severity.NOTE] * (2 if keys == "quoted" else 0)
    for one, other in zip(sorted(found, key=lambda one: one.says), ("table", "right"), strict=False):
        assert f"'left' and '{other}'" in one.says


@pytest.mark.parametrize(("known", "severity"), [("orders", Severity.WARNING), ("some", Severity.NOTE), ("in", None)])
def test_joins_that_find_little_or_nothing(tmp_path: Path, known: str, severity: Severity | None) -> None:
    """Keys of another format are the usual cause; the counts of all tasks are added up."""
    builder = StreamsBuilder(default_value_serde=JsonSerde(), default_key_serde=StringSerde())
    builder.stream("in").join(builder.table("rows", materialized=Materialized("rows")), min, Joined(name="look-up")).to(
        "out"
    )
    world = World(tmp_path, builder.build())
    world.kafka.create_topic("rows", 2)
    keys = [str(number) for number in range(100)]
    for key in keys if known == "in" else keys[::2] if known == "some" else [f"o-{key}" for key in keys]:
        for partition in range(2):
            world.kafka.append("rows", key.encode(), b"1", NOW_MS, partition=partition)
    driver = world.start()
    while driver.trigger():
        pass  # the table first
    world.run(*keys)
    found = world.findings().get("matches", [])
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    for one in found:
        assert "found nothing in 'rows'" in one.says
        assert ("different serdes" in one.says) == (severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"42", b"7", True),
        (b"42", b'"42"', False),
        (b"UA", b"ua", False),
        (b"a1-2b", b"77c-d", True),
        (b"1-a", b"2-b3", True),
        ((5).to_bytes(8, "big"), b"5", False),
        ((5).to_bytes(8, "big"), (700).to_bytes(8, "big"), True),
    ],
)
def test_formats_of_keys(one: bytes, other: bytes, same: bool) -> None:
    assert (key_format(one) == key_format(other)) == same
