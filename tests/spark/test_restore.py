"""What local stores hold, and what the changelogs restore, to compare the two."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from state.changelog import changelog_topic
from state.kafka.admin import KafkaAdmin
from state.restore.directory import StateDirectory
from state.stores.dump import read_task_store, state_digest
from state.tables.open_tables import open_table
from streams import JoinWindows, Materialized, StreamJoined, StreamsBuilder, TimeWindows
from streams.application.restore import restore_tasks
from streams.application.stored_tasks import stateful_subs, stored_tasks, with_own_topics
from streams.cli.main import app
from streams.topology.topology import Topology
from tests.spark import apps
from tests.spark.harness import Harness, RecordedProgress, Sent

TASKS = 2


def digests(root: Path, topology: Topology, application_id: str) -> dict[tuple[str, int, str], Any]:
    """What each store of each task holds, and up to where."""
    found: dict[tuple[str, int, str], Any] = {}
    for sub in stateful_subs(topology, application_id):
        for task in range(TASKS):
            folder = StateDirectory(root).task(application_id, sub.name, task).path
            with read_task_store(folder, [node.spec for node in sub.stores.values()]) as store:
                for name in store.specs:
                    expired = store.expired_before.get(name)
                    found[sub.name, task, name] = (state_digest(store, name), store.position, expired)
    return found


def differences(harness: Harness, topology: Topology, into: Path) -> list[tuple[str, int, str]]:
    """The stores of an application that are not what their changelogs restore, in this new folder."""
    config = harness.config()
    list(restore_tasks(stored_tasks(topology, config), config, into, parallel=2))
    live, rebuilt = (digests(root, topology, harness.application_id) for root in (config.state_dir, into))
    assert live
    return [place for place in live.keys() | rebuilt.keys() if live.get(place) != rebuilt.get(place)]


# --- After real runs: the stores rebuilt from the changelogs are the live ones, byte for byte; and `streams` shows them.

KEYS = [f"key-{n}" for n in range(20)]
MINUTE = 60_000
TASKS = 2


@dataclass(frozen=True)
class Topics:
    table: str
    readings: str
    left: str
    right: str
    joined: str


def everything(topics: Topics) -> Topology:
    """A table with deletes, an aggregate that deletes, windows that expire, a join that keeps duplicates."""
    builder = StreamsBuilder()
    builder.table(topics.table, materialized=Materialized(name="table"))
    builder.stream(topics.readings).group_by_key().aggregate(
        lambda: 0,
        lambda key, value, total: None if value % 5 == 0 else total + value,
        materialized=Materialized("sums"),
    )
    windows = TimeWindows.of_size_and_grace(2 * MINUTE, 0).advance_by(MINUTE)
    builder.stream(topics.readings).group_by_key().windowed_by(windows).count(materialized=Materialized("windows"))
    within = JoinWindows.of_time_difference_and_grace(MINUTE, 0)
    how = StreamJoined(name="pairs", store_name="pairs")
    right = builder.stream(topics.right)
    builder.stream(topics.left).join(right, lambda one, two: [one, two], within, how).to(topics.joined)
    return builder.build()


def records(rng: random.Random, count: int, start_ms: int, step_ms: int, nulls: bool = False) -> list[Sent]:
    """Some keys often, in small steps of time, some of them out of order."""
    return [
        Sent(
            rng.choice(KEYS).encode(),
            None if nulls and rng.random() < 0.3 else orjson.dumps(rng.randint(1, 9)),
            start_ms + i * step_ms - rng.choice((0, 0, 0, 5 * step_ms)),
        )
        for i in range(count)
    ]


def send_all(harness: Harness, topics: Topics, seed: int, start_ms: int, count: int = 120) -> None:
    rng = random.Random(seed)
    harness.send(topics.table, records(rng, count, start_ms, 1000, nulls=True))
    harness.send(topics.readings, records(rng, count, start_ms, 1000))
    for side in (topics.left, topics.right):
        # Equal keys at equal times: only the number of arrival tells such rows apart.
        harness.send(side, [*records(rng, count, start_ms, 1000), *[Sent(b"twin", b"1", start_ms + 1000)] * 3])


def begins(harness: Harness, stores: list[str]) -> dict[str, int]:
    places = {name: (changelog_topic(harness.application_id, name), 0) for name in stores}
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        found = admin.begin_offsets(places.values())
    return {name: found[place] for name, place in places.items()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_restored_stores_equal_the_live_ones(harness: Harness, tmp_path: Path) -> None:
    words = ("table", "readings", "left", "right", "joined")
    topics = Topics(*(harness.topic(word, TASKS) for word in words))
    topology = everything(topics)
    send_all(harness, topics, 1, 10 * MINUTE)
    # Small batches: many keys are written in many steps, so the changelogs are full of what compaction would remove.
    harness.run(topology, max_records_per_trigger=80)
    live = harness.config().state_dir

    def restored(name: str) -> Path:
        into = tmp_path / name
        tasks = stored_tasks(topology, harness.config())
        done = list(restore_tasks(tasks, harness.config(), into, parallel=2))
        assert sum(task.report.records for task in done) > sum(
            store.rows for task in done for store in task.report.stores
        )
        return into

    assert digests(restored("first"), topology, harness.application_id) == digests(
        live, topology, harness.application_id
    )
    stores = [name for name in topology.stores if name not in ("table", "sums")]
    before = begins(harness, stores)
    # Far ahead: every old segment expires; the step after that one, once Spark has confirmed it, trims the logs.
    send_all(harness, topics, 2, 1000 * MINUTE, count=60)
    send_all(harness, topics, 3, 1010 * MINUTE, count=60)
    harness.run(topology, max_records_per_trigger=80, trim_delay_ms=0)
    assert [name for name, offset in begins(harness, stores).items() if offset <= before[name]] == []
    again = restored("second")
    assert digests(again, topology, harness.application_id) == digests(live, topology, harness.application_id)
    # The application goes on from the restored folder as from its own.
    send_all(harness, topics, 4, 1020 * MINUTE, count=50)
    harness.run(topology, state_dir=again)
    assert digests(restored("third"), topology, harness.application_id) == digests(
        again, topology, harness.application_id
    )


@pytest.fixture
def counted(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """An application of `tests.spark.apps` that has run, and what it has counted."""
    monkeypatch.setenv("APPS_PREFIX", harness.application_id)
    source = harness.topic("words", TASKS)
    harness.topic("counts", TASKS)
    rng = random.Random(9)
    words = rng.choices(KEYS, k=300)
    harness.send(source, [Sent(word.encode(), orjson.dumps(word), 1000 + i) for i, word in enumerate(words)])
    harness.run(apps.counts())
    return Counter(words)


@pytest.fixture
def streams(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    """The command `streams`, about the harness's application."""
    monkeypatch.setenv("COLUMNS", "200")
    options = ["-a", harness.application_id, "--base-dir", str(harness.folder), "-b", harness.servers]

    def invoke(command: str, *arguments: object):
        return CliRunner().invoke(app, [command, "tests.spark.apps:counts", *map(str, arguments), *options])

    return invoke


def counting(harness: Harness) -> Topology:
    """The program as it runs live, with a repartition topic."""
    return with_own_topics(apps.counts(), harness.config())


def database_of(harness: Harness, task: int) -> Path:
    (sub,) = stateful_subs(counting(harness), harness.application_id)
    return StateDirectory(harness.config().state_dir).task(harness.application_id, sub.name, task).path / "db"


def spoil_a_row(harness: Harness, key: bytes) -> None:
    """Changes a row in whichever task's database has it, behind the engine's back."""
    for task in range(TASKS):
        shutil.copytree(database_of(harness, task), harness.folder / f"sound-{task}")
        table = open_table(database_of(harness, task))
        table.write([(found, b"wrong") for found, _ in table.scan(b"", None) if found[2:] == key])
        table.close()


def mend_the_row(harness: Harness) -> None:
    for task in range(TASKS):
        database = database_of(harness, task)
        shutil.rmtree(database)
        (harness.folder / f"sound-{task}").rename(database)


def json_lines(text: str) -> list[Any]:
    return [orjson.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_restore_and_state_on_the_command_line(
    counted: Counter[str], streams, harness: Harness, tmp_path: Path
) -> None:
    result = streams("restore", "--into", tmp_path / "rebuilt", "--json")
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    assert told["total"]["records"] >= told["total"]["rows"] == len(counted)
    assert {(store["store"], store["task"]) for store in told["stores"]} == {("counts", 0), ("counts", 1)}
    assert "restoring counts task" in result.stderr
    live = digests(harness.config().state_dir, counting(harness), harness.application_id)
    assert digests(tmp_path / "rebuilt", counting(harness), harness.application_id) == live

    refused = streams("restore", "--into", tmp_path / "rebuilt")
    assert (refused.exit_code, "is not an empty folder" in refused.output) == (1, True)
    table = streams("restore").output
    assert "Records/s" in table
    assert f"restored-{harness.application_id}-1" in table

    sound = orjson.loads(streams("restore", "--verify", "--json").stdout)
    assert (sound["rows"], sound["differences"], sound["elsewhere"]) == (len(counted), 0, [])
    spoil_a_row(harness, b"key-3")
    wrong = streams("restore", "--verify")
    assert wrong.exit_code == 1
    assert "1 keys differ" in wrong.stdout
    assert "key key-3: local wrong" in wrong.stdout
    assert "last changelog record at offset" in wrong.stdout
    assert not list(harness.folder.glob("verify-*"))
    mend_the_row(harness)

    for source in ([], ["--from-changelog"]):
        rows = json_lines(streams("state", "counts", "--json", *source).stdout)
        assert {row["key"]: row["value"] for row in rows} == dict(counted)
    assert streams("state", "counts", "--count").stdout.strip() == str(len(counted))
    (row,) = json_lines(streams("state", "counts", "--key", "key-3", "--json").stdout)
    assert row["value"] == counted["key-3"]
    sizes = json_lines(streams("state", "--json").stdout)
    assert sum(size["rows"] for size in sizes) == len(counted)


# --- On real Spark and Kafka: a worker takes snapshots, and a host that has lost its state starts from them.

STORED_S = 60.0
CLI = CliRunner()


def counts(topic: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count(materialized=Materialized("counts"))
    return builder.build()


def run_streams(harness: Harness, command: str, file: Path, *options: str) -> str:
    where = ["-b", harness.servers, "-a", harness.application_id, "--base-dir", str(harness.folder)]
    result = CLI.invoke(app, [command, f"{file}:build", "--json", *where, *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def snapshots(harness: Harness, file: Path, folder: Path, *options: str) -> list[dict[str, object]]:
    text = run_streams(harness, "snapshots", file, "--set", f"snapshot_dir={folder}", *options)
    found: list[dict[str, object]] = orjson.loads(text)
    return found


def copies_taken(progress: RecordedProgress) -> int:
    return sum(sub.counters.get("restored_from_copy", 0) for sub in progress.subs.values())


def test_a_lost_host_starts_from_snapshots_and_from_what_a_replica_keeps(harness: Harness) -> None:
    topic = harness.topic("in")
    topology, folder = counts(topic), harness.folder / "snapshots"
    file = harness.folder / "program.py"
    file.write_text(f"from tests.spark.test_restore import counts\n\ndef build():\n    return counts({topic!r})\n")
    settings = {"snapshot_dir": str(folder), "snapshot_steps": 1}
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 1_000 + n) for n in range(100)])
    harness.run(topology, **settings)
    # A worker stores a snapshot while its next steps run.
    deadline = time.monotonic() + STORED_S
    while len({one["task"] for one in snapshots(harness, file, folder)}) < TASKS:
        assert time.monotonic() < deadline, list(folder.rglob("*"))
        time.sleep(0.1)
    assert all(one["fault"] == "" and one["bytes"] for one in snapshots(harness, file, folder, "--verify"))
    shutil.rmtree(harness.config().state_dir)
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 2_000 + n) for n in range(50, 150)])
    progress = harness.run(topology, **settings)
    assert copies_taken(progress) == TASKS
    assert differences(harness, topology, harness.folder / "rebuilt") == []
    # A replica that joins its group, brings its copies to the last commits and ends; the host then loses its state again.
    told = orjson.loads(run_streams(harness, "replica", file, "--once").splitlines()[-1])
    assert [(task["stores"], task["behind"], task["warm"]) for task in told["tasks"]] == [(["counts"], 0, True)] * TASKS
    shutil.rmtree(harness.config().state_dir)
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 3_000 + n) for n in range(100)])
    assert copies_taken(harness.run(topology)) == TASKS
    assert differences(harness, topology, harness.folder / "rebuilt again") == []
