"""B2: a thousand devices multiplexed on one topic, windowed statistics by built-in aggregates, exactly once.

    python -m benchmarks.devices [--records 5000000] [--json]

The topic is loaded first; then the topology drains it. The first micro-batches warm up; the measurement covers the time
from the end of the warm-up to the end of the last micro-batch. A run is valid only if its output equals the recomputation.
"""

from __future__ import annotations

import io
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.usage import TreeUsage
from streams.broker import EmbeddedBroker, fetch_jars
from streams.config import StreamsConfig
from streams.spark.progress import Progress
from streams.spark.runner import StreamsApplication
from topologies import devices as topology
from topologies.comparison import compare
from topologies.devices_data import Devices
from topologies.devices_expected import all_readings, expected_gaps, expected_windows
from topologies.devices_load import load, partitions_of
from topologies.records import create_topics, read_table, shown

READ = "in:KSTREAM-SOURCE-"
OUTPUTS = (topology.STATS_1S, topology.STATS_10S, topology.GAPS)


@dataclass(frozen=True)
class Mark:
    """The figures of the run at the end of a micro-batch."""

    at: float
    records: int
    cpu: Mapping[str, float]
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Result:
    """The figures of one run; `cpu_us_by_process` sums to `cpu_us_per_record`."""

    records: int
    seconds: float
    records_per_second: int
    cpu_us_per_record: float
    cpu_us_by_process: Mapping[str, float]
    task_seconds_by_part: Mapping[str, float]
    peak_rss_mb: int
    output_records: int
    changelog_records: int
    batches: int
    load_records_per_second: int
    verified: bool
    master: str
    machine: str


class Recorder(Progress):
    """A progress that records a mark after each micro-batch."""

    def __init__(self, usage: TreeUsage) -> None:
        super().__init__("devices", Console(file=io.StringIO()))
        self._usage = usage
        self.marks: list[Mark] = []
        self._parts: dict[str, float] = {}

    def step(self, sub: str, batch_id: int, reports: list[Mapping[str, Any]]) -> None:
        """Takes in the reports of a micro-batch, and records a mark."""
        super().step(sub, batch_id, reports)
        for report in reports:
            for part, seconds in [*report["seconds"].items(), ("total", report["total_s"]), ("cpu", report["cpu_s"])]:
                self._parts[part] = self._parts.get(part, 0.0) + seconds
        # Counted where records are read: after the head, each aggregate gets separate rows.
        records = sum(
            count for of in self.subs.values() for name, count in of.counters.items() if name.startswith(READ)
        )
        self.marks.append(Mark(time.perf_counter(), records, self._usage.cpu_by_name(), dict(self._parts)))


def measure(
    records: int,
    warm_up: int,
    batch: int,
    master: str,
    folder: Path,
    partitions: int = 4,
    seed: int = 42,
    java_options: str = "",
) -> Result:
    """The figures of one run: loads the topic, drains it, and verifies the output.

    Args:
        records: The number of readings after the warm-up, rounded up to whole slots of all devices.
        warm_up: The number of readings of the warm-up.
        batch: Most readings of a micro-batch.
        master: Spark's master.
        folder: The folder for the broker's data, state and checkpoint.
        partitions: The number of partitions of the input topic, and so of tasks.
        seed: The seed of the generator.
        java_options: Further options of Spark's JVM.
    """
    generated = Devices(slots=-(-(records + warm_up) // 1000), seed=seed, lost_share=0.0001)
    fetch_jars()
    with EmbeddedBroker(folder / "kafka", die_with_parent=True) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        create_topics(client, [topology.READINGS, *OUTPUTS], partitions)
        started = time.perf_counter()
        with shown("loading readings", generated.slots * generated.devices) as advance:
            loaded = load(client, generated, topology.READINGS, partitions, advance)
        load_rate = int(loaded / (time.perf_counter() - started))
        config = StreamsConfig(
            application_id="devices",
            bootstrap_servers=broker.bootstrap_servers,
            base_dir=folder / "var",
            available_now=True,
            max_records_per_trigger=batch,
            spark=_spark_settings(master, java_options),
        )
        with TreeUsage(without=_broker_pids(folder)) as usage:
            recorder = Recorder(usage)
            StreamsApplication(topology.build(), config, recorder).run()
        differences = verify(client, generated, partitions)
    for line in differences[:20]:
        typer.echo(line, err=True)
    return _result(recorder, usage, warm_up, load_rate, verified=not differences, master=master)


def _spark_settings(master: str, java_options: str) -> dict[str, str]:
    settings = {"spark.master": master, "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    return {**settings, "spark.driver.extraJavaOptions": java_options} if java_options else settings


def verify(client: Mapping[str, str], generated: Devices, partitions: int) -> list[str]:
    """The differences between the committed output and the recomputation."""
    readings = all_readings(generated, partitions_of(generated, partitions))
    grace_ms = int(topology.GRACE.total_seconds() * 1000)
    found: list[str] = []
    for topic, size_ms in ((topology.STATS_1S, 1_000), (topology.STATS_10S, 10_000)):
        found += compare(expected_windows(readings, size_ms, grace_ms), read_table(client, topic))
    gaps = {device: missing for device, missing in read_table(client, topology.GAPS).items() if missing}
    return found + compare(expected_gaps(readings), gaps)


def _result(
    recorder: Recorder, usage: TreeUsage, warm_up: int, load_rate: int, *, verified: bool, master: str
) -> Result:
    first = next(mark for mark in recorder.marks if mark.records >= warm_up)
    last = recorder.marks[-1]
    records = last.records - first.records
    if not records:
        raise typer.BadParameter("nothing is left after the warm-up: more --records or a smaller --batch are needed")
    cpu = {kind: (seconds - first.cpu.get(kind, 0.0)) / records * 1e6 for kind, seconds in last.cpu.items()}
    seconds = last.at - first.at
    subs = recorder.subs.values()
    return Result(
        records=records,
        seconds=round(seconds, 2),
        records_per_second=int(records / seconds),
        cpu_us_per_record=round(sum(cpu.values()), 2),
        cpu_us_by_process={kind: round(value, 2) for kind, value in sorted(cpu.items())},
        task_seconds_by_part={part: round(s - first.parts.get(part, 0.0), 2) for part, s in last.parts.items()},
        peak_rss_mb=usage.peak_rss_bytes // 2**20,
        output_records=sum(of.total("records_out") for of in subs),
        changelog_records=sum(of.total("changelog") for of in subs),
        batches=len(recorder.marks),
        load_records_per_second=load_rate,
        verified=verified,
        master=master,
        machine=f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GiB, {platform.platform()}",
    )


def _broker_pids(folder: Path) -> set[int]:
    """The processes of the embedded broker: those with its data folder on their command line."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if str(folder / "kafka") in " ".join(child.cmdline())}


def show(result: Result) -> None:
    """Prints the figures as a table."""
    table = Table(title="B2 devices: windowed statistics of 1000 devices, exactly once", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in asdict(result).items():
        if isinstance(value, Mapping):
            for part, number in value.items():
                table.add_row(f"  {name}: {part}", f"{number:,}")
        else:
            table.add_row(
                name, f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
            )
    Console().print(table)


def main(
    records: Annotated[
        int, typer.Option(help="Readings after the warm-up, whose last micro-batch takes some.")
    ] = 6_000_000,
    warm_up: Annotated[int, typer.Option(help="Readings before the measurement.")] = 1_000_000,
    batch: Annotated[int, typer.Option(help="Most readings of a micro-batch.")] = 1_000_000,
    partitions: Annotated[int, typer.Option(help="Partitions of the input, and so tasks.")] = 4,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2,4]",
    java_options: Annotated[str, typer.Option(help="Further options of Spark's JVM.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure workload B2 on the embedded broker, and verify its output."""
    # A micro-batch may end slightly below its limit, so the warm-up may need one more.
    if (-(-warm_up // batch) + 1) * batch >= records + warm_up:
        raise typer.BadParameter(
            "nothing may be left after the warm-up: more --records or a smaller --batch are needed"
        )
    folder = Path(tempfile.mkdtemp(prefix="streams-bench-"))
    try:
        result = measure(records, warm_up, batch, master, folder, partitions, java_options=java_options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2))
    else:
        show(result)
    if not result.verified:
        typer.echo("the output does NOT equal the recomputation: this run does not count", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
