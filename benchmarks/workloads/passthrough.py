"""B1: read, filter a half, map, write: the least that a record costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.generators import readings
from benchmarks.generators.records import Batch
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.workloads.base import Output, RunConfig, Workload, number_of
from streams import StreamsBuilder, Topology, col, fields

FAHRENHEIT = fields("s", f=col("v.0") * 1.8 + 32)


class Passthrough(Workload):
    """Readings with an even sequence number, in degrees Fahrenheit."""

    name = "passthrough"
    title = "B1: read, filter a half, map, write"
    sizes = {"smoke": 20_000, "small": 5_000_000, "full": 20_000_000}

    def batches(self, size: str) -> Iterator[Batch]:
        yield from readings.batches(readings.devices(self.sizes[size]), "events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        builder.stream(config.topics["events"]).filter(col("s") % 2 == 0).map_values(FAHRENHEIT).to(
            config.topics["out"]
        )
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = readings.columns(readings.devices(self.sizes[size]))
        even = columns.take(np.flatnonzero(columns["n"] % 2 == 0))
        expected = {"key": even["key"], "s": even["n"], "f": even["milli"] / 1000 * 1.8 + 32}
        rows = found.rows(lambda key, value: (number_of(key), value["s"], value["f"]))
        lines = compare(expected, table_of(rows, list(expected)), ["key", "s"], duplicates=found.duplicates)
        return Verdict(lines, len(rows))
