"""Global tables on Spark: every task sees all of a topic up to the offset that was logged with its micro-batch."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from state.commit.live import LiveKafka
from state.errors import TopicNotFoundError
from streams import Consumed, Joined, Materialized, StreamsBuilder, StringSerde
from streams.errors import ConfigError, StreamsError
from streams.microbatch.job import QueryJob
from streams.runtime.settings import TaskSettings
from streams.source.offsets import TopicOffsets
from streams.source.planner import SourceSpec
from streams.spark.global_tables import global_stores
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


@pytest.fixture(params=[True, False], ids=["on-disk", "in-memory"])
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
    assert 1 <= sum(sub.counters["skipped:deserialization"] for sub in progress.subs.values()) <= 4


def test_a_process_reads_no_further_than_the_logged_ends(harness: Harness) -> None:
    app = App(harness)
    config = harness.config()
    (sub,) = build_plan(app.topology, harness.application_id).sub_topologies
    spec = SourceSpec({app.source: "earliest"}, global_topics=(app.names,))
    settings = TaskSettings(harness.application_id)
    job = QueryJob(sub, 1, settings, spec, config.client, config.state_dir, 10_000, 1 << 20, True)
    kafka = LiveKafka(config.client, 10_000)

    def at(ends: dict[str, TopicOffsets], job: QueryJob = job) -> dict[str, str]:
        stores = global_stores(job, ends, kafka.begin_offset, 0)
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


def test_the_topic_must_exist(harness: Harness) -> None:
    topology = joined(harness.topic("in"), f"{harness.application_id}.missing", harness.topic("out"))
    with pytest.raises(TopicNotFoundError, match=r"\.missing"):
        harness.run(topology)
