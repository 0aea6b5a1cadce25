"""Checkpoints, topics and local state that do not belong together: a named error that writes nothing, or it heals."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from state.changelog import changelog_topic, commits_topic
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError
from state.kafka.partitioner import partition_for_key
from streams import ApplicationFailedError, BytesSerde, Materialized, StreamsBuilder, StreamsError, TimeWindows
from streams.errors import TopologyMismatchError
from streams.topology.diff import compare
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import count_topology, kafka

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
    with application.refused(
        "that of 2 tasks, and the application is about to run with 3", "streams rescale", error=StreamsError
    ):
        application.run(tasks=3)
    other = Harness(harness.servers, harness.spark, harness.folder, f"other-{harness.application_id}")
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


@pytest.mark.parametrize("local", ["kept", "lost"])
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
    assert versions == [1, 2, 3, 4, 5]
