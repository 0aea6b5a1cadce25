"""Count and mean by key without windows: the aggregate whose state grows with the number of keys alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.generators.events import Events
from benchmarks.generators.records import Batch
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.workloads.base import Output, RunConfig, Workload, number_of
from streams import StreamsBuilder, Topology, agg


class Counts(Workload):
    """Events of many keys, which `keys` and `skew` describe."""

    name = "counts"
    title = "count and mean by key, 100 000 keys"
    sizes = {"smoke": 20_000, "small": 3_000_000, "full": 12_000_000}
    keys = 100_000
    skew = 0.0

    def events(self, size: str) -> Events:
        """The input."""
        return Events(self.sizes[size], self.keys, rate=100_000, skew=self.skew)

    def batches(self, size: str) -> Iterator[Batch]:
        yield from self.events(size).batches("events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        grouped = builder.stream(config.topics["events"]).group_by_key()
        grouped.aggregate(count=agg.count(), mean=agg.mean("v")).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = self.events(size).columns()
        counts = np.bincount(columns["key"], minlength=self.keys)
        sums = np.bincount(columns["key"], weights=columns["milli"], minlength=self.keys)
        keys = np.flatnonzero(counts)
        expected = {"key": keys, "count": counts[keys], "mean": sums[keys] / 1_000 / counts[keys]}
        values, records = found.last_values()
        rows = [(number_of(key), value["count"], value["mean"]) for key, value in values.items()]
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key"]), records)
