"""Session and sliding windows of a thousand keys: windows of a few records each, far more of them than in tumbling windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from benchmarks.generators.events import Events
from benchmarks.generators.records import Batch
from benchmarks.verify import windows
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.workloads.base import Output, RunConfig, Workload, session_key, windowed_key
from streams import SessionWindows, SlidingWindows, StreamsBuilder, Topology, agg

Row = tuple[int, int, int, int, float]
"""Key, start, end, count, mean."""
R = TypeVar("R", bound="tuple[Any, ...]")


class Sessions(Workload):
    """Sessions that end after 20 ms of inactivity, 2.7 records on average."""

    name = "sessions"
    title = "count and mean in session windows, gap 20 ms, 1000 keys"
    sizes = {"smoke": 20_000, "small": 3_000_000, "full": 12_000_000}
    parameters = {"gap_ms": 20, "grace_ms": 1_000}

    def events(self, size: str) -> Events:
        """The input: 50 records a second and key."""
        return Events(self.sizes[size], keys=1_000, rate=50_000)

    def batches(self, size: str) -> Iterator[Batch]:
        yield from self.events(size).batches("events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        gaps = SessionWindows.of_inactivity_gap_and_grace(config.parameters["gap_ms"], config.parameters["grace_ms"])
        grouped = builder.stream(config.topics["events"]).group_by_key().windowed_by(gaps)
        grouped.aggregate(count=agg.count(), mean=agg.mean("v")).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = self.events(size).columns()
        expected = windows.sessions(
            columns["key"], columns["timestamp"], columns["milli"], found.config.parameters["gap_ms"]
        )
        values, records = found.last_values()
        rows: list[Row] = [(*session_key(key), value["count"], value["mean"]) for key, value in values.items()]
        if not found.retracts:
            rows = last_of_each(rows)
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key", "start", "end"]), records)


def last_of_each(rows: list[R]) -> list[R]:
    """The sessions that lie in no other one of their key: what is left when those that grew are not deleted."""
    kept: list[R] = []
    for row in sorted(rows, key=lambda one: (one[0], one[1], -one[2])):
        if not kept or kept[-1][0] != row[0] or row[2] > kept[-1][2]:
            kept.append(row)
    return kept


class Sliding(Sessions):
    """Sliding windows: each record is in about four windows, and each window has few records."""

    name = "sliding"
    title = "count and mean in sliding windows of 20 ms, 1000 keys"
    sizes = {"smoke": 8_000, "small": 600_000, "full": 3_000_000}
    parameters = {"difference_ms": 20, "grace_ms": 1_000}

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        difference, grace = config.parameters["difference_ms"], config.parameters["grace_ms"]
        sliding = SlidingWindows.of_time_difference_and_grace(difference, grace)
        grouped = builder.stream(config.topics["events"]).group_by_key().windowed_by(sliding)
        grouped.aggregate(count=agg.count(), mean=agg.mean("v")).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = self.events(size).columns()
        expected = windows.sliding(
            columns["key"],
            columns["timestamp"],
            columns["milli"],
            found.config.parameters["difference_ms"],
            only_left=found.sliding == "left",
        )
        values, records = found.last_values()
        rows = [(*windowed_key(key), value["count"], value["mean"]) for key, value in values.items()]
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key", "start"]), records)
