"""The source on real Kafka and Spark: gaps, new and recreated and trimmed topics, starts, admission, lag, groups."""

from __future__ import annotations

import time
from datetime import timedelta

import orjson
import pytest

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.errors import TopicNotFoundError, TopicRecreatedError
from state.kafka.consumers import RecordSampler
from streams import ApplicationFailedError, BytesSerde, ConfigError, Consumed, StreamsBuilder, TimeWindows
from streams.drills.topics import Read
from streams.engine.source.planner import BatchPlanner
from streams.engine.source.topics import SourceSpec
from tests.spark.harness import Harness, Sent
from tests.spark.live import copy_topology, eventually, grow, kafka, running, transaction
from tests.spark.test_global_tables import joined


def numbered(count: int, start: int = 0, *, partition: int = -1, ms: int = 1_000) -> list[Sent]:
    return [Sent(b"k%d" % (n % 5), b"%d" % n, ms + n, partition) for n in range(start, start + count)]


def values(records: list[Read]) -> list[int]:
    return sorted(int(record.value or b"-1") for record in records)


def compacted(harness: Harness) -> tuple[str, list[int]]:
    """A topic in which the cleaner has made gaps, and what is left in it."""
    topic = harness.topic(
        "compacted",
        1,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
        delete_retention_ms="0",
    )
    # Segments roll by the records' own timestamps.
    for run in range(4):
        harness.send(topic, [Sent(b"same", b"%d" % (100 + 10 * run + n), 1_000 * (run + 1), 0) for n in range(5)])
    before: list[Read] = []
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        time.sleep(0.7)
        left = harness.read(topic)
        if len(left) <= 10 and left == before:
            return topic, values(left)
        before = left
    raise AssertionError("the cleaner did not run")


def test_gaps_are_no_records_however_they_are_read(harness: Harness) -> None:
    written = harness.topic("written", 3)
    transaction(harness, written, numbered(10, partition=0))
    transaction(harness, written, numbered(10, 900, partition=0), commit=False)
    transaction(harness, written, numbered(10, 10, partition=0))
    transaction(harness, written, numbered(4, 900, partition=0), commit=False)
    transaction(harness, written, numbered(4, 900, partition=1), commit=False)
    other, left = compacted(harness)
    topology = copy_topology([written, other], target := harness.topic("target", 1))
    for bulk in (True, False):
        # Its own application id, so that both read all of it.
        one = Harness(harness.servers, harness.spark, harness.folder, f"{harness.application_id}-{bulk}")
        progress = one.run(topology, bulk_io=bulk)
        (sub,) = progress.subs.values()
        assert (sub.records_in, sub.lag) == (20 + len(left), 0)
    found = harness.read(target)
    assert values(found) == sorted(2 * [*range(20), *left])
    per_key = [r.value for r in found if r.key == b"k1"]
    assert per_key == 2 * [b"%d" % n for n in range(20) if n % 5 == 1]


def test_partitions_added_while_running_are_read_from_their_beginning_and_in_order(harness: Harness) -> None:
    source, target = harness.topic("source", 1), harness.topic("target", 2)
    topology = copy_topology(source, target)
    with running(harness, topology) as progress:
        harness.send(source, numbered(50))
        eventually(lambda: len(harness.read(target)) == 50, "50 records")
        grow(harness, source, 3)
        harness.send(source, numbered(50, 50))
        eventually(lambda: len(harness.read(target)) >= 100, "100 records")
        assert next(iter(progress.subs.values())).task_count == 1
    # The number of tasks stays what the state was made with, though the topic has more partitions now.
    harness.send(source, numbered(20, 100))
    harness.run(topology)
    found = harness.read(target)
    assert values(found) == list(range(120))
    for key in {record.key for record in found}:
        of_key = [int(record.value or b"") for record in found if record.key == key]
        assert of_key == sorted(of_key)


def test_a_recreated_topic_is_refused(harness: Harness) -> None:
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    topology = copy_topology(source, target)
    harness.send(source, numbered(10))
    harness.run(topology)
    with kafka(harness) as admin:
        admin.delete_topics([source])
    with pytest.raises(Exception, match=f"'{source}' does not exist"):
        harness.run(topology)
    harness.topic("source", 1)
    harness.send(source, numbered(30))
    with pytest.raises(TopicRecreatedError) as caught:
        harness.run(topology)
    said = str(caught.value)
    assert said.startswith(f"topic '{source}' was deleted and created again"), said
    assert "\n" not in said
    assert values(harness.read(target)) == list(range(10))


def test_offsets_lost_to_deletion(harness: Harness) -> None:
    """Refused, and read from the earliest offset where that is asked for; `latest` is in tests/source/test_planner.py."""
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    topology = copy_topology(source, target)
    harness.send(source, numbered(10))
    harness.run(topology)
    harness.send(source, numbered(10, 10))
    with kafka(harness) as admin:
        admin.delete_records({(source, 0): 15})
    with pytest.raises(ApplicationFailedError) as caught:
        harness.run(topology)
    assert str(caught.value).startswith(f"OffsetsLostError: {source}-0: offset 10 is needed next, but the log")
    assert "[15, 20)" in str(caught.value)
    assert values(harness.read(target)) == list(range(10))
    harness.run(topology, on_lost_offsets="earliest")
    assert values(harness.read(target)) == [*range(10), *range(15, 20)]


def test_missing_topics_are_named(harness: Harness) -> None:
    there = harness.topic("there", 1)
    missing = f"{there}.no"
    for topology in (copy_topology(missing, there), copy_topology(there, missing), joined(there, missing, there)):
        with pytest.raises(
            TopicNotFoundError, match=rf"'{missing}' does not exist, or these credentials may not see it"
        ):
            harness.run(topology)


def test_starts(harness: Harness) -> None:
    source, other, target = harness.topic("source", 2), harness.topic("other", 1), harness.topic("target", 1)
    harness.send(source, [*numbered(10, partition=0), *numbered(10, 10, partition=1)])
    harness.send(other, numbered(10, 100, partition=0))
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source).merge(builder.stream(other, Consumed(offset_reset="earliest"))).to(target)
    topology = builder.build()
    nowhere = StreamsBuilder()
    nowhere.stream(source, Consumed(offset_reset="none")).to(target)
    with pytest.raises(ConfigError, match="'none'"):
        harness.run(nowhere.build())
    # Record n has timestamp 1000 + n.
    harness.run(topology, starting_offsets="timestamp:1007")
    assert values(harness.read(target)) == [7, 8, 9, *range(10, 20), *range(100, 110)]
    late = Harness(harness.servers, harness.spark, harness.folder, harness.application_id)
    late_target = late.topic("target", 1)
    with running(late, copy_topology(source, late_target), starting_offsets="latest") as progress:
        eventually(lambda: bool(progress.subs), "the query started")
        # Where `latest` is becomes known with the first offset log: records keep coming until one is seen.
        eventually(lambda: _send_one(late, source) and len(late.read(late_target)) > 0, "a record")
    assert set(values(late.read(late_target))) == {7777}


def _send_one(harness: Harness, topic: str) -> bool:
    harness.send(topic, [Sent(b"k", b"7777", 5_000)])
    return True


@pytest.mark.micro_batches("live steps are not logged ahead")
def test_a_logged_first_micro_batch_begins_where_it_did(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks for its beginning again; a source that begins at the end of its topic must not give another answer then."""
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    harness.send(source, numbered(10))
    monkeypatch.setenv("STREAMS_FAULT", "before_commit")
    with pytest.raises(ApplicationFailedError):
        harness.run(copy_topology(source, target))
    monkeypatch.delenv("STREAMS_FAULT")
    harness.run(copy_topology(source, target), starting_offsets="latest")
    assert values(harness.read(target)) == list(range(10))


def test_admission_is_bounded_and_aligned_in_time(harness: Harness) -> None:
    source = harness.topic("source", 2)
    large = [Sent(b"a", b"%d" % n, 10_000 + n, 0) for n in range(2_000)]
    small = [Sent(b"b", b"%d" % n, 10_000 + 20 * n, 1) for n in range(100)]
    harness.send(source, [*large, *small])
    client = {"bootstrap.servers": harness.servers}
    with kafka(harness) as admin:
        planner = BatchPlanner(admin, SourceSpec({source: "earliest"}, max_records=500), RecordSampler(client).sample)
        planner.freeze()
        harness.send(source, [Sent(b"late", b"-1", 99_000, 0)])
        at, batches = planner.initial(), 0
        while (to := planner.latest(at)) != at:
            taken = sum(r.end - r.start for r in planner.ranges(at, to))
            assert 0 < taken <= 500
            at, batches = to, batches + 1
            first, second = (at.of(source, p) for p in (0, 1))
            # The next record of each partition: 1 ms and 20 ms apart are the records.
            assert abs((10_000 + first) - (10_000 + 20 * second)) <= 20
        assert (at.of(source, 0), at.of(source, 1)) == (2_000, 100)
        assert batches == 5


def test_a_replay_of_what_was_written_in_transactions_is_aligned_in_time(harness: Harness) -> None:
    plain, written, target = harness.topic("plain", 1), harness.topic("written", 1), harness.topic("target", 1)
    # Long ago by their own timestamps; the control records behind each ten of them are of today. The first record is dated far
    # ahead, and turned away.
    rows = [Sent(b"k", b"v", 1_000_000 + 1_000 * n, 0) for n in range(200)]
    harness.send(plain, [Sent(b"k", b"v", 7_258_118_400_000, 0), *rows])
    for begun in range(0, 200, 10):
        transaction(harness, written, rows[begun : begun + 10])
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    merged = builder.stream(plain).merge(builder.stream(written))
    windows = TimeWindows.of_size_and_grace(timedelta(seconds=50), timedelta(seconds=30))
    counts = merged.group_by_key().windowed_by(windows).count().to_stream()
    counts.map(lambda key, count: (key.key, b"%d" % count)).to(target)
    settings = {"future": "skip", "max_records_per_trigger": 50, "tasks": 1}
    progress = harness.run(builder.build(), **settings)
    (sub,) = progress.subs.values()
    assert sub.batch_id >= 7
    assert [name for name in sub.counters if name.endswith(":late")] == []
    assert sub.records_in == 400


def test_available_now_ends_and_batches_are_bounded(harness: Harness) -> None:
    source, other, target = harness.topic("source", 2), harness.topic("other", 1), harness.topic("target", 1)
    harness.send(source, numbered(300))
    harness.send(other, numbered(100, 300))
    topology = copy_topology([source, other], target)
    progress = harness.run(topology, max_records_per_trigger=150, tasks=1)
    (sub,) = progress.subs.values()
    assert sub.tasks[0].version == sub.batch_id + 1 >= 3
    assert (sub.records_in, sub.lag) == (400, 0)
    assert values(harness.read(target)) == list(range(400))
    committed = harness.group_offsets()
    with kafka(harness) as admin:
        assert committed == admin.end_offsets([(source, 0), (source, 1), (other, 0)])
    # Offsets of the group and the marker come from one transaction, so they say the same.
    topic = commits_topic(harness.application_id, next(iter(progress.subs)))
    last = CommitMarker.from_bytes(harness.read(topic)[-1].value or b"")
    for source, partitions in last.ranges.items():
        for partition, (_, end) in partitions.items():
            assert committed[source, int(partition)] == end


@pytest.mark.micro_batches("live, a step is as large as its time allows")
def test_lag_is_reported_while_there_is_a_backlog(harness: Harness) -> None:
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    harness.send(source, numbered(200))
    seen = harness.folder / "the lag was seen"

    def held(value: bytes) -> bytes:
        """The last of five micro-batches waits, however seldom this test comes to look at the lag."""
        while int(value) >= 160 and not seen.exists():
            time.sleep(0.05)
        return value

    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source).map_values(held).to(target)
    with running(harness, builder.build(), max_records_per_trigger=40, tasks=1) as progress:

        def lag() -> int | None:
            return next((sub.lag for sub in list(progress.subs.values())), None)

        eventually(lambda: (lag() or 0) > 0, "a lag")
        seen.touch()
        eventually(lambda: lag() == 0, "no lag")
        # The lag is told after the commit of what was read.
        assert len(harness.read(target)) == 200


@pytest.mark.micro_batches("Spark logs them")
def test_an_idle_application_makes_no_batches(harness: Harness) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = copy_topology(source, target)
    harness.send(source, numbered(10))
    harness.run(topology)
    progress = harness.run(topology)
    (sub,) = progress.subs.values()
    assert (sub.batch_id, sub.tasks) == (-1, {})
    checkpoint = harness.folder / "checkpoint" / harness.application_id
    (offsets,) = [path for path in checkpoint.glob("*/offsets/*") if path.name.isdigit()]
    logged = orjson.loads(offsets.read_text().splitlines()[-1])
    assert sum(logged["topics"][source]["offsets"]) == 10
