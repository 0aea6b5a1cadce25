"""The spine: counts of words on real Kafka and Spark, exactly once through every crash point, restorable."""

from __future__ import annotations

import random
import shutil
from collections import Counter

import orjson

from streams import Grouped, Materialized, StreamsBuilder
from streams.drills.topics import Read
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key

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


def test_counts_over_several_runs(harness: Harness) -> None:
    source, target = harness.topic("lines", 3), harness.topic("counts", 2)
    topology = word_topology(source, target)
    one, two = lines(1, 300), lines(2, 200)
    send_lines(harness, source, one, 1_000_000)
    progress = harness.run(topology)
    assert last_per_key(harness.read(target)) == expected(one)
    assert progress.subs[source.replace("/", "-")].lag == 0
    send_lines(harness, source, two, 2_000_000)
    harness.run(topology, max_records_per_trigger=50)
    records = harness.read(target)
    assert last_per_key(records) == expected(one, two)
    assert increasing(records)


def test_deleted_local_state_is_restored(harness: Harness) -> None:
    source, target = harness.topic("lines", 2), harness.topic("counts", 2)
    topology = word_topology(source, target)
    one, two = lines(5, 100), lines(6, 100)
    send_lines(harness, source, one, 1_000_000)
    harness.run(topology)
    shutil.rmtree(harness.config().state_dir)
    send_lines(harness, source, two, 2_000_000)
    harness.run(topology)
    records = harness.read(target)
    assert last_per_key(records) == expected(one, two)
    assert increasing(records)
