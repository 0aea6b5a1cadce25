"""One truth: the same records give the same tables, as bytes, however they are cut into steps, and wherever they are processed.

Each program is a random one whose functions make values of many kinds: dicts that count by numbers, tuples, dataclasses with dates
and sets, integers beyond 64 bits. Its keys are JSON objects, and each record has its key in a notation of its own. The records go
through it in one step, one by one, and in random steps with restarts; on 1, 2 and 4 tasks; in memory and in RocksDB; in
micro-batches and live.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple

import pytest

from streams import (
    BytesSerde,
    Consumed,
    JoinWindows,
    JsonSerde,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    agg,
)
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from streams.topology.ways import why_not_live
from tests.both_ways import Fed
from tests.budget import seeds
from tests.live.test_both_executions import live
from tests.live.test_task import APP

TOPICS = ("left", "right")
KEYS = ({"id": 1}, {"id": 2, "of": "x"}, {"id": 2, "of": "é"}, {"of": [1, None], "id": 1.5}, "text", 7)


@dataclass
class Day:
    on: date
    seen: set[int] = field(default_factory=set)
    pair: tuple[str, int] = ("", 0)


def to_day(value: dict[str, Any]) -> Day:
    return Day(date(2026, 1, 1 + value["n"] % 28), {value["n"] % 3}, ("x" * (value["n"] % 2), value["n"]))


def merged(day: Day, other: Day) -> Day:
    return Day(max(day.on, other.on), day.seen | other.seen, (other.pair[0], day.pair[1] + other.pair[1]))


def to_pair(value: dict[str, Any]) -> tuple[int, str]:
    return value["n"], str(value["big"])


def sums(value: tuple[int, str], total: tuple[int, str]) -> tuple[int, str]:
    return value[0] + total[0], max(value[1], total[1])


def no_sum() -> tuple[int, str]:
    return 0, ""


def histogram(value: dict[str, Any], counts: dict[Any, Any]) -> Any:
    counts[value["n"] % 4] = counts.get(value["n"] % 4, 0) + value["big"]
    return counts


class Row(NamedTuple):
    """A record to be: its key is an object, and gets a notation when it is sent."""

    topic: str
    key: Any
    value: Any
    timestamp: int


class Program:
    """A random topology. Every stream and table that it makes goes to an output."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.builder = StreamsBuilder(default_key_serde=JsonSerde(), default_value_serde=JsonSerde())
        self.outputs: list[str] = []
        self.stores = 0
        self.streams = [self.builder.stream(topic, Consumed(JsonSerde(), JsonSerde())) for topic in TOPICS]
        self.tables: list[Any] = []
        for _ in range(self.rng.randrange(2, 5)):
            self.rng.choice(
                [self.typed, self.pairs, self.counts, self.built_in, self.windows, self.table, self.joins]
            )()

    def named(self) -> Any:
        self.stores += 1
        return Materialized(f"store-{self.stores}", caching=self.rng.random() < 0.6)

    def out(self, stream: Any) -> None:
        self.outputs.append(f"out-{len(self.outputs)}")
        stream.to(self.outputs[-1])

    def source(self) -> Any:
        return self.rng.choice(self.streams)

    def typed(self) -> None:
        days = self.source().map_values(to_day)
        table = days.group_by_key().reduce(merged, materialized=self.named())
        self.out(table.to_stream())
        self.out(table.to_stream().map_values(lambda day: {"last": day.on.isoformat(), "kinds": sorted(day.seen)}))

    def pairs(self) -> None:
        table = self.source().map_values(to_pair).group_by_key().aggregate(no_sum, sums, materialized=self.named())
        self.out(table.to_stream())
        self.out(table.to_stream().map_values(lambda pair: isinstance(pair, tuple)))

    def counts(self) -> None:
        grouped = self.source().group_by_key()
        if self.rng.random() < 0.4:
            grouped = self.source().group_by(lambda key, value: {"group": value["n"] % 3, "é": True})
        self.out(grouped.aggregate(dict, histogram, materialized=self.named()).to_stream())

    def built_in(self) -> None:
        grouped = self.source().group_by_key()
        table = grouped.aggregate(n=agg.count(), sum=agg.sum("big"), top=agg.max("n"), materialized=self.named())
        self.out(table.to_stream())

    def windows(self) -> None:
        grouped = self.source().group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(timedelta(milliseconds=7)))
        counts = grouped.aggregate(dict, histogram, materialized=self.named())
        self.out(counts.to_stream().map(lambda key, value: ({"key": key.key, "at": key.window.start}, value)))

    def table(self) -> None:
        table = self.source().to_table(self.named())
        self.tables.append(table)
        step: Sequence[Callable[[], Any]] = (
            lambda: table.filter(lambda key, value: value["n"] % 2, materialized=self.named()),
            lambda: table.map_values(to_day, materialized=self.named()),
            lambda: table.group_by(lambda key, value: ({"g": value["n"] % 2}, value)).count(materialized=self.named()),
        )
        self.out(self.rng.choice(step)().to_stream())

    def joins(self) -> None:
        stream, other = self.streams if self.rng.random() < 0.5 else self.streams[::-1]
        if self.rng.random() < 0.4:
            name = StreamJoined(store_name=f"join-{len(self.outputs)}", name=f"join-{len(self.outputs)}")
            window = JoinWindows.of_time_difference_and_grace(timedelta(milliseconds=3), timedelta(seconds=9))
            self.out(stream.join(other, lambda one, two: {"l": one["n"], "r": two["n"]}, window, name))
            return
        table = other.to_table(self.named())
        if self.rng.random() < 0.5:
            self.out(stream.left_join(table, lambda one, row: {"l": one, "r": row and row["n"]}))
        else:
            joined = stream.to_table(self.named()).join(
                table, lambda one, two: [one["n"], two["big"]], materialized=self.named()
            )
            self.out(joined.to_stream())


def rows(seed: int) -> list[Row]:
    rng, time, found = random.Random(-seed - 1), 0, []
    for number in range(rng.randrange(8, 26)):
        time += rng.randrange(1, 5)
        value = {"n": rng.randrange(40), "big": rng.choice((1, 2**63, 2**70 + number))}
        found.append(Row(rng.choice(TOPICS), rng.choice(KEYS), value, time))
    return found


def notation(value: Any, rng: random.Random) -> bytes:
    """A JSON text of a value: with other spaces, escapes and orders of fields."""
    if isinstance(value, dict):
        fields = list(value.items())
        rng.shuffle(fields)
        parts = [f"{blank(rng)}{text(name, rng)}{blank(rng)}:{notation(one, rng).decode()}" for name, one in fields]
        return f"{{{','.join(parts)}{blank(rng)}}}".encode()
    if isinstance(value, list):
        return f"[{','.join(notation(one, rng).decode() for one in value)}{blank(rng)}]".encode()
    shown = text(value, rng) if isinstance(value, str) else json.dumps(value)
    return f"{blank(rng)}{shown}{blank(rng)}".encode()


def blank(rng: random.Random) -> str:
    return rng.choice(("", "", " ", "\t"))


def text(value: str, rng: random.Random) -> str:
    shown = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    return shown.replace("x", "\\u0078") if rng.random() < 0.3 else shown


Tables = dict[str, dict[bytes | None, bytes | None]]


def steps_of(seed: int, how: str) -> Iterator[tuple[list[Fed], bool]]:
    """The records by steps, each with whether the application starts anew behind it."""
    rng, given = random.Random(f"{seed}{how}"), rows(seed)
    written = [
        Fed(one.topic, notation(one.key, rng), json.dumps(one.value).encode(), one.timestamp, partition=0)
        for one in given
    ]
    while written:
        size = len(written) if how == "one step" else 1 if how == "one by one" else rng.randrange(1, 8)
        yield written[:size], how == "random steps" and rng.random() < 0.4
        written = written[size:]


def played(topology: Topology, outputs: Sequence[str], seed: int, how: str, **driver: Any) -> Tables:
    with TopologyTestDriver(topology, partitions=dict.fromkeys(TOPICS, 1), **driver) as test:
        inputs = {topic: test.create_input_topic(topic) for topic in TOPICS}
        for step, anew in steps_of(seed, how):
            with test.batch():
                for one in step:
                    inputs[one.topic].pipe_bytes(one.key, one.value, one.timestamp)
            if anew:
                test.restart()
        found = {}
        for topic in outputs:
            records = test.create_output_topic(topic, BytesSerde(), BytesSerde()).read_records_to_list()
            found[topic] = table_of((one.key, one.value) for one in records)
        return found


def table_of(updates: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    """The last value of each key; in one step, a row that comes and goes leaves no deletion."""
    return {key: value for key, value in dict(updates).items() if value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(0, 40, 10)))
def test_the_same_tables_whatever_the_steps_tasks_stores_and_execution(first: int) -> None:
    played_live = 0
    for seed in range(first, first + 10):
        program = Program(seed)
        topology, outputs = program.builder.build(), program.outputs
        expected = played(topology, outputs, seed, "one by one", tasks=1)
        assert any(expected.values()), f"seed {seed}"
        for how, tasks, rocksdb in (
            ("one step", 1, False),
            ("random steps", 1, True),
            ("one by one", 2, False),
            ("random steps", 4, False),
            ("one step", 4, True),
        ):
            found = played(topology, outputs, seed, how, tasks=tasks, rocksdb=rocksdb)
            assert found == expected, f"seed {seed}, {how}, {tasks} tasks"
        subs = build_plan(topology, APP).sub_topologies
        if len(subs) == 1 and not why_not_live(subs[0]):
            steps = [step for step, _ in steps_of(seed, "random steps")]
            written = live(topology, steps, restart_after=len(steps) // 2)
            live_tables = {
                topic: table_of((key, value) for key, value, *_ in written.get(topic, [])) for topic in outputs
            }
            assert live_tables == expected, f"seed {seed}, live"
            played_live += 1
    assert played_live
