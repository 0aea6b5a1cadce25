"""Every kind of state on real Spark: what comes out is what the test driver gives, though all local state is lost between."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import pytest

from streams import (
    BufferConfig,
    BytesSerde,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent

KEYS = [f"key-{n}".encode() for n in range(6)]
PARTITIONS = 2
Build = Callable[[str, str, str], Topology]
Outputs = dict[bytes | None, list[tuple[bytes | None, int]]]


def in_memory(stream: str, table: str, target: str) -> Topology:
    """A table, windows and sessions in memory, beside a table on disk."""
    builder = StreamsBuilder()
    source = builder.stream(stream)
    names = builder.table(table, materialized=Materialized(name="table", persistent=False))
    grouped = source.group_by_key()
    kept = Materialized(name="windows", persistent=False, caching=False)
    grouped.windowed_by(TimeWindows.of_size_and_grace(500, 200)).count(materialized=kept).to_stream().to(target)
    kept = Materialized(name="sums", persistent=False, caching=False)
    grouped.reduce(lambda total, value: total + value, materialized=kept).to_stream().to(target)
    grouped.count(materialized=Materialized(name="on-disk", caching=False)).to_stream().to(target)
    source.join(names, lambda left, right: [left, right], joined=Joined(name="looked-up")).to(target)
    return builder.build()


def versioned(stream: str, table: str, target: str) -> Topology:
    """Stream records find the version of their own time, however late they are."""
    builder = StreamsBuilder()
    versions = builder.table(table, materialized=Materialized(name="versions", history_retention=2_000))
    source = builder.stream(stream)
    source.left_join(versions, lambda left, right: [left, right], joined=Joined(name="as-of")).to(target)
    return builder.build()


def sessions(stream: str, table: str, target: str) -> Topology:
    """Sessions that later records join and merge."""
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(120, 300)
    kept = Materialized(name="sessions", caching=False)
    builder.stream([stream, table]).group_by_key().windowed_by(windows).count(materialized=kept).to_stream().to(target)
    return builder.build()


def suppressed(stream: str, table: str, target: str) -> Topology:
    """Windows that are held back until they close."""
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(400, 300)
    counts = builder.stream([stream, table]).group_by_key().windowed_by(windows).count()
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), "held").to_stream().to(target)
    return builder.build()


def held_back(stream: str, table: str, target: str) -> Topology:
    """A table whose updates are held back for a while."""
    builder = StreamsBuilder()
    counts = builder.stream([stream, table]).group_by_key().count(materialized=Materialized(name="counts"))
    counts.suppress(
        Suppressed.until_time_limit(150, BufferConfig(max_records=4).emit_early_when_full()), "late"
    ).to_stream().to(target)
    return builder.build()


def joined(stream: str, table: str, target: str) -> Topology:
    """Three streams, one of them twice, in a store for each."""
    builder = StreamsBuilder()
    one, two = builder.stream(stream), builder.stream(table)
    windows = JoinWindows.of_time_difference_and_grace(40, 300)
    one.join_all({"other": two, "again": one}, dict, windows, StreamJoined(name="all")).to(target)
    return builder.build()


def foreign_key(stream: str, table: str, target: str) -> Topology:
    """Two sub-topologies that write for each other, and so run over what is there again and again until nothing is left."""
    builder = StreamsBuilder()
    left = builder.table(stream, materialized=Materialized(name="left"))
    right = builder.table(table, materialized=Materialized(name="right"))

    def other(key: str, value: int) -> str:
        return f"key-{value % len(KEYS)}"

    joined = left.left_join(right, lambda one, two: [one, two], foreign_key=other, named="by-value")
    joined.to_stream().to(target)
    return builder.build()


def records(seed: int, start_ms: int, nulls: bool = False) -> list[tuple[bytes, bytes | None, int]]:
    rng = random.Random(seed)
    times = (start_ms + 15 * i - rng.choice((0, 0, 0, 90, 250)) for i in range(60))
    return [
        (rng.choice(KEYS), None if nulls and rng.random() < 0.2 else orjson.dumps(rng.randint(1, 9)), time)
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


def by_driver(topology: Topology, harness: Harness, target: str, parts: Parts) -> Outputs:
    """What the test driver gives for the same steps."""
    counts = dict.fromkeys((*parts[0], target), PARTITIONS)
    with TopologyTestDriver(topology, harness.application_id, counts) as driver:
        for part in parts:
            with driver.batch():
                for topic, rows in part.items():
                    for key, value, time in rows:
                        driver.create_input_topic(topic).pipe_bytes(key, value, time)
        return by_key(driver.create_output_topic(target, BytesSerde(), BytesSerde()).read_records_to_list())


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [in_memory, versioned, sessions, suppressed, held_back, joined, foreign_key],
    ids=lambda one: one.__name__,
)
def test_state_survives_the_loss_of_all_that_is_local(harness: Harness, build: Build) -> None:
    stream, table, target = (harness.topic(word, PARTITIONS) for word in ("stream", "table", "out"))
    topology = build(stream, table, target)
    parts: Parts = [
        {
            table: records(10 + n, 1000 + 900 * n, build in (in_memory, versioned, foreign_key)),
            stream: records(n, 1000 + 900 * n),
        }
        for n in range(3)
    ]
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
    found, wanted = by_key(harness.read(target)), by_driver(topology, harness, target, parts)
    if build is foreign_key:
        # Its two halves write for each other, so what is in between depends on when a micro-batch of each begins; and a
        # result has the time of the half that came last.
        assert last(found) == last(wanted)
    else:
        assert found == wanted
