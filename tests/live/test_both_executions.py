"""Random programs leave the same behind live as in micro-batches, if their steps have the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from state.headers import encode_headers
from streams import (
    Consumed,
    EmitStrategy,
    JsonSerde,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from streams.topology.ways import why_not_live
from tests.both_ways import Fed, _headers, played
from tests.budget import seeds
from tests.live.test_task import APP, World
from tests.properties.test_random_topologies import Program
from tests.runtime.test_records_together import feed

TOPICS = ("left", "right")
Rows = list[tuple[Any, ...]]


def live(topology: Topology, steps: Sequence[Sequence[Fed]], restart_after: int) -> dict[str, Rows]:
    """The records in all topics that the program writes to, after live steps with the given records."""
    world = World(topology, settings={"processing": "skip"})
    at = 0
    for upto in (restart_after + 1, len(steps)):
        with world.task() as task:
            for reader in world.readers.values():
                reader.poll(0)
            for step in steps[at:upto]:
                for one in step:
                    headers = encode_headers(list(one.headers)) if one.headers else None
                    world.kafka.append(one.topic, one.key, one.value, one.timestamp, headers, partition=0)
                world.run(task)
            at = upto
    return {topic: rows for topic in world.written() if (rows := rows_of(world, topic))}


def rows_of(world: World, topic: str) -> Rows:
    columns = world.kafka.columns(topic, 0)
    if columns is None:
        return []
    cells = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    lists = columns.keys.to_pylist(), columns.values.to_pylist(), columns.timestamps.tolist(), map(_headers, cells)
    return list(zip(*lists, strict=True))


def compare(topology: Topology, seed: int) -> dict[str, Rows]:
    """Plays the records of a seed in both executions, with a restart; returns what is written."""
    steps = [[replace(one, partition=0) for one in step] for step in feed(seed, topics=TOPICS)]
    expected = played(topology, steps, restarts=[1], partitions=dict.fromkeys(TOPICS, 1), processing="skip")
    assert expected.failed is None
    # The driver calls its application "test".
    wanted = {topic.replace("test-", f"{APP}-", 1): rows for (topic, _), rows in expected.topics.items()}
    assert live(topology, steps, restart_after=1) == wanted, f"seed {seed}"
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(0, 240, 60)))
def test_random_programs(first: int) -> None:
    played_live = 0
    for seed in range(first, first + 60):
        topology = Program(seed).builder.build()
        subs = build_plan(topology, APP).sub_topologies
        if len(subs) > 1 or why_not_live(subs[0]):
            continue
        compare(topology, seed)
        played_live += 1
    assert played_live > 2


class Totals(Processor[str, Any, str, Any]):
    """Counts records by key, and forwards all counts whenever stream time has moved on by some milliseconds."""

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        context.schedule(7, "stream_time", self.send_all)

    def process(self, record: Record[str, Any]) -> None:
        store = self.ctx.get_state_store("totals")
        key = record.key or "-"
        store.put(key, (store.get(key) or 0) + 1)

    def send_all(self, now_ms: int) -> None:
        for key, total in self.ctx.get_state_store("totals").all():
            self.ctx.forward(Record(key, {"total": total}, now_ms))


def punctuated() -> Topology:
    """Calls that stream time makes due, in the middle of steps."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("totals", StringSerde(), JsonSerde()))
    source = builder.stream(list(TOPICS), Consumed(StringSerde(), JsonSerde()))
    source.process(Totals, "totals").to("out", Produced(StringSerde(), JsonSerde()))
    return builder.build()


def closed() -> Topology:
    """Windows that are sent once they are closed, by the stream time of the records of both topics."""
    builder = StreamsBuilder()
    source = builder.stream(list(TOPICS), Consumed(StringSerde(), JsonSerde()))
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=10), timedelta(milliseconds=5))
    counted = source.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    counted.count(materialized=Materialized("windows")).to_stream(lambda of, _: of.key).to("out")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(15)))
@pytest.mark.parametrize("topology", [punctuated, closed])
def test_calls_and_windows_that_stream_time_makes_due(topology: Callable[[], Topology], seed: int) -> None:
    assert compare(topology(), seed)["out"]
