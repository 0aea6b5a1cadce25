"""Random topologies give the same results unit by unit as depth first, whatever shares stores, meets, or emits at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any, TypeAlias

import pytest

from streams import (
    Consumed,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    agg,
)
from streams.dsl.kstream import KStream
from streams.dsl.ktable import KTable
from tests.both_ways import check_both_ways, takes_batches
from tests.budget import seeds
from tests.runtime.test_records_together import feed

AnyStream: TypeAlias = "KStream[Any, Any]"
AnyTable: TypeAlias = "KTable[Any, Any]"


class Seen(Processor[Any, Any, Any, Any]):
    """Forwards all rows of its stores, and counts in one of its own."""

    def __init__(self, stores: list[str]) -> None:
        self.stores = stores

    def process(self, record: Record[Any, Any]) -> None:
        if "counts" in self.stores:
            counts = self.ctx.store("counts")
            counts.put("all", (counts.get("all") or 0) + 1)
        rows = [[str(row) for row in self.ctx.store(store).all()] for store in self.stores]
        self.ctx.forward(record.with_value([record.value, rows]))


class Program:
    """A random topology with the streams and tables that it has so far."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=JsonSerde())
        self.builder.add_state_store(Stores.key_value_store("counts", StringSerde(), JsonSerde()))
        self.names = (f"store-{number}" for number in count())
        self.streams: list[AnyStream] = [
            self.builder.stream(topic, Consumed(StringSerde(), JsonSerde())) for topic in ("left", "right")
        ]
        self.tables: list[AnyTable] = []
        self.stores: list[str] = []
        self.written: list[str] = []
        for _ in range(self.rng.randrange(1, 4)):
            self.shared()
            self.rng.choice(STEPS)(self)
        for stream in [*self.streams[2:], *(table.to_stream() for table in self.tables)]:
            topic = self.rng.choice(["out", f"out-{len(self.written)}"])
            stream.map(lambda key, value: (str(key), value)).to(topic, Produced(StringSerde(), JsonSerde()))
            self.written.append(topic)

    def stream(self) -> AnyStream:
        if self.tables and self.rng.random() < 0.5:
            return self.rng.choice(self.tables).to_stream()
        return self.rng.choice(self.streams)

    def shared(self) -> None:
        """A table, and an operator that reads it while it takes records from somewhere above, below or beside the table."""
        self.rng.choice([self.to_table, self.aggregate, self.windows, self.of_table, self.join_tables])()
        table, store = self.tables[-1], self.stores[-1]
        if self.rng.random() < 0.5:
            self.rng.choice([self.to_table, self.aggregate, self.windows, self.stateless])()
        taken = self.rng.choice([table.to_stream(), self.stream(), self.streams[-1], self.tables[-1].to_stream()])
        self.rng.choice([self.join_table, self.processor])(taken, table, store)

    def table(self) -> AnyTable:
        if not self.tables:
            self.to_table()
        return self.rng.choice(self.tables)

    def kept(self) -> Any:
        """A store, perhaps with a cache."""
        name = next(self.names)
        self.stores.append(name)
        return Materialized(name, value_serde=JsonSerde(), caching=self.rng.random() < 0.6)

    def add(self, made: AnyStream | AnyTable) -> None:
        if isinstance(made, KTable):
            self.tables.append(made)
        else:
            self.streams.append(made)

    def to_table(self) -> None:
        self.add(self.stream().to_table(self.kept()))

    def stateless(self) -> None:
        steps: list[Callable[[AnyStream], AnyStream]] = [
            lambda stream: stream.map_values(lambda value: [value]),
            lambda stream: stream.filter(lambda key, value: key != "b"),
            lambda stream: stream.flat_map_values(lambda value: [value, str(value)]),
            lambda stream: stream.merge(self.stream().filter(lambda key, value: True)),
        ]
        self.add(self.rng.choice(steps)(self.stream()))

    def aggregate(self) -> None:
        grouped = self.stream().group_by_key()
        added = lambda key, value, values: [*values, value][-3:]  # noqa: E731
        self.add(
            self.rng.choice(
                [
                    lambda: grouped.count(self.kept()),
                    lambda: grouped.aggregate(list, added, self.kept()),
                    lambda: grouped.reduce(lambda one, other: [one, other][-1:], self.kept()),
                    lambda: grouped.aggregate(materialized=self.kept(), n=agg.count(), last=agg.last("x")),
                ]
            )()
        )

    def windows(self) -> None:
        ms = lambda number: timedelta(milliseconds=number)  # noqa: E731
        grouped, caching = self.stream().group_by_key(), self.kept()
        windowed: Any = grouped.windowed_by(
            self.rng.choice(
                [
                    TimeWindows.of_size_and_grace(ms(10), ms(self.rng.randrange(20))),
                    SlidingWindows.of_time_difference_and_grace(ms(5), ms(self.rng.randrange(20))),
                    SessionWindows.of_inactivity_gap_and_grace(ms(5), ms(self.rng.randrange(20))),
                ]
            )
        )
        table = windowed.count(caching)
        if self.rng.random() < 0.3:
            table = table.suppress(Suppressed.until_window_closes())
        self.add(table.to_stream().map(lambda key, value: (key.key, [key.window.start, value])).to_table(self.kept()))

    def join_table(self, stream: AnyStream | None = None, table: AnyTable | None = None, store: str = "") -> None:
        stream, table = stream or self.stream(), table or self.table()
        join = self.rng.choice(["join", "left_join"])
        self.add(getattr(stream, join)(table, lambda value, row: [value, row], next(self.names)))

    def join_tables(self) -> None:
        join = self.rng.choice(["join", "left_join", "outer_join"])
        self.add(
            getattr(self.table(), join)(self.table(), lambda value, row: [value, row], next(self.names), self.kept())
        )

    def join_streams(self) -> None:
        join = self.rng.choice(["join", "left_join", "outer_join"])
        window = JoinWindows.of_time_difference_and_grace(timedelta(milliseconds=4), timedelta(milliseconds=3))
        self.add(getattr(self.stream(), join)(self.stream(), lambda one, other: [one, other], window, next(self.names)))

    def of_table(self) -> None:
        table = self.table()
        self.add(
            self.rng.choice(
                [
                    lambda: table.filter(lambda key, value: key != "c", self.kept()),
                    lambda: table.map_values(lambda value: [value], self.kept()),
                    lambda: table.to_stream(),
                ]
            )()
        )

    def processor(self, stream: AnyStream | None = None, table: AnyTable | None = None, store: str = "") -> None:
        stores = ["counts"] if self.rng.random() < 0.3 else []
        stores += [store] if store else self.rng.sample(self.stores, min(len(self.stores), 1))
        self.add((stream or self.stream()).process(lambda: Seen(stores), stores, named=next(self.names)))


STEPS = [
    Program.to_table,
    Program.to_table,
    Program.stateless,
    Program.aggregate,
    Program.aggregate,
    Program.windows,
    Program.join_table,
    Program.join_table,
    Program.join_table,
    Program.join_tables,
    Program.join_streams,
    Program.of_table,
    Program.processor,
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(60)))
def test_unit_by_unit(seed: int) -> None:
    program = Program(seed)
    steps = feed(seed, topics=("left", "right"))
    topology = program.builder.build()
    if not takes_batches(topology):
        pytest.skip("all of its records go depth first")
    check_both_ways(topology, steps, partitions={"left": 2, "right": 2}, apart_ms=10, restarts=[1], processing="skip")
