"""W1 at a steady rate: how long it takes until a result is visible, and how soon it goes on after a crash (B8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.generators.paced import Paced
from benchmarks.generators.records import START_MS, Batch
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.windows import hopping
from benchmarks.workloads.base import PARTITIONS, Output, RunConfig, windowed_key
from benchmarks.workloads.windows import Windows, windows_of
from streams import StreamsBuilder, Topology, agg


class Latency(Windows):
    """The size is the number of readings in the measured time. Before it, some are sent at once, and some as a warm-up."""

    name = "latency"
    title = "W1 paced at 20 000 records/s: input to read_committed reader"
    procedure = "latency"
    grows = True
    rates = {"smoke": 2_000, "small": 20_000, "full": 20_000}
    sizes = {"smoke": 4_000, "small": 600_000, "full": 6_000_000}
    warm_up_s = {"smoke": 1, "small": 15, "full": 120}
    first = 10_000
    """Readings that are there at the start, so that the system has something to do."""

    def parameters_of(self, size: str) -> Mapping[str, Any]:
        other = {} if self.partitions == PARTITIONS else {"partitions": self.partitions}
        return {**self.parameters, "rate": self.rates[size], **other}

    def batches(self, size: str) -> Iterator[Batch]:
        yield self.before(size).batch("events", 0, self.first)

    def before(self, size: str) -> Paced:
        """What is sent before the start: readings of long ago."""
        return Paced(START_MS, self.rates[size])

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        windowed = builder.stream(config.topics["events"]).group_by_key().windowed_by(windows_of(config))
        results = windowed.aggregate(count=agg.count(), mean=agg.mean("v.0"), t=agg.max("t"))
        results.to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        raise NotImplementedError("a paced load is verified by `verify_paced`")

    def verify_paced(self, size: str, found: Output, load: Paced, sent: int) -> Verdict:
        """Compares the output with the recomputation of all readings: those of the start, and `sent` paced ones."""
        window_ms = found.config.parameters["window_ms"]
        parts: list[Any] = [self.before(size).columns(0, self.first), load.columns(0, sent)]
        tables = [hopping(one["key"], one["timestamp"], one["milli"], window_ms, window_ms) for one in parts]
        values, records = found.last_values()
        rows = [(*windowed_key(key), value["count"], value["mean"]) for key, value in values.items()]
        expected = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key", "start"]), records)


class Recovery(Latency):
    """The system is killed in the middle of the measured time, and started again at once."""

    name = "recovery"
    title = "B8: W1 paced; all processes killed, started again"
    procedure = "recovery"
