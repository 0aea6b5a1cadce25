"""An application on real Spark and Kafka goes on with more tasks and then with fewer, while its input gets more partitions."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from state.errors import ChangelogMismatchError
from state.kafka.admin import KafkaAdmin
from streams import Grouped, Materialized, StreamsBuilder, TimeWindows
from streams.application.rescale.plan import UsersChoices
from streams.application.rescale.rescale import LiveRescale
from streams.application.rescale.rows import NobodyListens
from streams.checkpoint.files import LocalFiles
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import grow
from tests.spark.test_counts import increasing

KEYS = [b"k%d" % number for number in range(20)]


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
        live = LiveRescale(config, admin, LocalFiles(config.checkpoint_dir), NobodyListens())
        live.rescaler(topology, tasks, UsersChoices()).run()


def test_counts_go_on_with_more_and_with_fewer_tasks_and_with_grown_input(harness: Harness) -> None:
    source, windows, updates = harness.topic("source", 2), harness.topic("windows", 1), harness.topic("updates", 1)
    topology, sent = build(source, windows, updates), Counter[bytes]()
    for tasks, partitions in ((2, 2), (5, 3), (3, 4)):
        if tasks != 2:
            with pytest.raises(ChangelogMismatchError, match=rf"`streams rescale .* --tasks {tasks}` moves the state"):
                harness.run(topology, tasks=tasks)
            rescale(harness, topology, tasks)
            grow(harness, source, partitions)
        for first in (0, 7):
            harness.send(source, [Sent(KEYS[n % 20], b"%d" % n, 1_000 + n) for n in range(first, 40)])
            sent.update(KEYS[n % 20] for n in range(first, 40))
            harness.run(topology)
        expected = {key: count.to_bytes(8, "big") for key, count in sent.items()}
        found = last_per_key(harness.read(windows))
        assert {key[:-8]: value for key, value in found.items() if key is not None} == expected
        assert last_per_key(harness.read(updates)) == expected
        assert increasing(harness.read(windows))
        assert increasing(harness.read(updates))
