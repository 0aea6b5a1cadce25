"""A checkpoint that is lost, or rolled back, costs nothing: `streams adopt` makes another one from the commit markers."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from streams import ApplicationFailedError, Grouped, Materialized, StreamsBuilder, TimeWindows
from streams.application.adopt import Adopter
from streams.application.instances import seen_as_running
from streams.application.prepare import plan_application
from streams.application.start import Preflight
from streams.checkpoint.files import CheckpointFiles, LocalFiles
from streams.errors import AlreadyRunningError
from streams.spark.checkpoint_files import HadoopFiles
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually, kafka, running
from tests.spark.test_counts import increasing

KEYS = [b"k%d" % number for number in range(8)]


class Application:
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
        records = [Sent(KEYS[n % len(KEYS)], b"%d" % n, 1_000 + n) for n in range(20)]
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
        """Adopts; gives the names of the sub-topologies that needed it."""
        with KafkaAdmin({"bootstrap.servers": self.harness.servers}) as admin:
            application = plan_application(self.topology, self.harness.config(), admin)
            files = files or LocalFiles(str(self.checkpoint))
            adopter = Adopter(Preflight(application, files, admin, lambda text: None))
            misfits = adopter.misfits()
            for prepared, findings in misfits:
                adopter.adopt(prepared, findings)
            assert adopter.misfits() == []
        return [prepared.sub.name for prepared, _ in misfits]

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
def application(harness: Harness) -> Application:
    return Application(harness)


def test_a_lost_checkpoint(application: Application) -> None:
    application.step()
    application.step()
    shutil.rmtree(application.checkpoint)
    application.refused("there is no checkpoint, but 2 of 2 tasks have committed")
    assert len(application.adopt()) == 2
    application.step()
    application.step()
    application.check()
    # A second time: the new query is lost before it has begun, and after.
    shutil.rmtree(application.checkpoint)
    application.adopt()
    shutil.rmtree(application.checkpoint)
    application.adopt()
    application.step()
    application.check()


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_a_checkpoint_that_was_rolled_back(
    application: Application, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    application.step()
    shutil.copytree(application.checkpoint, tmp_path / "copy")
    application.step()
    shutil.rmtree(application.checkpoint)
    shutil.copytree(tmp_path / "copy", application.checkpoint)
    application.send()
    application.refused("it was rolled back to an older copy")
    files = HadoopFiles(spark, f"file:{application.checkpoint}") if kind == "hadoop" else None
    application.adopt(files)
    assert list(application.checkpoint.glob("*~replaced-*/offsets/0"))
    application.step()
    application.check()


def test_a_half_committed_micro_batch(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    application.step()
    application.send()
    monkeypatch.setenv("STREAMS_FAULT", "marker_sent@1")
    with pytest.raises(ApplicationFailedError):
        application.harness.run(application.topology)
    monkeypatch.delenv("STREAMS_FAULT")
    assert application.last_batches() == {0: 1, 1: 0}
    shutil.rmtree(application.checkpoint)
    application.adopt()
    assert application.last_batches() == {0: 0, 1: -1}
    # Input that comes meanwhile must not come into the micro-batch that is repeated.
    application.step()
    application.check()


Damage = Callable[[Path], None]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda sub: (sub / "metadata").unlink(), "metadata is missing"),
        (lambda sub: (sub / "offsets" / "1").write_text("v1\n"), "offsets/1 is cut short"),
        (lambda sub: (sub / "commits" / "1").write_text(""), "commits/1 is cut short"),
        (lambda sub: (sub / "offsets" / "1").unlink(), "offsets/1 is missing, though that batch is confirmed"),
    ],
    ids=["metadata", "offsets", "commits", "no-offsets"],
)
def test_a_damaged_checkpoint(application: Application, damage: Damage, words: str) -> None:
    application.step()
    application.step()
    damage(application.checkpoint / application.source)
    application.refused(words)
    assert application.adopt() == [application.source]
    application.step()
    application.check()


def test_a_second_instance_elsewhere_is_told_that_the_first_runs(harness: Harness) -> None:
    """It was told to adopt, which would have taken the application over."""
    application = Application(harness)
    application.step()
    with running(harness, application.topology):
        eventually(lambda: seen_as_running(harness.application_id, harness.config().client) is not None, "a member")
        for other in ("elsewhere", None):
            settings = {} if other is None else {"checkpoint_dir": str(harness.folder / other)}
            with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} on "):
                harness.run(application.topology, **settings)
    application.step()
    application.check()
