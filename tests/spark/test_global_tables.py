"""Global tables on Spark: every task sees all of a topic up to the offset that was logged with its micro-batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from state.changelog import changelog_topic
from state.commit.live import LiveKafka
from state.errors import KafkaClientError
from streams import Consumed, Joined, Materialized, StreamsBuilder, StringSerde
from streams.engine.graph.global_tables import GlobalTables
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.offsets import TopicOffsets
from streams.engine.source.topics import SourceSpec
from streams.engine.step import global_tables
from streams.engine.step.global_tables import global_stores
from streams.engine.step.job import QueryJob
from streams.errors import ConfigError, StreamsError
from streams.testing.simulation import SimulatedKafka
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent
from tests.spark.live import transaction

TEXT = StringSerde()


def joined(source: str, names: str, target: str, *, persistent: bool = True) -> Topology:
    """Each record's value with the name that it stands for."""
    builder = StreamsBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    table = builder.global_table(names, Consumed(name="names"), Materialized(name="by-id", persistent=persistent))
    stream = builder.stream(source)
    how = Joined(name="named")
    stream.left_join(table, lambda one, name: f"{one}={name}", key_selector=lambda one: one, joined=how).to(target)
    return builder.build()


class App:
    """The topics of a test."""

    def __init__(self, harness: Harness, persistent: bool = True) -> None:
        self.harness = harness
        self.source, self.names = harness.topic("in", 2), harness.topic("names", 3)
        self.target = harness.topic("out", 1)
        self.topology = joined(self.source, self.names, self.target, persistent=persistent)
        self.read = 0

    def name(self, **names: str | None) -> None:
        self.harness.send(
            self.names, [Sent(key.encode(), None if name is None else name.encode(), 5) for key, name in names.items()]
        )

    def ask(self, *keys: str) -> None:
        records = [Sent(f"k{n}".encode(), key.encode(), 10 + n) for n, key in enumerate(keys)]
        self.harness.send(self.source, records)

    def run(self) -> list[str]:
        self.harness.run(self.topology)
        return self.new()

    def new(self) -> list[str]:
        found = self.harness.read(self.target)[self.read :]
        self.read += len(found)
        return sorted(record.value.decode() for record in found if record.value is not None)


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.long)], ids=["on-disk", "in-memory"])
def app(harness: Harness, request: pytest.FixtureRequest) -> App:
    return App(harness, request.param)


def test_every_task_sees_all_of_it_and_what_is_new(app: App) -> None:
    ids = [f"i{n}" for n in range(12)]
    app.name(**{key: f"name-of-{key}" for key in ids})
    app.ask(*ids, "unknown")
    assert app.run() == sorted([*(f"{key}=name-of-{key}" for key in ids), "unknown=None"])

    app.name(i0="new", i1=None)
    app.ask("i0", "i1", "i2")
    assert app.run() == ["i0=new", "i1=None", "i2=name-of-i2"]

    # A new name alone is no input; it is there for the next record. All local state is gone by then.
    app.name(i1="back")
    assert app.run() == []
    shutil.rmtree(app.harness.config().state_dir)
    app.ask("i0", "i1", "i2")
    assert app.run() == ["i0=new", "i1=back", "i2=name-of-i2"]


@pytest.mark.micro_batches("a micro-batch is repeated; a live step never is")
def test_a_repeated_batch_sees_what_it_saw(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.name(a="one", b="one")
    app.ask("a")
    assert app.run() == ["a=one"]

    # Every attempt dies once it has processed its records: the batch is planned and logged, nothing of it is committed.
    app.ask("a", "b")
    monkeypatch.setenv("STREAMS_FAULT", "process_done")
    with pytest.raises(StreamsError):
        app.run()
    monkeypatch.delenv("STREAMS_FAULT")
    assert app.new() == []

    app.name(a="two", b=None, c="two")
    app.ask("c", "a")
    # The logged batch first, with the names of its time; then a batch with the new ones.
    assert app.run() == ["a=one", "a=two", "b=one", "c=two"]


@pytest.mark.long  # `test_a_repeated_batch_sees_what_it_saw` has a batch of which no task has committed anything
@pytest.mark.micro_batches("a micro-batch is repeated; a live step never is")
def test_one_step_is_committed_the_other_repeated(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.name(a="one")
    app.ask(*["a"] * 8)
    monkeypatch.setenv("STREAMS_FAULT", "process_done@1")
    with pytest.raises(StreamsError):
        app.run()
    monkeypatch.delenv("STREAMS_FAULT")
    app.name(a="two")
    app.run()
    assert [record.value for record in app.harness.read(app.target)] == [b"a=one"] * 8


def test_what_is_skipped_is_in_the_report_and_dead_letters_are_refused(harness: Harness) -> None:
    app = App(harness)
    harness.send(app.names, [Sent(b"a", b"\xff", 5), Sent(b"b", b"two", 5)])
    app.ask("a", "b")
    with pytest.raises(ConfigError, match="Set global_table_errors"):
        harness.run(app.topology, deserialization="dlq", dead_letter_topic=app.target)
    assert not harness.config().state_dir.exists()
    progress = harness.run(app.topology, deserialization="skip")
    assert app.new() == ["a=None", "b=two"]
    # Once for each process that has a copy of the table.
    assert 1 <= sum(sub.counters.get("skipped:deserialization", 0) for sub in progress.subs.values()) <= 4


def test_a_process_reads_no_further_than_the_logged_ends(harness: Harness) -> None:
    app = App(harness)
    config = harness.config()
    (sub,) = build_plan(app.topology, harness.application_id).sub_topologies
    spec = SourceSpec({app.source: "earliest"}, global_topics=(app.names,))
    settings = TaskSettings(harness.application_id)
    job = QueryJob(sub, 1, settings, spec, config.client, config.state_dir, 10_000, 1 << 20, True)
    kafka = LiveKafka(config.client, 10_000)

    def at(ends: dict[str, TopicOffsets], job: QueryJob = job) -> dict[str, str]:
        stores = global_stores(job, ends, kafka, 0)
        return {key: row.value for key, row in stores["by-id"].all()}

    def planned() -> dict[str, TopicOffsets]:
        info = kafka.admin.describe_topics([app.names])[app.names]
        ends = kafka.admin.end_offsets([(app.names, p) for p in range(info.partitions)])
        return {app.names: TopicOffsets(info.topic_id, tuple(ends[app.names, p] for p in range(info.partitions)))}

    app.name(a="one", b="one")
    first = planned()
    transaction(harness, app.names, [Sent(b"a", b"two", 5, p) for p in range(3)], commit=False)
    transaction(harness, app.names, [Sent(b"c", b"two", 5, p) for p in range(3)])
    second = planned()
    assert at(first) == {"a": "one", "b": "one"}
    # The ends lie behind control records and aborted ones: nothing is waited for, nothing aborted is seen.
    assert at(second) == at(second) == {"a": "one", "b": "one", "c": "two"}
    # A rolled-back checkpoint; a folder that somebody has deleted.
    assert at(first) == {"a": "one", "b": "one"}
    shutil.rmtree(config.state_dir)
    assert at(second) == {"a": "one", "b": "one", "c": "two"}
    # Records were deleted before they were read: what is left counts.
    kafka.delete_records({(app.names, p): end for p, end in enumerate(second[app.names].offsets)})
    assert at(second, replace(job, state_dir=harness.folder / "elsewhere")) == {}


DAY_MS = 24 * 60 * 60 * 1000


class Copies:
    """The copies of a global table on this disk, whose topic, `names`, is in a simulated Kafka."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka, self.now_ms, self.read_from = SimulatedKafka({"names": 1}), 1_700_000_000_000, []
        (sub,) = build_plan(joined("in", "names", "out"), "app").sub_topologies
        spec = SourceSpec({"in": "earliest"}, global_topics=("names",))
        self.job = QueryJob(sub, 1, TaskSettings("app"), spec, {}, folder, 10_000, 1 << 20, False)
        monkeypatch.setattr(global_tables, "shared_reader", self._reader)
        monkeypatch.setattr(global_tables, "wall_clock_ms", lambda: self.now_ms)
        monkeypatch.setattr(self.kafka, "delete_retention_ms", lambda topic: DAY_MS)

    def _reader(self, client: object, topic: str, partition: int, start: int, bulk: bool) -> Any:
        self.read_from.append(start)
        return SimpleNamespace(read=lambda end: self.kafka.read(topic, partition, start, end))

    def names(self, **names: str | None) -> Copies:
        for key, name in names.items():
            self.kafka.append("names", key.encode(), None if name is None else name.encode(), partition=0)
        return self

    def rows(self) -> dict[str, str]:
        """What a process sees in a micro-batch that is planned now."""
        ends = {"names": TopicOffsets("id", (self.kafka.log("names", 0).stable_end,))}
        stores = global_stores(self.job, ends, self.kafka, self.now_ms)
        return {key: row.value for key, row in stores["by-id"].all()}

    def end_process(self) -> None:
        for one in global_tables._open.values():
            one.close()
        global_tables._open.clear()


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copies]:
    made = Copies(tmp_path, monkeypatch)
    yield made
    made.end_process()


def unblock(copies: Copies) -> None:
    copies.names(a=None, c="new")
    copies.kafka.log("names", 0).compact(tombstones=True)
    assert copies.kafka.begin_offset(("names", 0)) == 0, (
        "the tombstone of a is gone, and the log's begin does not say so"
    )


def test_a_copy_that_was_away_for_longer_than_tombstones_stay_is_read_again(copies: Copies) -> None:
    assert copies.names(a="old", b="old").rows() == {"a": "old", "b": "old"}
    copies.end_process()
    unblock(copies)
    copies.now_ms += DAY_MS
    assert copies.rows() == {"b": "old", "c": "new"}
    assert copies.read_from == [0, 0]


def test_a_copy_of_an_older_version_does_not_know_how_old_it_is(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GlobalTables, "reached", lambda self, topic, partition, offset, as_of_ms: None)
        copies.names(a="old", b="old").rows()
    copies.end_process()
    unblock(copies)
    assert copies.rows() == {"b": "old", "c": "new"}


def test_a_topic_without_new_records_does_not_make_a_copy_old(copies: Copies) -> None:
    copies.names(a="old").rows()
    for _ in range(9):
        copies.now_ms += DAY_MS // 4
        assert copies.rows() == {"a": "old"}
    assert copies.names(b="new").rows() == {"a": "old", "b": "new"}
    assert copies.read_from == [0, 1], "only the new record"


def test_without_the_right_to_ask_an_hour_is_assumed(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(topic: str) -> int:
        raise KafkaClientError("refused")

    monkeypatch.setattr(copies.kafka, "delete_retention_ms", refuse)
    copies.names(a="old").rows()
    for waited_ms in (20 * 60_000, 40 * 60_000):
        copies.now_ms += waited_ms
        copies.names(b="new").rows()
    assert copies.read_from == [0, 1, 0]


def test_rows_that_the_program_gives_are_written_once_and_follow_it(harness: Harness) -> None:
    """Those of Spark and of pandas, over restarts; what reads the rest of a start sees the rows at its first record."""
    source, target = harness.topic("in"), harness.topic("out", 1)
    topic, seen = changelog_topic(harness.application_id, "names"), 0

    def asked(frame: Any, *keys: str) -> list[str]:
        nonlocal seen
        builder = StreamsBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        names = builder.global_table_from(frame, "names", key="id")
        stream = builder.stream(source)
        stream.join(names, lambda one, row: f"{one}={row['name']}", key_selector=lambda one: one).to(target)
        harness.send(source, [Sent(key.encode(), key.encode(), 10) for key in keys])
        harness.run(builder.build())
        found = harness.read(target)[seen:]
        seen += len(found)
        return sorted(record.value.decode() for record in found if record.value is not None)

    def of_spark(spark: Any) -> Any:
        return spark.createDataFrame([(1, "one"), (2, "two")], "id INT, name STRING")

    assert asked(of_spark, "1", "2", "3") == ["1=one", "2=two"]
    written = harness.read(topic)
    assert sorted((record.key, record.value) for record in written) == [
        (b"1", b'{"id":1,"name":"one"}'),
        (b"2", b'{"id":2,"name":"two"}'),
    ]
    assert asked(of_spark, "1") == ["1=one"]
    assert harness.read(topic) == written, "the same rows write nothing"
    with pytest.raises(ConfigError, match="the row 1 has the key of another row: id = 1"):
        asked(pd.DataFrame({"id": [1, 1]}))
    assert asked(pd.DataFrame({"id": [2, 3], "name": ["deux", "trois"]}), "1", "2", "3") == ["2=deux", "3=trois"]
    assert {record.key: record.value for record in harness.read(topic)[2:]} == {
        b"1": None,
        b"2": b'{"id":2,"name":"deux"}',
        b"3": b'{"id":3,"name":"trois"}',
    }
