"""B5: readings joined with the groups of their devices, then aggregated by group: a join and a windowed aggregate in a row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from benchmarks.generators import readings
from benchmarks.generators.records import START_MS, Batch, Ints
from benchmarks.generators.text import texts
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.windows import hopping
from benchmarks.workloads.base import Output, RunConfig, Workload, windowed_key
from streams import StreamsBuilder, TimeWindows, Topology, agg, col, fields
from topologies.devices_data import device_names

GROUPS = 100
WITH_GROUP = fields(right="group", v=col("left.v.0"))
"""A reading's first sensor with its device's group."""


class Enrich(Workload):
    """The table is sent first, and again and again while the readings run, always with the same groups."""

    name = "enrich"
    title = "B5: join with a table, then count and mean by group per 1 s (two sub-topologies)"
    inputs = ("events", "table")
    sizes = {"smoke": 20_000, "small": 3_000_000, "full": 20_000_000}
    parameters = {"window_ms": 1_000, "grace_ms": 60_000}

    def batches(self, size: str) -> Iterator[Batch]:
        of = readings.devices(self.sizes[size])
        seconds = of.slots // 100
        updates = (_table(START_MS + 1_000 * second) for second in range(0, max(seconds, 1), 10))
        yield from chain([_table(START_MS - 1_000)], updates, readings.batches(of, "events"))

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        table = builder.table(config.topics["table"])
        windows = TimeWindows.of_size_and_grace(config.parameters["window_ms"], config.parameters["grace_ms"])
        joined = builder.stream(config.topics["events"]).join(table, WITH_GROUP)
        by_group = joined.group_by(col("group")).windowed_by(windows)
        by_group.aggregate(count=agg.count(), mean=agg.mean("v")).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        columns = readings.columns(readings.devices(self.sizes[size]))
        window_ms = found.config.parameters["window_ms"]
        expected = hopping(group_of(columns["key"]), columns["timestamp"], columns["milli"], window_ms, window_ms)
        values, records = found.last_values()
        rows = [(*windowed_key(key), value["count"], value["mean"]) for key, value in values.items()]
        return Verdict(compare(expected, table_of(rows, list(expected)), ["key", "start"]), records)


def group_of(devices: Ints) -> Ints:
    """The group of each device."""
    return devices * 7919 % GROUPS


def _table(time_ms: int) -> Batch:
    devices = np.arange(readings.DEVICES, dtype=np.int64)
    values = texts('{"group":"g-GGG"}', {"GGG": group_of(devices)}, len(devices))
    return Batch("table", device_names(devices), values, np.full(len(devices), time_ms))
