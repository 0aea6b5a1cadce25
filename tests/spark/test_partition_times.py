"""Partition times do not depend on where micro-batches are cut, nor on who crashes in between."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from state.kafka.admin import wait_until_decided
from streams import BytesSerde, Consumed, StreamsBuilder, UsePartitionTimeOnInvalidTimestamp
from streams.model.times import NO_TIME
from streams.source.log import LiveLog
from streams.source.offsets import OffsetRange
from streams.source.partition_times import PartitionTimes
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent
from tests.spark.live import kafka

STAMPS = [100, -1, 50, -1, 130, -1, -1, 120, -1, 2**61, -1]
EXPECTED = [100, 100, 50, 100, 130, 130, 130, 120, 130, 2**61, 2**61]
CUTS = [3, 6, 9, 10, len(STAMPS)]


def topology_of(source: str, target: str) -> Topology:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source, Consumed(timestamp_extractor=UsePartitionTimeOnInvalidTimestamp())).to(target)
    return builder.build()


def test_partition_times_outlive_batches(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = topology_of(source, target)
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
