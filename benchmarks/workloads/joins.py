"""Stream-stream joins: of 100 000 keys within a second before and after, one match a record on average; and within three days."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.generators.events import Events
from benchmarks.generators.pairs import DAY_MS, HOUR_MS, Pairs
from benchmarks.generators.records import Batch, Columns
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.joins import stream_join
from benchmarks.workloads.base import Output, RunConfig, Workload
from streams import JoinWindows, StreamsBuilder, Topology, col, fields

Event = dict[str, Any]

PAIR = fields(l=col("left.n"), r=col("right.n"))
"""A pair; `r` is null for a left record without a match."""


class JoinInner(Workload):
    """The inner join."""

    name = "join-inner"
    title = "stream-stream inner join, 100 000 keys, ±1 s"
    inputs = ("left", "right")
    sizes = {"smoke": 20_000, "small": 2_000_000, "full": 12_000_000}
    parameters = {"before_ms": 1_000, "after_ms": 1_000, "grace_ms": 2_000}
    keys = 100_000
    rate = 50_000

    def sides(self, size: str) -> Mapping[str, Events]:
        """The two streams; a side sends half of the records."""
        half = self.sizes[size] // 2
        # Small sizes have fewer keys, so that records still match.
        keys = min(self.keys, half)
        return {role: Events(half, keys, self.rate, seed) for role, seed in (("left", 42), ("right", 43))}

    def batches(self, size: str) -> Iterator[Batch]:
        for pair in zip(*(events.batches(role) for role, events in self.sides(size).items()), strict=True):
            yield from pair

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        left, right = builder.stream(config.topics["left"]), builder.stream(config.topics["right"])
        left.join(right, PAIR, _windows(config)).to(config.topics["out"])
        return builder.build()

    def columns(self, size: str) -> tuple[Columns, Columns]:
        """The left and the right records."""
        left, right = (events.columns() for events in self.sides(size).values())
        return left, right

    def verify(self, size: str, found: Output) -> Verdict:
        left, right = self.columns(size)
        parameters = found.config.parameters
        expected = stream_join(left, right, parameters["before_ms"], parameters["after_ms"], outer=self.closes)
        rows = found.rows(lambda key, value: (value["l"], value["r"]))
        lines = compare(expected, table_of(rows, ["l", "r"]), ["l", "r"], duplicates=found.duplicates)
        return Verdict(lines, len(rows))


class JoinPython(JoinInner):
    """The inner join with a function as joiner."""

    name = "join-python"
    title = "the same with a Python function as joiner"

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        left, right = builder.stream(config.topics["left"]), builder.stream(config.topics["right"])
        left.join(right, both, _windows(config)).to(config.topics["out"])
        return builder.build()


class JoinLeft(JoinInner):
    """The left join; unmatched left records are emitted once their window has closed."""

    name = "join-left"
    title = "stream-stream left join, 100 000 keys, ±1 s"
    closes = True

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        left, right = builder.stream(config.topics["left"]), builder.stream(config.topics["right"])
        left.left_join(right, PAIR, _windows(config)).to(config.topics["out"])
        return builder.build()


def both(left: Event, right: Event) -> Event:
    """A pair, by a function."""
    return {"l": left["n"], "r": right["n"]}


def _windows(config: RunConfig) -> JoinWindows:
    parameters = config.parameters
    return JoinWindows.of_time_difference_and_grace(parameters["after_ms"], parameters["grace_ms"]).before(
        parameters["before_ms"]
    )


class JoinThreeDays(JoinInner):
    """B6: a right record follows up to three days after its left one, so nearly everything is state."""

    name = "join-3d"
    title = "B6: join within 3 days, state of 3 days of records"
    sizes = {"smoke": 10_000, "small": 1_500_000, "full": 22_500_000}
    # Right records are up to an hour late, and the end of a micro-batch of half a day is not exact to the minute.
    parameters = {"before_ms": 0, "after_ms": 3 * DAY_MS, "grace_ms": 2 * HOUR_MS}

    def pairs(self, size: str) -> Pairs:
        """The two streams: half of the left records have a right one."""
        return Pairs(self.sizes[size] * 2 // 3)

    def batches(self, size: str) -> Iterator[Batch]:
        yield from self.pairs(size).batches()

    def columns(self, size: str) -> tuple[Columns, Columns]:
        return self.pairs(size).columns()
