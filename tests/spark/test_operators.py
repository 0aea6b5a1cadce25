"""The spine: counts of words on real Kafka and Spark, exactly once through every crash point, restorable."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.errors import TopicNotFoundError
from state.kafka.admin import wait_until_decided
from streams import (
    BufferConfig,
    BytesSerde,
    Consumed,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    KStream,
    KTable,
    Materialized,
    Processor,
    Produced,
    Record,
    Repartitioned,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
    VersionedSerde,
)
from streams.drills.topics import Read
from streams.driver.launch.settings import SPARK_SETTINGS
from streams.engine.source.log import LiveLog
from streams.engine.source.offsets import OffsetRange
from streams.engine.source.partition_times import PartitionTimes
from streams.model.record import NO_TIME
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually, kafka, running

WORDS = [f"word-{n}" for n in range(50)]


def word_topology(source: str, target: str) -> Topology:
    """Counts words; every line of a value is one word, so the head re-keys."""
    builder = StreamsBuilder()
    (
        builder.stream(source)
        .flat_map_values(lambda value: value["words"])
        .group_by(lambda word: word, Grouped(name="by-word"))
        .count(materialized=Materialized(name="counts"))
        .to_stream()
        .to(target)
    )
    return builder.build()


def lines(seed: int, count: int, start_ms: int = 1_000_000) -> list[list[str]]:
    rng = random.Random(seed)
    return [rng.choices(WORDS, k=rng.randint(0, 4)) for _ in range(count)]


def send_lines(harness: Harness, topic: str, batch: list[list[str]], at_ms: int) -> None:
    harness.send(
        topic,
        [Sent(b"line-%d" % i, orjson.dumps({"words": words}), at_ms + i) for i, words in enumerate(batch)],
    )


def expected(*batches: list[list[str]]) -> dict[bytes, bytes]:
    totals = Counter(word for batch in batches for line in batch for word in line)
    return {word.encode(): count.to_bytes(8, "big") for word, count in totals.items()}


def increasing(records: list[Read]) -> bool:
    """Counts of a word only ever rise: a duplicate or a lost update would show."""
    seen: dict[bytes | None, int] = {}
    for record in records:
        assert record.value is not None
        value = int.from_bytes(record.value, "big")
        if value <= seen.get(record.key, 0):
            return False
        seen[record.key] = value
    return True


PARTITIONS = 24


def test_counts_of_many_partitions_over_several_runs_and_without_local_state(harness: Harness) -> None:
    # Each partition gives the one task three rows (records, counters, a digest of the keys), so they come in several Arrow batches.
    assert 2 * int(SPARK_SETTINGS["spark.sql.execution.arrow.maxRecordsPerBatch"]) < 2 * PARTITIONS
    source, target = harness.topic("lines", PARTITIONS), harness.topic("counts", 2)
    topology = word_topology(source, target)
    one, two = lines(1, 600), lines(2, 200)
    send_lines(harness, source, one, 1_000_000)
    progress = harness.run(topology, tasks=1)
    assert last_per_key(harness.read(target)) == expected(one)
    assert progress.subs[source.replace("/", "-")].lag == 0
    shutil.rmtree(harness.config().state_dir)
    send_lines(harness, source, two, 2_000_000)
    harness.run(topology, max_records_per_trigger=50)
    records = harness.read(target)
    assert last_per_key(records) == expected(one, two)
    assert increasing(records)


# --- Every kind of state on real Spark: what comes out is what the test driver gives, though all local state is lost between.

KIND_KEYS = [f"key-{n}".encode() for n in range(6)]
KIND_PARTITIONS = 2
Outputs = dict[bytes | None, list[tuple[bytes | None, int]]]
Numbers = KStream[str, int]


def in_memory(one: Numbers, names: KTable[str, int], target: str) -> None:
    """A table, windows and sessions in memory, beside a table on disk."""
    grouped = one.group_by_key()
    kept = Materialized(name="windows", persistent=False, caching=False)
    grouped.windowed_by(TimeWindows.of_size_and_grace(500, 200)).count(materialized=kept).to_stream().to(target)
    kept = Materialized(name="sums", persistent=False, caching=False)
    grouped.reduce(lambda total, value: total + value, materialized=kept).to_stream().to(target)
    grouped.count(materialized=Materialized(name="on-disk", caching=False)).to_stream().to(target)
    one.join(names, lambda left, right: [left, right], joined=Joined(name="looked-up")).to(target)


def versioned(one: Numbers, versions: KTable[str, int], target: str) -> None:
    """Stream records find the version of their own time, however late they are."""
    one.left_join(versions, lambda left, right: [left, right], joined=Joined(name="as-of")).to(target)


def sessions(both: Numbers, target: str) -> None:
    """Sessions that later records join and merge."""
    windows = SessionWindows.of_inactivity_gap_and_grace(120, 300)
    kept = Materialized(name="sessions", caching=False)
    both.group_by_key().windowed_by(windows).count(materialized=kept).to_stream().to(target)


def suppressed(both: Numbers, target: str) -> None:
    """Windows that are held back until they close."""
    windows = TimeWindows.of_size_and_grace(400, 300)
    counts = both.group_by_key().windowed_by(windows).count()
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), "held").to_stream().to(target)


def held_back(both: Numbers, target: str) -> None:
    """A table whose updates are held back for a while."""
    counts = both.group_by_key().count(materialized=Materialized(name="counts"))
    counts.suppress(
        Suppressed.until_time_limit(150, BufferConfig(max_records=4).emit_early_when_full()), "late"
    ).to_stream().to(target)


def joined(one: Numbers, two: Numbers, target: str) -> None:
    """Three streams, one of them twice, in a store for each."""
    windows = JoinWindows.of_time_difference_and_grace(40, 300)
    one.join_all({"other": two, "again": one}, dict, windows, StreamJoined(name="all")).to(target)


SOURCES = ("one", "two", "names", "versions")
KINDS = ("in-memory", "versioned", "sessions", "suppressed", "held-back", "joined")


def all_kinds(topics: Mapping[str, str]) -> Topology:
    """All of them in one application, each with a topic for its results."""
    builder = StreamsBuilder()
    one, two = builder.stream(topics["one"]), builder.stream(topics["two"])
    names = builder.table(topics["names"], materialized=Materialized(name="names", persistent=False))
    versions = builder.table(topics["versions"], materialized=Materialized(name="versions", history_retention=2_000))
    both = one.merge(two)
    in_memory(one, names, topics["in-memory"])
    versioned(one, versions, topics["versioned"])
    sessions(both, topics["sessions"])
    suppressed(both, topics["suppressed"])
    held_back(both, topics["held-back"])
    joined(one, two, topics["joined"])
    return builder.build()


def foreign_key(stream: str, table: str, target: str) -> Topology:
    """Two sub-topologies that write for each other, and so run over what is there again and again until nothing is left."""
    builder = StreamsBuilder()
    left = builder.table(stream, materialized=Materialized(name="left"))
    right = builder.table(table, materialized=Materialized(name="right"))

    def other(key: str, value: int) -> str:
        return f"key-{value % len(KIND_KEYS)}"

    joined = left.left_join(right, lambda one, two: [one, two], foreign_key=other, named="by-value")
    joined.to_stream().to(target)
    return builder.build()


def records(seed: int, start_ms: int, nulls: bool = False) -> list[tuple[bytes, bytes | None, int]]:
    rng = random.Random(seed)
    times = (start_ms + 15 * i - rng.choice((0, 0, 0, 90, 250)) for i in range(60))
    return [
        (rng.choice(KIND_KEYS), None if nulls and rng.random() < 0.2 else orjson.dumps(rng.randint(1, 9)), time)
        for time in times
    ]


def by_key(found: Iterable[Any]) -> Outputs:
    outputs: Outputs = defaultdict(list)
    for record in found:
        outputs[record.key].append((record.value, record.timestamp))
    return dict(outputs)


def last(outputs: Outputs) -> dict[bytes | None, bytes | None]:
    return {key: rows[-1][0] for key, rows in outputs.items()}


Parts = list[Mapping[str, list[tuple[bytes, bytes | None, int]]]]


def by_driver(topology: Topology, harness: Harness, targets: Iterable[str], parts: Parts) -> dict[str, Outputs]:
    """What the test driver gives for the same steps."""
    counts = dict.fromkeys((*parts[0], *targets), KIND_PARTITIONS)
    with TopologyTestDriver(topology, harness.application_id, counts) as driver:
        for part in parts:
            with driver.batch():
                for topic, rows in part.items():
                    for key, value, time in rows:
                        driver.create_input_topic(topic).pipe_bytes(key, value, time)
        outputs = {target: driver.create_output_topic(target, BytesSerde(), BytesSerde()) for target in targets}
        return {target: by_key(output.read_records_to_list()) for target, output in outputs.items()}


def without_local_state(harness: Harness, topology: Topology, parts: Parts) -> None:
    """Runs the parts one after the other; between them, all that is local is lost."""
    state = harness.config().state_dir
    for n, part in enumerate(parts):
        for topic, rows in part.items():
            harness.send(topic, [Sent(key, value, time) for key, value, time in rows])
        harness.run(topology, state_dir=state)
        # A worker process that lives on holds what is in memory under the name of its folder, so the folder changes too:
        # once with what was on disk, as after the death of the process, once without, as on another machine.
        moved = harness.folder / f"state-{n}"
        if n == 0:
            shutil.copytree(state, moved)
        shutil.rmtree(state)
        state = moved


@pytest.mark.slow
def test_state_survives_the_loss_of_all_that_is_local(harness: Harness) -> None:
    topics = {word: harness.topic(word, KIND_PARTITIONS) for word in (*SOURCES, *KINDS)}
    topology = all_kinds(topics)
    parts: Parts = [
        {topics[word]: records(10 * at + n, 1000 + 900 * n, at > 1) for at, word in enumerate(SOURCES)}
        for n in range(3)
    ]
    without_local_state(harness, topology, parts)
    wanted = by_driver(topology, harness, [topics[kind] for kind in KINDS], parts)
    for kind in KINDS:
        assert by_key(harness.read(topics[kind])) == wanted[topics[kind]], kind
        assert wanted[topics[kind]], kind


@pytest.mark.long
def test_state_of_a_join_by_foreign_key_survives_the_loss_of_all_that_is_local(harness: Harness) -> None:
    left, right, target = (harness.topic(word, KIND_PARTITIONS) for word in ("left", "right", "out"))
    topology = foreign_key(left, right, target)
    parts: Parts = [{right: records(10 + n, 1000 + 900 * n, True), left: records(n, 1000 + 900 * n)} for n in range(3)]
    without_local_state(harness, topology, parts)
    # Its two halves write for each other, so what is in between depends on when a micro-batch of each begins; and a
    # result has the time of the half that came last.
    assert last(by_key(harness.read(target))) == last(by_driver(topology, harness, [target], parts)[target])


# --- Stateful, re-keyed, stateful again: two queries linked by a repartition topic, exact and trimmed behind them.

KEYS = [f"{letter}{n}" for letter in "abc" for n in range(7)]


def topology_of(source: str, target: str, partitions: int | None = None) -> Topology:
    """Counts keys, then the updates of those counts by the keys' first letter: which are the records again."""
    builder = StreamsBuilder()
    first = builder.stream(source).group_by_key().count(materialized=Materialized(name="first", caching=False))
    letters = first.to_stream().select_key(lambda key, value: key[0])
    if partitions:
        how = Repartitioned(StringSerde(), Int64Serde(), partitions=partitions, name="by-letter")
        grouped = letters.repartition(how).group_by_key()
    else:
        grouped = letters.group_by_key(Grouped(StringSerde(), Int64Serde(), name="by-letter"))
    grouped.count(materialized=Materialized(name="second")).to_stream().to(target)
    return builder.build()


class Stages:
    def __init__(self, harness: Harness, partitions: int | None) -> None:
        self.harness = harness
        self.source, self.target = harness.topic("source", 3), harness.topic("target", 1)
        self.topology = topology_of(self.source, self.target, partitions)
        self.between = f"{harness.application_id}-by-letter-repartition"
        self.total: Counter[bytes] = Counter()

    def send(self, count: int) -> None:
        keys = [KEYS[n * n % len(KEYS)] for n in range(count)]
        self.harness.send(self.source, [Sent(key.encode(), b"1", 1_000 + n) for n, key in enumerate(keys)])
        self.total.update(key[0].encode() for key in keys)

    def exact(self) -> bool:
        found = last_per_key(self.harness.read(self.target))
        return found == {key: count.to_bytes(8, "big") for key, count in self.total.items()}

    def trimmed(self) -> bool:
        """Whether some records of the repartition topic, or control records, are deleted."""
        with kafka(self.harness) as admin:
            count = admin.describe_topics([self.between])[self.between].partitions
            places = [(self.between, partition) for partition in range(count)]
            begin, end = admin.begin_offsets(places), admin.end_offsets(places)
        return sum(begin.values()) > 0 and sum(end.values()) > 0


def test_available_now(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stages(harness, 2)
    stages.send(200)
    progress = harness.run(stages.topology)
    assert stages.exact()
    assert [sub.task_count for sub in progress.subs.values()] == [3, 2]
    assert all(sub.lag == 0 for sub in progress.subs.values())
    stages.send(100)
    # A task of either stage dies on the way: nothing is counted twice behind it.
    monkeypatch.setenv("STREAMS_FAULT", "after_commit@0")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    harness.run(stages.topology, max_records_per_trigger=60)
    assert (tmp_path / "killed").exists()
    assert stages.exact()
    assert stages.trimmed()


def test_continuous(harness: Harness) -> None:
    stages = Stages(harness, None)
    with running(harness, stages.topology):
        for _ in range(3):
            stages.send(100)
            eventually(stages.exact, "counts of all records")
        eventually(stages.trimmed, "what both sub-topologies have read is deleted between them")
    stages.send(50)
    harness.run(stages.topology)
    assert stages.exact()


# --- What only Kafka shows: which topics a pattern finds, where a duration begins, and a global store that a processor keeps.

TEXT = StringSerde()
HOUR_MS = 3_600_000


class ByCode(Processor):
    """Countries by code, from topics that have them by name."""

    def process(self, record: Record) -> None:
        self.ctx.store("by-code").put(record.value, record.key, record.timestamp)


class Country(Processor):
    def process(self, record: Record) -> None:
        code, _, count = record.value.partition("=")
        self.ctx.forward(record.with_value(f"{self.ctx.store('by-code').get(code)}={count}"))


def program(harness: Harness, countries: str, target: str) -> Topology:
    """Counts the orders of each country over all topics of orders, of the last hour when a topic is first seen."""
    builder = StreamsBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.add_global_store(Stores.key_value_store("by-code", TEXT, TEXT), countries, ByCode)
    orders = re.compile(re.escape(harness.application_id) + r"\.orders-.*")
    stream = builder.stream(orders, Consumed(offset_reset=timedelta(hours=1), name="orders"))
    counts = stream.group_by_key().count("counted", Materialized(name="counts", caching=False))
    named = counts.to_stream().map(lambda code, count: (code, f"{code}={count}"))
    named.process(Country, ["by-code"], "named").to(target)
    return builder.build()


def test_a_pattern_a_duration_and_a_global_store(harness: Harness) -> None:
    countries, target = harness.topic("countries", 2), harness.topic("out", 1)
    topology = program(harness, countries, target)
    with pytest.raises(TopologyError, match="No topic matches"):
        harness.run(topology)

    now = int(time.time() * 1000)
    old, new = now - 3 * HOUR_MS, now - HOUR_MS // 2

    def order(topic: str, *orders: tuple[str, int]) -> None:
        harness.send(topic, [Sent(code.encode(), b"an order", at, 0) for code, at in orders])

    def results() -> list[str]:
        return [record.value.decode() for record in harness.read(target) if record.value is not None]

    eu, us, other = harness.topic("orders-eu", 2), harness.topic("orders-us", 1), harness.topic("my-orders-eu", 1)
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        harness.run(program(harness, f"{harness.application_id}.nowhere", target))
    harness.send(countries, [Sent(b"Germany", b"DE", now), Sent(b"Peru", b"PE", now)])
    order(eu, ("DE", old), ("DE", old), ("DE", new))
    order(us, ("PE", old), ("DE", new + 1))
    order(other, ("DE", new))
    harness.run(topology)
    assert results() == ["Germany=1", "Germany=2"]

    # A new topic is found by the next start, and begins where the policy says; what is known goes on, with its state.
    asia = harness.topic("orders-asia", 1)
    order(asia, ("PE", old), ("PE", new + 2))
    order(eu, ("DE", old))
    harness.run(topology)
    assert sorted(results()[2:]) == ["Germany=3", "Peru=1"]
    order(asia, ("PE", old))
    harness.run(topology)
    assert results()[4:] == ["Peru=2"]


# --- On real Spark and Kafka: a new program on values of an older one, and records that go to several partitions.


def test_records_go_where_the_partitioner_says(harness: Harness) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 4)
    chosen = {b"one": 2, b"several": {3, 0}, b"none": (), b"kafka": None}
    builder = StreamsBuilder()
    builder.stream(source).to(target, Produced(partitioner=lambda topic, k, v, n: chosen[k.encode()] if n == 4 else 9))
    records = [Sent(key, b"%d" % at, at, headers=(("h", b"x"),)) for at, key in enumerate(chosen)]
    harness.send(source, records)
    harness.run(builder.build())
    found = harness.read(target)
    assert [(r.partition, r.key) for r in found if r.key != b"kafka"] == [(0, b"several"), (2, b"one"), (3, b"several")]
    assert sum(r.key == b"kafka" for r in found) == 1
    assert {r.headers for r in found} == {(("h", b"x"),)}


def totals(source: str, target: str, serde: object, unit: int) -> Topology:
    """Adds up the values of a key, kept under another name and in another unit from version 1 on."""
    name = "total" if unit == 1 else "cents"
    builder = StreamsBuilder()
    table = (
        builder.stream(source)
        .group_by_key()
        .aggregate(
            dict,
            lambda key, value, total: {name: total.get(name, 0) + value * unit},
            materialized=Materialized(name="totals", value_serde=serde),  # type: ignore[arg-type]
        )
    )
    table.to_stream().to(target, Produced(value_serde=JsonSerde()))
    return builder.build()


def test_a_new_program_goes_on_with_old_values(harness: Harness) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)

    def last(key: bytes) -> bytes | None:
        return [record.value for record in harness.read(target) if record.key == key][-1]

    new = totals(source, target, VersionedSerde(JsonSerde(), 1, {1: lambda v: {"cents": v["total"] * 100}}), 100)
    harness.send(source, [Sent(b"%d" % n, b"2", n) for n in range(6)])
    harness.run(totals(source, target, JsonSerde(), 1))
    assert last(b"0") == b'{"total":2}'
    # On the local state, and then on one that is restored from the changelog, which holds both versions.
    harness.send(source, [Sent(b"0", b"3", 10)])
    harness.run(new)
    assert last(b"0") == b'{"cents":500}'
    shutil.rmtree(harness.config().state_dir)
    harness.send(source, [Sent(b"%d" % n, b"1", 20) for n in range(6)])
    harness.run(new)
    assert [last(b"%d" % n) for n in range(6)] == [b'{"cents":600}', *[b'{"cents":300}'] * 5]


# --- Partition times do not depend on where micro-batches are cut, nor on who crashes in between.

STAMPS = [100, -1, 50, -1, 130, -1, -1, 120, -1, 2**61, -1]
EXPECTED = [100, 100, 50, 100, 130, 130, 130, 120, 130, 2**61, 2**61]
CUTS = [3, 6, 9, 10, len(STAMPS)]


def copying_topology(source: str, target: str) -> Topology:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source, Consumed(timestamp_extractor=UsePartitionTimeOnInvalidTimestamp())).to(target)
    return builder.build()


def test_partition_times_outlive_batches(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = copying_topology(source, target)
    # In the second run the task that owns partition 1 dies with everything committed.
    monkeypatch.setenv("STREAMS_FAULT", "after_commit@1:2")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    done = 0
    for cut in CUTS:
        harness.send(source, [Sent(b"k", b"%d" % n, STAMPS[n], 1) for n in range(done, cut)])
        # The other partition has times of its own.
        harness.send(source, [Sent(b"other", b"-1", 10**6 + cut, 0)])
        harness.run(topology, max_future_ms=None)
        done = cut
    assert (tmp_path / "killed").exists()
    found = {int(r.value or b""): r.timestamp for r in harness.read(target) if r.key == b"k"}
    assert [found[n] for n in range(len(STAMPS))] == EXPECTED
    client = {"bootstrap.servers": harness.servers}
    with kafka(harness) as admin:
        commits = f"{harness.application_id}-{source}-commits"
        times = PartitionTimes(LiveLog(client, admin), commits, partial(wait_until_decided, admin, timeout_s=90))

        def at(offset: int) -> int:
            return times.before([OffsetRange(source, 1, offset, 99)])[source, 1]

        # The last two are known: of a range that is repeated, and of the next one.
        assert [at(CUTS[-1]), at(CUTS[-2]), at(0)] == [2**61, 2**61, NO_TIME]


# --- `enrich` on real Spark: another attempt may get other answers, yet what is committed is of one attempt, once each.

ENRICH_KEYS = [b"key-%d" % n for n in range(7)]
RECORDS = 60


class Answers:
    """A client of a system that never gives the same answer twice."""

    def __init__(self) -> None:
        self.client = uuid.uuid4().hex

    async def __call__(self, value: int) -> dict[str, Any]:
        await asyncio.sleep(0.001 * (value % 3))
        return {"n": value, "answer": uuid.uuid4().hex, "client": self.client}


def numbered(start: int) -> list[Sent]:
    return [Sent(ENRICH_KEYS[n % len(ENRICH_KEYS)], b"%d" % n, 1000 + n) for n in range(start, start + RECORDS)]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["outputs_sent", pytest.param("after_commit", marks=pytest.mark.long)])
@pytest.mark.micro_batches("the second attempt of a micro-batch skips what is committed")
def test_a_worker_killed_meanwhile_changes_nothing(
    harness: Harness, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, last = harness.topic("in", 2), harness.topic("out", 2), harness.topic("last", 2)
    builder = StreamsBuilder()
    enriched = builder.stream(source).enrich(Answers, concurrency=4)
    enriched.to(target)
    newest = enriched.group_by_key().reduce(lambda _, new: new, materialized=Materialized(name="newest"))
    newest.to_stream().to(last)
    topology = builder.build()

    harness.send(source, numbered(0))
    harness.run(topology)
    harness.send(source, numbered(RECORDS))
    happened = tmp_path / "killed"
    monkeypatch.setenv("STREAMS_FAULT", f"{point}@1:2")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(happened))
    progress = harness.run(topology)
    assert happened.exists(), "the drill's fault did not happen"

    written = harness.read(target)
    by_key: dict[bytes | None, list[int]] = {}
    for record in written:
        by_key.setdefault(record.key, []).append(orjson.loads(record.value or b"")["n"])
    assert by_key == {key: list(range(n, 2 * RECORDS, len(ENRICH_KEYS))) for n, key in enumerate(ENRICH_KEYS)}
    # State and output are of the same attempt: had they been mixed, their answers would differ.
    assert last_per_key(harness.read(last)) == last_per_key(written)
    (sub,) = progress.subs.values()
    assert any(name.startswith("calls:") and count > 0 for name, count in sub.counters.items())
