"""Checkpoints, topics and local state that do not belong together: a named error that writes nothing, or it heals."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state.changelog import changelog_topic, commits_topic
from state.commit.marker import CommitMarker
from state.errors import ChangelogMismatchError, CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from state.kafka.key_hash import partition_for_key
from streams import ApplicationFailedError, BytesSerde, Grouped, Materialized, StreamsBuilder, StreamsError, TimeWindows
from streams.application.adopt import Adopter
from streams.application.instances import seen_as_running
from streams.application.prepare import plan_application
from streams.application.rescale.cluster import LiveRescale
from streams.application.rescale.plan import UsersChoices
from streams.application.start import Preflight
from streams.checkpoint.files import CheckpointFiles, LocalFiles
from streams.driver.checkpoint_files import HadoopFiles
from streams.errors import AlreadyRunningError, TopologyMismatchError
from streams.topology.diff import compare
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import count_topology, eventually, grow, kafka, running
from tests.spark.test_operators import increasing

KEYS_OF = [
    next(key for key in (b"one-%d" % n for n in range(9)) if partition_for_key(key, 2) == task) for task in range(2)
]
"""A key for each of two tasks."""


class Application:
    """An application that counts keys, and the numbers that it must come to."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.source, self.target = harness.topic("source", 2), harness.topic("target", 1)
        self.topology = count_topology(self.source, self.target)
        self.total: Counter[bytes] = Counter()
        self.state = Path(harness.config().state_dir) / harness.application_id / self.source
        self.checkpoint = Path(harness.config().checkpoint_dir)

    def send(self, count: int = 20, partition: int = -1) -> None:
        # What is sent to one partition has a key of its own there, so that no other task gets records of it.
        keys = [b"k%d" % (n % 5) for n in range(count)] if partition < 0 else [KEYS_OF[partition]] * count
        self.harness.send(self.source, [Sent(key, b"1", 1_000 + n, partition) for n, key in enumerate(keys)])
        self.total.update(keys)

    def run(self, topology: Topology | None = None, **settings: Any) -> None:
        self.harness.run(topology or self.topology, **settings)

    def step(self) -> None:
        self.send()
        self.run()

    def check(self) -> None:
        found = last_per_key(self.harness.read(self.target))
        assert found == {key: count.to_bytes(8, "big") for key, count in self.total.items()}

    @contextmanager
    def refused(self, *words: str, error: type[Exception] = CheckpointMismatchError) -> Iterator[None]:
        """What is done in the block ends in an error of these words, and nothing is written: nor is a transaction begun."""
        before = self._written()
        with pytest.raises(error) as caught:
            yield
        said = str(caught.value)
        assert all(word in said for word in words), said
        assert "\n" not in said
        assert self._written() == before

    def _written(self) -> list[Any]:
        with kafka(self.harness) as admin:
            mine = [t for t in admin.topic_names() if t.startswith(f"{self.harness.application_id}-")]
            found = admin.describe_topics([self.target, *mine])
            ends = admin.end_offsets([(t, n) for t, of in found.items() for n in range(of.partitions)], committed=False)
        return [self.harness.group_offsets(), ends, *(self.harness.read(topic) for topic in found)]


@pytest.fixture
def application(harness: Harness) -> Application:
    return Application(harness)


@pytest.mark.long  # `test_a_lost_checkpoint` and `test_a_checkpoint_that_was_rolled_back` begin with such a start
@pytest.mark.micro_batches("Spark's checkpoint knows more than the markers")
def test_checkpoints_that_do_not_fit(application: Application, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    application.step()
    shutil.copytree(application.checkpoint, copy / "after-1")
    application.step()
    shutil.copytree(application.checkpoint, copy / "after-2")
    application.step()
    shutil.copytree(application.checkpoint, copy / "after-3")

    def put_back(name: str) -> None:
        shutil.rmtree(application.checkpoint)
        if name:
            shutil.copytree(copy / name, application.checkpoint)

    adopt = f"streams adopt MODULE:TOPOLOGY -a {application.harness.application_id}"
    put_back("")
    with application.refused("there is no checkpoint, but 2 of 2 tasks have committed", "Nothing was written", adopt):
        application.run()
    for older in ("after-1", "after-2"):
        put_back(older)
        with application.refused("rolled back to an older copy", adopt):
            application.run()
    put_back("after-3")
    application.run()
    application.check()


@pytest.mark.long
@pytest.mark.micro_batches("Spark's checkpoint knows more than the markers")
def test_an_older_copy_that_fits_one_of_the_tasks(application: Application, tmp_path: Path) -> None:
    """The right checkpoint still is one after the wrong one was tried: no task has gone on from that."""
    application.step()
    shutil.copytree(application.checkpoint, tmp_path / "older")
    application.send(partition=1)
    application.run()
    shutil.move(application.checkpoint, tmp_path / "right")
    shutil.copytree(tmp_path / "older", application.checkpoint)
    application.send()
    with application.refused("task 1 has committed micro-batch 1", "rolled back to an older copy"):
        application.run()
    shutil.rmtree(application.checkpoint)
    shutil.copytree(tmp_path / "right", application.checkpoint)
    application.run()
    application.check()


def test_another_program_on_the_same_checkpoint(application: Application) -> None:
    harness = application.harness
    application.step()
    application.send()
    with application.refused("has 2 tasks", "would run with 3", "streams rescale", error=StreamsError):
        application.run(tasks=3)
    other = Harness(
        harness.servers, harness.spark, harness.folder, f"other-{harness.application_id}", micro_batches=True
    )
    # The error names the other application id, and the one on whose checkpoint it was started does not change.
    with application.refused(other.application_id, "belongs to another application id"):
        other.run(application.topology, checkpoint_dir=str(application.checkpoint))
    application.run()
    application.check()


def test_another_topology(application: Application) -> None:
    def windowed(seconds: int) -> Topology:
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_with_no_grace(timedelta(seconds=seconds))
        table = builder.stream(application.source).group_by_key().windowed_by(windows)
        table.count(materialized=Materialized(name="counts")).to_stream().to(application.target)
        return builder.build()

    application.send()
    application.run(windowed(10))
    application.send()
    with application.refused(
        "another topology",
        "size_ms 10000 -> 20000",
        "streams diff",
        "an application id of its own",
        error=TopologyMismatchError,
    ):
        application.run(windowed(20))
    # The file that the error speaks of still tells what the state was written by.
    kept = json.loads((application.checkpoint / "topology.json").read_text())
    assert "size_ms 10000 -> 20000" in str(compare(kept, windowed(20))[0])
    application.run(windowed(10))
    found = last_per_key(application.harness.read(application.target))
    assert sorted(found.values()) == sorted(count.to_bytes(8, "big") for count in application.total.values())


@pytest.mark.long  # tests/application/test_check_start.py has what is refused, `test_another_topology` that a start does it
def test_swapped_and_moved_sources(application: Application) -> None:
    """The order of a program means nothing; a store that moves is refused before anything is made."""
    harness, orders = application.harness, application.source
    people = harness.topic("a-smaller-name", 2)

    def program(orders_first: bool, apart: bool = False) -> Topology:
        builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
        if orders_first:
            stream, table = builder.stream(orders), builder.table(people, materialized=Materialized(name="people"))
        else:
            table, stream = builder.table(people, materialized=Materialized(name="people")), builder.stream(orders)
        if not apart:
            stream = stream.left_join(table, lambda order, person: order)
        counts = stream.group_by_key().count(materialized=Materialized(name="counts", caching=False))
        counts.to_stream().to(application.target)
        return builder.build()

    application.send()
    application.run(program(True))
    application.send()
    application.run(program(False))
    application.check()
    assert len(harness.read(application.target)) == application.total.total(), "no order was read twice"
    with kafka(harness) as admin:
        topics = admin.topic_names()
    with application.refused("belongs to the sub-topology", "Nothing was written", error=TopologyMismatchError):
        application.run(program(True, apart=True))
    with kafka(harness) as admin:
        assert admin.topic_names() == topics
    commits = [name for name in topics if name.startswith(f"{harness.application_id}-") and name.endswith("-commits")]
    assert commits == [commits_topic(harness.application_id, people)]


def test_the_commits_topic_is_gone(application: Application) -> None:
    application.step()
    with kafka(application.harness) as admin:
        admin.delete_topics([commits_topic(application.harness.application_id, application.source)])
    application.send()
    before = application.harness.read(application.target)
    with pytest.raises(CheckpointMismatchError, match="the commits topic was deleted"):
        application.run()
    assert application.harness.read(application.target) == before


@pytest.mark.parametrize("local", ["kept", pytest.param("lost", marks=pytest.mark.long)])
def test_the_changelog_is_gone(application: Application, local: str) -> None:
    application.step()
    changelog = changelog_topic(application.harness.application_id, "counts")
    with kafka(application.harness) as admin:
        admin.delete_topics([changelog])
    if local == "lost":
        shutil.rmtree(application.state)
    application.send()
    before = application.harness.read(application.target)
    # Local state would do for this step: but the next restore would miss everything older.
    with pytest.raises(ApplicationFailedError, match="RestoreError: the changelog topic of store 'counts' was deleted"):
        application.run()
    assert application.harness.read(application.target) == before
    assert application.harness.read(changelog) == []


def test_damaged_and_stale_local_state_heals(application: Application, tmp_path: Path) -> None:
    application.step()
    shutil.copytree(application.state, tmp_path / "stale")
    application.step()
    tables = sorted(application.state.glob("*/db/*.sst"))
    assert len({table.parent for table in tables}) == 2, "both tasks have written tables"
    garbled = tables[0].read_bytes()
    tables[0].write_bytes(b"\xff" * len(garbled))
    application.step()
    application.check()
    sorted(application.state.glob("1/db/*.sst"))[0].unlink()
    application.step()
    application.check()
    shutil.rmtree(application.state)
    shutil.copytree(tmp_path / "stale", application.state)
    application.step()
    application.check()
    markers = application.harness.read(commits_topic(application.harness.application_id, application.source))
    versions = [CommitMarker.from_bytes(record.value or b"").version for record in markers if record.partition == 0]
    assert versions == list(range(1, len(versions) + 1))


# --- A checkpoint that is lost, or rolled back, costs nothing: `streams adopt` makes another one from the commit markers.

STAGE_KEYS = [b"k%d" % number for number in range(8)]


@contextmanager
def adopter_of(harness: Harness, topology: Topology, files: CheckpointFiles | None = None) -> Iterator[Adopter]:
    config = harness.config()
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        application = plan_application(topology, config, admin)
        files = files or LocalFiles(config.checkpoint_dir)
        yield Adopter(Preflight(application, files, admin, lambda text: None))


def adopt(harness: Harness, topology: Topology, files: CheckpointFiles | None = None) -> list[str]:
    """Adopts; gives the names of the sub-topologies that needed it."""
    with adopter_of(harness, topology, files) as adopter:
        misfits = adopter.misfits()
        for prepared, findings in misfits:
            adopter.adopt(prepared, findings)
        assert adopter.misfits() == []
    return [prepared.sub.name for prepared, _ in misfits]


class TwoStages:
    """Copies its records, counts them in windows, and counts these results in a second sub-topology."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.source, self.copies = harness.topic("source", 2), harness.topic("copies", 1)
        self.windows, self.updates = harness.topic("windows", 1), harness.topic("updates", 1)
        self.topology = self._topology()
        self.checkpoint = Path(harness.config().checkpoint_dir)
        self.sent: Counter[bytes] = Counter()

    def _topology(self) -> Topology:
        builder = StreamsBuilder()
        source = builder.stream(self.source)
        source.to(self.copies)
        windows = TimeWindows.of_size_with_no_grace(timedelta(days=1))
        counts = source.group_by_key().windowed_by(windows).count(materialized=Materialized(name="windows")).to_stream()
        counts.to(self.windows)
        updates = counts.group_by(lambda windowed, count: windowed.key, Grouped(name="by-key"))
        updates.count(materialized=Materialized(name="updates")).to_stream().to(self.updates)
        return builder.build()

    def send(self) -> None:
        records = [Sent(STAGE_KEYS[n % len(STAGE_KEYS)], b"%d" % n, 1_000 + n) for n in range(20)]
        self.harness.send(self.source, records)
        self.sent.update(key for record in records if (key := record.key))

    def step(self) -> None:
        self.send()
        self.harness.run(self.topology)

    def refused(self, words: str) -> None:
        """A start writes nothing, to no topic."""
        before = self.written()
        with pytest.raises(CheckpointMismatchError, match=words) as caught:
            self.harness.run(self.topology)
        assert f"streams adopt MODULE:TOPOLOGY -a {self.harness.application_id}" in str(caught.value)
        assert self.written() == before

    def written(self) -> list[object]:
        with kafka(self.harness) as admin:
            mine = [t for t in admin.topic_names() if t.startswith(self.harness.application_id) and t != self.source]
        return [self.harness.group_offsets(), *(self.harness.read(topic) for topic in mine)]

    def adopt(self, files: CheckpointFiles | None = None) -> list[str]:
        return adopt(self.harness, self.topology, files)

    def check(self) -> None:
        """Every record was copied once, and counted once; every result was counted once."""
        copies = self.harness.read(self.copies)
        assert Counter(record.key for record in copies) == self.sent
        windows, updates = self.harness.read(self.windows), self.harness.read(self.updates)
        assert increasing(windows)
        assert increasing(updates)
        # A windowed key ends with the start of its window, 8 bytes.
        results = Counter(record.key[:-8] for record in windows if record.key)
        for records, expected in ((windows, self.sent), (updates, results)):
            found = [int.from_bytes(value or b"", "big") for value in last_per_key(records).values()]
            assert sorted(found) == sorted(expected.values())

    def last_batches(self) -> dict[int, int]:
        """The last micro-batch that each task of the first sub-topology has committed."""
        markers = self.harness.read(commits_topic(self.harness.application_id, self.source))
        return {record.partition: CommitMarker.from_bytes(record.value or b"").batch_id for record in markers}


@pytest.fixture
def stages(harness: Harness) -> TwoStages:
    return TwoStages(harness)


def test_a_lost_checkpoint(stages: TwoStages) -> None:
    stages.step()
    stages.step()
    shutil.rmtree(stages.checkpoint)
    stages.refused("there is no checkpoint, but 2 of 2 tasks have committed")
    assert len(stages.adopt()) == 2
    stages.step()
    stages.step()
    stages.check()
    # A second time: the new query is lost before it has begun, and after.
    shutil.rmtree(stages.checkpoint)
    stages.adopt()
    shutil.rmtree(stages.checkpoint)
    stages.adopt()
    stages.step()
    stages.check()


@pytest.mark.micro_batches("Spark's checkpoint knows more than the markers")
def test_a_checkpoint_that_was_rolled_back(stages: TwoStages, spark: SparkSession, tmp_path: Path) -> None:
    stages.step()
    shutil.copytree(stages.checkpoint, tmp_path / "copy")
    stages.step()
    shutil.rmtree(stages.checkpoint)
    shutil.copytree(tmp_path / "copy", stages.checkpoint)
    stages.send()
    stages.refused("it was rolled back to an older copy")
    stages.adopt(HadoopFiles(spark, f"file:{stages.checkpoint}"))
    assert list(stages.checkpoint.glob("*~replaced-*/offsets/0"))
    stages.step()
    stages.check()


@pytest.mark.long  # tests/checkpoint/test_adoption.py has tasks at different steps; the adoptions above are on Spark, too
@pytest.mark.micro_batches("Spark's checkpoint knows more than the markers")
def test_a_half_committed_micro_batch(stages: TwoStages, monkeypatch: pytest.MonkeyPatch) -> None:
    stages.step()
    stages.send()
    monkeypatch.setenv("STREAMS_FAULT", "marker_sent@1")
    # The transaction that stays open is waited for, until the broker aborts it.
    with pytest.raises(ApplicationFailedError):
        stages.harness.run(stages.topology, transaction_timeout_ms=5_000)
    monkeypatch.delenv("STREAMS_FAULT")
    assert stages.last_batches() == {0: 1, 1: 0}
    shutil.rmtree(stages.checkpoint)
    stages.adopt()
    assert stages.last_batches() == {0: 0, 1: -1}
    # Input that comes meanwhile must not come into the micro-batch that is repeated.
    stages.step()
    stages.check()


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda sub: (sub / "metadata").unlink(), "metadata is missing"),
    (lambda sub: (sub / "offsets" / "1").write_text("v1\n"), "offsets/1 is cut short"),
    (lambda sub: (sub / "commits" / "1").write_text(""), "commits/1 is cut short"),
    (lambda sub: (sub / "offsets" / "1").unlink(), "offsets/1 is missing, though that batch is confirmed"),
]


@pytest.mark.long  # tests/checkpoint/test_compare.py has what is damaged, the tests above what is refused and adopted on Spark
@pytest.mark.micro_batches("Spark's checkpoint knows more than the markers")
def test_a_damaged_checkpoint(stages: TwoStages, tmp_path: Path) -> None:
    stages.step()
    stages.step()
    shutil.copytree(stages.checkpoint, tmp_path / "whole")
    for damage, words in DAMAGES:
        shutil.rmtree(stages.checkpoint)
        shutil.copytree(tmp_path / "whole", stages.checkpoint)
        damage(stages.checkpoint / stages.source)
        stages.refused(words)
        with adopter_of(stages.harness, stages.topology) as adopter:
            assert [prepared.sub.name for prepared, _ in adopter.misfits()] == [stages.source]
    assert stages.adopt() == [stages.source]
    assert list(stages.checkpoint.glob("*~replaced-*/offsets/0"))
    stages.step()
    stages.check()


def test_a_second_instance_elsewhere_is_told_that_the_first_runs(harness: Harness) -> None:
    """It was told to adopt, which would have taken the stages over."""
    stages = TwoStages(harness)
    stages.step()
    with running(harness, stages.topology):
        eventually(lambda: seen_as_running(harness.application_id, harness.config().client) is not None, "a member")
        for other in ("elsewhere", None):
            settings = {} if other is None else {"checkpoint_dir": str(harness.folder / other)}
            with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} on "):
                harness.run(stages.topology, **settings)
    stages.step()
    stages.check()


# --- An application on real Spark and Kafka goes on with more tasks and then with fewer, while its input gets more partitions.

MANY_KEYS = [b"k%d" % number for number in range(20)]


def build(source: str, windows: str, updates: str) -> Topology:
    """Counts records in windows, and counts these results in a second sub-topology."""
    builder = StreamsBuilder()
    a_day = TimeWindows.of_size_with_no_grace(timedelta(days=1))
    stream = builder.stream(source).group_by_key().windowed_by(a_day)
    counts = stream.count(materialized=Materialized(name="windows", caching=False)).to_stream()
    counts.to(windows)
    by_key = counts.group_by(lambda windowed, count: windowed.key, Grouped(name="by-key"))
    by_key.count(materialized=Materialized(name="updates", caching=False)).to_stream().to(updates)
    return builder.build()


def rescale(harness: Harness, topology: Topology, tasks: int) -> None:
    config = harness.config()
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        live = LiveRescale(config, admin, LocalFiles(config.checkpoint_dir), None)
        live.rescaler(topology, tasks, UsersChoices()).run()


@pytest.mark.parametrize(
    "changes", [[(5, 3)], pytest.param([(5, 3), (3, 4)], marks=pytest.mark.long)], ids=["more", "and fewer"]
)
def test_counts_go_on_with_other_numbers_of_tasks_and_with_grown_input(
    harness: Harness, changes: list[tuple[int, int]]
) -> None:
    source, windows, updates = harness.topic("source", 2), harness.topic("windows", 1), harness.topic("updates", 1)
    topology, sent = build(source, windows, updates), Counter[bytes]()
    for tasks, partitions in ((2, 2), *changes):
        if tasks != 2:
            with pytest.raises(ChangelogMismatchError, match=rf"`streams rescale .* --tasks {tasks}` moves the state"):
                harness.run(topology, tasks=tasks)
            rescale(harness, topology, tasks)
            grow(harness, source, partitions)
        # After the first change, a second run shows that the new checkpoint continues, too.
        for first in (0, 7) if tasks == 5 else (0,):
            harness.send(source, [Sent(MANY_KEYS[n % 20], b"%d" % n, 1_000 + n) for n in range(first, 40)])
            sent.update(MANY_KEYS[n % 20] for n in range(first, 40))
            harness.run(topology)
        expected = {key: count.to_bytes(8, "big") for key, count in sent.items()}
        found = last_per_key(harness.read(windows))
        assert {key[:-8]: value for key, value in found.items() if key is not None} == expected
        assert last_per_key(harness.read(updates)) == expected
        assert increasing(harness.read(windows))
        assert increasing(harness.read(updates))
