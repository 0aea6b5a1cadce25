"""Stateful, re-keyed, stateful again: two queries linked by a repartition topic, exact and trimmed behind them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from streams import Grouped, Int64Serde, Materialized, Repartitioned, StreamsBuilder, StringSerde
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually, kafka, running

KEYS = [f"{letter}{n}" for letter in "abc" for n in range(7)]


def topology_of(source: str, target: str, partitions: int | None = None) -> Topology:
    """Counts keys, then the updates of those counts by the keys' first letter: which are the records again."""
    builder = StreamsBuilder()
    first = builder.stream(source).group_by_key().count(materialized=Materialized(name="first", caching=False))
    letters = first.to_stream().select_key(lambda key, value: key[0])
    if partitions:
        how = Repartitioned(StringSerde(), Int64Serde(), partitions, name="by-letter")
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

    def log(self) -> tuple[int, int]:
        """Records that the repartition topic still has, and had (control records among them)."""
        with kafka(self.harness) as admin:
            count = admin.describe_topics([self.between])[self.between].partitions
            places = [(self.between, partition) for partition in range(count)]
            begin, end = admin.begin_offsets(places), admin.end_offsets(places)
        return sum(end.values()) - sum(begin.values()), sum(end.values())


@pytest.mark.parametrize("partitions", [None, 2])
def test_available_now(
    harness: Harness, partitions: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(harness, partitions)
    stages.send(200)
    progress = harness.run(stages.topology)
    assert stages.exact()
    assert [sub.task_count for sub in progress.subs.values()] == [3, partitions or 3]
    assert all(sub.lag == 0 for sub in progress.subs.values())
    _, had = stages.log()
    stages.send(100)
    # A task of either stage dies on the way: nothing is counted twice behind it.
    monkeypatch.setenv("STREAMS_FAULT", "after_commit@0:2")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    harness.run(stages.topology, max_records_per_trigger=60)
    assert (tmp_path / "killed").exists()
    assert stages.exact()
    left, _ = stages.log()
    assert left < had


def test_continuous(harness: Harness) -> None:
    stages = Stages(harness, None)
    with running(harness, stages.topology):
        for _ in range(3):
            stages.send(100)
            eventually(stages.exact, "counts of all records")
        left, had = stages.log()
        assert left < had
    stages.send(50)
    harness.run(stages.topology)
    assert stages.exact()
