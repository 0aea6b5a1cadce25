"""`streams adopt` says what it would do, asks, and leaves alone what fits."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from state.changelog import commits_topic, ensure_commits
from state.commit.live import LiveKafka
from state.commit.marker import MARKER_KEY, read_last_marker
from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from streams import Grouped, Materialized, StreamsBuilder
from streams.application.owned_topics import write_manifest
from streams.application.pausing import Pausing
from streams.broker import EmbeddedBroker
from streams.cli.dlq import DeadLetters, _cells
from streams.cli.output import print_table
from streams.config import Execution
from streams.engine.source.pauses import WHOLE, Pauses
from streams.errors import ConfigError
from streams.topology.plan import Plan, build_plan
from streams.topology.topology import Topology
from tests.application.cluster import marker
from tests.checkpoint.made import made_marker
from tests.cli.conftest import Command
from tests.kafka_client.rows import eventually

APP, INPUT = "app-adopts", "app-adopts.input"
TARGET = f"{__name__}:build"


def build() -> Topology:
    """Copies records."""
    builder = StreamsBuilder()
    builder.stream(INPUT).to("app-adopts.output")
    return builder.build()


@pytest.fixture
def client(broker: EmbeddedBroker) -> dict[str, str]:
    """An application of two tasks on two partitions with 5 records each; task 0 has committed one micro-batch more."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    (sub,) = build_plan(build(), APP).sub_topologies
    with KafkaAdmin(client) as admin:
        admin.create_topics([TopicSpec(INPUT, 2)])
        ensure_commits(admin, APP, sub.name, 2)
        topic_id = admin.describe_topics([INPUT])[INPUT].topic_id
        for task, (batch, start, end) in enumerate([(7, 2, 5), (6, 0, 3)]):
            marker = made_marker(
                task,
                topology_hash=sub.topology_hash,
                batch_id=batch,
                ranges={INPUT: {str(task): (start, end)}},
                topic_ids={INPUT: topic_id},
            )
            with TransactionalProducer(client, f"{APP}-{task}") as producer:
                producer.init_transactions()
                producer.begin()
                for _ in range(5):
                    producer.send(INPUT, task, b"k", b"v", 1)
                producer.send(commits_topic(APP, sub.name), task, MARKER_KEY, marker.to_bytes(), 1)
                producer.send_offsets({(INPUT, task): end}, APP)
                producer.commit()
        wait_until_decided(admin, [(commits_topic(APP, sub.name), task) for task in range(2)], 60)
    return client


def test_adopt(streams, client: dict[str, str], tmp_path: Path) -> None:
    (sub,) = build_plan(build(), APP).sub_topologies
    command = ["adopt", TARGET, "-a", APP, "-b", client["bootstrap.servers"]]
    checkpoint = tmp_path / "var" / "checkpoint" / APP

    for more, answer, code in ((["--dry-run"], "", 0), ([], "n\n", 1)):
        asked = streams(*command, *more, answer=answer)
        assert asked.exit_code == code, asked.output
        assert "there is no checkpoint, but 2 of 2 tasks have committed" in asked.output
        assert "have committed the last micro-batch: tasks 0" in asked.output
        assert "have not, and run it again: tasks 1" in asked.output
        assert f"{INPUT}-0: 5, {INPUT}-1: 3" in asked.output
        assert not checkpoint.exists()

    done = streams(*command, "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (checkpoint / sub.name).iterdir()) == ["first-batch.json", "metadata"]
    kafka = LiveKafka(client, 60_000)
    for task, batch in enumerate([0, -1]):
        found = read_last_marker(kafka, (commits_topic(APP, sub.name), task))
        assert found is not None
        assert (found.marker.batch_id, found.marker.version, found.marker.adopted) == (batch, 3, 3)

    again = streams(*command)
    assert again.exit_code == 0
    assert "matches the commits: there is nothing to do" in again.output

    wrong = streams(*command, "--position", "input")
    assert wrong.exit_code == 1
    assert "TOPIC:PARTITION=OFFSET" in wrong.output


# `streams reset` deletes what an application has made, and nothing else.

KEPT = (
    "app-resets.input",
    "app-resets-changelog-of-somebody",
    "app-resets-users-changelog",
    "app-resetsother-s-changelog",
    "app-resets-eu-s-changelog",
    "app-resets-eu-sub-commits",
)
DELETED = (
    "app-resets-s-changelog",
    "app-resets-sub-commits",
    "app-resets-by-word-repartition",
    "app-resets-by-word-repartition-commits",
    "app-resets-old-changelog",
    "app-resets-gone-commits",
)


def plan() -> Plan:
    builder = StreamsBuilder()
    words = builder.stream("sub").group_by_key().count(materialized=Materialized(name="s")).to_stream()
    words.group_by(lambda v: v, Grouped(name="by-word")).count(materialized=Materialized(name="t", logging=False))
    return build_plan(builder.build(), "app-resets")


@pytest.fixture
def application(broker: EmbeddedBroker, tmp_path: Path) -> dict[str, str]:
    """Topics, markers, committed offsets, local state and a checkpoint."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    with KafkaAdmin(client) as admin:
        admin.create_topics(TopicSpec(name, 1) for name in (*KEPT, *DELETED))
        with TransactionalProducer(client, "resets") as producer:
            producer.init_transactions()
            producer.begin()
            for topic, store in (("app-resets-gone-commits", "old"), ("app-resets-eu-sub-commits", "s")):
                owner = topic.rsplit("-", 2)[0]
                producer.send(topic, 0, MARKER_KEY, marker(owner, [store]).to_bytes(), 1)
            producer.send_offsets({(KEPT[0], 0): 5}, "app-resets")
            producer.commit()
        # They show a moment after the commit.
        eventually(lambda: admin.group_offsets("app-resets"), {(KEPT[0], 0): 5})
        places = [("app-resets-gone-commits", 0), ("app-resets-eu-sub-commits", 0)]
        eventually(lambda: admin.end_offsets(places), dict.fromkeys(places, 2))
    for folder in (
        "state/app-resets/sub/0/db",
        "state/other/sub/0/db",
        "checkpoint/app-resets/sub",
        "checkpoint/other",
    ):
        (tmp_path / "var" / folder).mkdir(parents=True)
        (tmp_path / "var" / folder / "file").touch()
    write_manifest(plan(), str(tmp_path / "var/checkpoint/app-resets"))
    return client


def test_reset(streams, application: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = application["bootstrap.servers"]
    with KafkaAdmin(application) as admin:
        for asked in (
            streams("reset", "app-resets", "-b", servers, answer="n\n"),
            streams("reset", "app-resets", "-b", servers, "--dry-run", "--yes"),
        ):
            assert asked.exit_code == (0 if "nothing was deleted" in asked.output else 1)
            assert all(f"  {name}: up to " in asked.output for name in DELETED)
            assert "not app-resets-eu-s-changelog: it belongs to the application app-resets-eu" in asked.output
            assert "not app-resets-users-changelog: nothing proves" in asked.output
            assert "warning: the last commit is" in asked.output
            assert admin.group_offsets("app-resets") == {(KEPT[0], 0): 5}
            assert set(admin.describe_topics(DELETED)) == set(DELETED)

        found = json.loads(streams("reset", "-a", "app-resets", "-b", servers, "--dry-run", "--json").output)
        assert (found["deleted"], sorted(found["topics"])) == (False, sorted(DELETED))
        assert "cannot ask" in streams("reset", "app-resets", "-b", servers, "--json").output
        assert set(admin.describe_topics(DELETED)) == set(DELETED)

        refused = streams("reset", "app-resets", "-b", servers, "--yes")
        assert refused.exit_code == 1
        assert "may still be running" in refused.output
        assert set(admin.describe_topics(DELETED)) == set(DELETED)

        monkeypatch.setattr("streams.application.reset.RECENT_MS", 0)
        done = streams("reset", "app-resets", "-b", servers, "--yes")
        assert done.exit_code == 0, done.output
        assert "deleted consumer group app-resets" in done.output
        assert "deleted local state of 1 task" in done.output
        assert admin.describe_topics(DELETED) == {}
        assert set(admin.describe_topics(KEPT)) == set(KEPT)
        assert admin.group_offsets("app-resets") == {}
        assert [path.name for path in sorted((tmp_path / "var").glob("*/*"))] == ["other", "other"]

        again = streams("reset", "app-resets", "-b", servers, "--yes", "--topics", "app-resets-users-changelog")
        assert again.exit_code == 0, again.output
        assert "topics: 1" in again.output
        assert set(admin.describe_topics(KEPT)) == {*KEPT} - {"app-resets-users-changelog"}
        assert "topics: none" in streams("reset", "app-resets", "-b", servers, "--yes").output
        admin.delete_topics(KEPT)


@pytest.mark.parametrize("name", [".", ".."])
def test_folders_are_no_applications(streams, name: str, tmp_path: Path) -> None:
    (tmp_path / "var/state/app/sub/0").mkdir(parents=True)
    result = streams("reset", name, "-b", "nowhere:1", "--yes")
    assert (result.exit_code, "dots alone mean other folders" in result.output) == (1, True), result.output
    assert (tmp_path / "var/state/app/sub/0").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("one", "-a", "two"), "Two applications are named, 'one' and 'two'"), ((), "application_id: it must be given")],
)
def test_one_application_is_reset_at_a_time(streams, arguments: tuple[str, ...], said: str) -> None:
    result = streams("reset", *arguments, "-b", "nowhere:1", "--yes")
    assert (result.exit_code, said in result.output) == (1, True), result.output


@pytest.mark.parametrize("target", ["app.py", "shop.app:build"])
def test_a_topology_in_the_place_of_the_id_is_refused(streams, target: str) -> None:
    result = streams("reset", target, "-b", "nowhere:1", "--dry-run")
    assert (result.exit_code, f"'{target}' is a topology, and a reset takes the application's id" in result.output) == (
        1,
        True,
    ), result.output


# `streams rescale` says what is missing before it asks Kafka anything.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--json"], "--json cannot ask"),
        (["--tasks", "3", "--json"], "--json cannot ask"),
        (["--tasks", "3", "--state", "node"], "NODE=copy or NODE=drop is needed"),
        (["--tasks", "3", "--state", "node=keep"], "NODE=copy or NODE=drop is needed"),
    ],
)
def test_what_is_missing_is_said(streams, arguments: list[str], says: str) -> None:
    done = streams("rescale", "app.py", *arguments)
    assert done.exit_code == 1
    assert says in done.output


# `streams resume` reports what it has resumed.


@pytest.mark.parametrize(
    ("before", "after", "printed"),
    [
        ({WHOLE: 1, "in": 2}, {}, "app is resumed\napp: in is resumed\n"),
        ({"a": 0, "b": 0}, {"b": 0}, "app: a is resumed\napp: b has been paused since 1970-01-01T00:00:00.000Z\n"),
        ({}, {}, "nothing of app is paused\n"),
    ],
)
def test_resume_reports_what_it_has_resumed(streams, monkeypatch, before, after, printed) -> None:
    monkeypatch.setattr("streams.cluster.admin.check_reachable", lambda client: None)
    monkeypatch.setattr(Pausing, "pauses", lambda self: Pauses(before))
    monkeypatch.setattr(Pausing, "resume", lambda self, sub: Pauses(after))
    assert streams("resume", "app", "-b", "localhost:9").output == printed


@pytest.mark.parametrize(
    ("how", "asked", "printed"),
    [
        ("auto", Execution.AUTO, "app runs with execution=auto from now on\n"),
        ("micro-batch", Execution.MICRO_BATCH, "app runs with execution=micro-batch from now on\n"),
        ("as-set", None, "app runs as its settings say from now on\n"),
    ],
)
def test_an_execution_is_asked_for(streams, monkeypatch, how, asked, printed) -> None:
    heard = []
    monkeypatch.setattr("streams.cluster.admin.check_reachable", lambda client: None)
    monkeypatch.setattr(Pausing, "execute", lambda self, execution: heard.append((self.application_id, execution)))
    assert streams("execution", "app", how, "-b", "localhost:9").output == printed
    assert heard == [("app", asked)]


def test_live_is_not_asked_for_because_it_could_end_the_application() -> None:
    with pytest.raises(ConfigError, match="with auto, all parts that can run live do so"):
        Pausing("app", {}).execute(Execution.LIVE)


# `streams dlq` refuses what it cannot know before it asks any cluster. (What it does: `spark/test_bad_records.py`.)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list"], "Name a topology"),
        (["purge", "--topic", "dlq"], "how far?"),
        (["purge", "--topic", "dlq", "--all", "--replayed"], "how far?"),
        (["purge", "--topic", "dlq", "--all", "--json"], "--json cannot ask"),
        (["replay", "--topic", "dlq", "--json"], "--json cannot ask"),
        (["list", "--topic", "dlq"], "No Kafka cluster is given"),
    ],
)
def test_mistakes(streams, words, says):
    run = streams("dlq", *words)
    assert run.exit_code == 1
    assert says in run.output


@pytest.mark.parametrize("command", [["dlq", "replay"], ["dlq", "purge"], ["dlq", "list"], ["dlq", "show"], ["pause"]])
def test_every_command_has_help(streams, command):
    run = streams(*command, "--help")
    assert run.exit_code == 0
    assert "Usage: streams" in run.output


def test_a_list_shows_the_whole_message(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    message = " ".join(f"word{number}" for number in range(40))
    row = {"topic": "dlq", "error": "ValueError", "message": message, "stage": "processing", "origin": "in-0@1"}
    cells = _cells({**row, "letters": 1, "replayed": 0, "last": 0, "position": "0:0"})
    print_table([""] * len(cells), [cells])
    printed = capsys.readouterr().out
    assert all(word in printed for word in message.split())


def test_a_topic_that_does_not_exist_has_no_letters(streams, monkeypatch):
    monkeypatch.setattr("streams.cli.dlq.reachable", lambda config: config)
    nothing = SimpleNamespace(describe_topics=lambda names: {})
    monkeypatch.setattr(DeadLetters, "log", lambda self: SimpleNamespace(admin=nothing))
    run = streams("dlq", "list", "--topic", "dead-letters", "-b", "127.0.0.1:1")
    assert run.exit_code == 0, run.output
    assert "The topic dead-letters does not exist" in run.output
    assert "no dead letters" in run.output


def test_an_application_without_snapshots_is_an_answer(streams, monkeypatch):
    monkeypatch.setattr("streams.cli.options.reachable", lambda config: config)
    run = streams("snapshots", "topologies.word_count:build", "-a", "words", "-b", "127.0.0.1:1")
    assert (run.exit_code, "words takes no snapshots: snapshot_dir is not set" in run.output) == (0, True), run.output


# `streams acls`: prints the rights of an application, without a cluster.


def test_acls_prints_commands_without_any_cluster(streams: Command) -> None:
    program = "tests.security.secured:counts_by_country"
    result = streams("acls", program, "-a", "secured", "-f", "commands", "--principal", "User:bob")
    lines = result.output.splitlines()
    assert len(lines) == 6
    assert lines[0] == (
        "kafka-acls.sh --bootstrap-server HOST:PORT --command-config admin.properties --add --allow-principal User:bob "
        "--operation Write --topic counts"
    )


def test_acls_refuses_a_principal_without_type(streams: Command) -> None:
    result = streams("acls", "tests.security.secured:counts_by_country", "--principal", "bob")
    assert result.exit_code == 1
    assert "User:alice" in result.output


def test_acls_prints_json_for_programs(streams: Command) -> None:
    result = streams(
        "acls", "tests.security.secured:counts_by_country", "-a", "secured", "-f", "json", "-X", "sasl.username=ann"
    )
    found = json.loads(result.output)
    assert found["principal"] == "User:ann"
    assert found["rights"][-1] == {
        "resource": "transactional-id",
        "name": "secured-",
        "pattern": "prefixed",
        "operations": ["Write"],
        "for": "one transaction for each step of a task",
    }


def test_a_grant_needs_a_principal(streams: Command) -> None:
    result = streams("acls", "tests.security.secured:counts_by_country", "--grant", "-b", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "--grant needs --principal" in result.output
