"""W1: count and mean of a thousand devices in tumbling windows, by built-in aggregates and by Python functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.generators import readings
from benchmarks.generators.records import Batch
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.windows import hopping
from benchmarks.workloads.base import Output, RunConfig, Workload, windowed_key
from streams import StreamsBuilder, TimeWindows, Topology, agg

Accumulator = dict[str, Any]


class Windows(Workload):
    """By built-in aggregates."""

    name = "windows"
    title = "count and mean in tumbling windows, 1000 keys"
    sizes = {"smoke": 40_000, "small": 8_000_000, "full": 30_000_000}
    parameters = {"window_ms": 1_000, "grace_ms": 5_000}

    def batches(self, size: str) -> Iterator[Batch]:
        yield from readings.batches(readings.devices(self.sizes[size]), "events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        windowed = builder.stream(config.topics["events"]).group_by_key().windowed_by(windows_of(config))
        windowed.aggregate(count=agg.count(), mean=agg.mean("v.0")).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = readings.columns(readings.devices(self.sizes[size]))
        expected = hopping(
            columns["key"],
            columns["timestamp"],
            columns["milli"],
            found.config.parameters["window_ms"],
            found.config.parameters["window_ms"],
        )
        values, records = found.last_values()
        rows = [(*windowed_key(key), value["count"], value["mean"]) for key, value in values.items()]
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key", "start"]), records)


class WindowsPython(Windows):
    """By functions of the user: initializer, aggregator and a mapper to the result."""

    name = "windows-python"
    title = "the same with Python functions"
    sizes = {"smoke": 20_000, "small": 4_000_000, "full": 15_000_000}

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        windowed = builder.stream(config.topics["events"]).group_by_key().windowed_by(windows_of(config))
        windowed.aggregate(begin, add).map_values(result).to_stream().to(config.topics["out"])
        return builder.build()


def begin() -> Accumulator:
    """An empty window."""
    return {"count": 0, "sum": 0.0}


def add(reading: dict[str, Any], window: Accumulator) -> Accumulator:
    """A window with one more reading."""
    return {"count": window["count"] + 1, "sum": window["sum"] + reading["v"][0]}


def result(window: Accumulator) -> dict[str, Any]:
    """Count and mean of a window."""
    return {"count": window["count"], "mean": window["sum"] / window["count"]}


def windows_of(config: RunConfig) -> TimeWindows:
    """The workload's windows."""
    return TimeWindows.of_size_and_grace(config.parameters["window_ms"], config.parameters["grace_ms"])
