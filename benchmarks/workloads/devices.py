"""B2: statistics of a thousand devices in windows of 1 s and of 10 s, and a search for lost readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from benchmarks.generators import readings
from benchmarks.generators.records import Batch
from benchmarks.verify.compare import Verdict
from benchmarks.workloads.base import Output, RunConfig, Workload
from streams import StreamsBuilder, Topology
from topologies import devices
from topologies.comparison import compare
from topologies.devices_data import Devices
from topologies.devices_expected import all_readings, expected_gaps, expected_windows
from topologies.devices_load import partitions_of


class DevicesWorkload(Workload):
    """The topology of `topologies/devices.py`; one reading in ten thousand is lost."""

    name = "devices"
    title = "B2: statistics of 1000 devices per 1 s and 10 s, lost readings"
    outputs = ("stats_1s", "stats_10s", "gaps")
    sizes = {"smoke": 40_000, "small": 6_000_000, "full": 60_000_000}
    parameters = {"windows_ms": [1_000, 10_000], "grace_ms": 2_000}

    def devices(self, size: str) -> Devices:
        """The input."""
        return replace(readings.devices(self.sizes[size]), lost_share=0.0001)

    def batches(self, size: str) -> Iterator[Batch]:
        yield from readings.batches(self.devices(size), "events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        grouped = builder.stream(config.topics["events"]).group_by_key()
        for size_ms, role in zip(config.parameters["windows_ms"], self.outputs, strict=False):
            devices.write_statistics(grouped, timedelta(milliseconds=size_ms), config.topics[role])
        devices.write_gaps(grouped, config.topics["gaps"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        generated = self.devices(size)
        sent = all_readings(generated, partitions_of(generated, self.partitions))
        grace_ms = found.config.parameters["grace_ms"]
        differences: list[str] = []
        records = 0
        for size_ms, role in zip(found.config.parameters["windows_ms"], self.outputs, strict=False):
            table, count = found.last_values(role)
            records += count
            differences += compare(
                expected_windows(sent, size_ms, grace_ms), {key.decode(): row for key, row in table.items()}
            )
        gaps, count = found.last_values("gaps")
        missing = {key.decode(): number for key, number in gaps.items() if number}
        return Verdict((differences + compare(expected_gaps(sent), missing))[:40], records + count)
