"""First result, latency and memory: what a reader of committed results sees of an application started with default settings.

    python -m benchmarks.latency [--workload windows|join] [--backlog 1000000] [--rate 20000] [--seconds 30] [--json]

A backlog is written first. Then `streams run` starts in a process of its own, without any settings but the broker's address,
and a reader in another process notes when each result can be read with `isolation.level=read_committed`. Once the backlog is
processed, records are written at a fixed rate, open loop: record i is due at a time that is fixed in advance, whatever the
broker or the application does. The latency of a record is the time from when it was due until the first result that includes
it was received; the result names the number of the newest record of its key, so no record is left out.

Memory is the sum of the proportional set sizes (PSS) of all processes of the application: pages that several processes share
count once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import typer

from benchmarks.harness.cluster import own_cluster
from benchmarks.latency_topologies import RESULTS, TOPICS
from state.kafka.config import consumer_config, producer_config
from state.kafka.native.producer import BulkTransport
from state.kafka.partitioner import partition_for_keys
from state.kafka.transport import SendColumns
from topologies.records import create_topics

PARTITIONS = 4
VALUE_BYTES = 160
KEYS = {"windows": 1_000, "join": 100_000}
TICK_S = 0.01
"""Time between two sends of the generator."""
BACKLOG_BLOCK = 50_000
SAMPLE_S = 0.25
SAMPLE_PACED_S = 2.0
"""Each sample costs some milliseconds of a core that the paced records need."""
WARM_UP_S = 10.0
"""The paced records of the first seconds are not measured: the application is still working off what came while it drained."""
LONGEST_S = 600.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """The figures of one run; times in ms unless their name says otherwise.

    Attributes:
        first_result_s: From the start of the application's process to the first result that a reader receives.
        drained_s: From that first result to the result that includes the last record of the backlog.
        peak_pss_mb: The peak of the whole application.
        peak_pss_mb_by_kind: The processes' memory at that moment.
        at_rest_pss_mb_by_kind: The processes' memory at the end of the paced records.
    """

    workload: str
    backlog: int
    rate: int
    first_result_s: float
    drained_s: float
    drained_records_per_s: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    measured: int
    peak_pss_mb: int
    peak_pss_mb_by_kind: Mapping[str, int]
    at_rest_pss_mb_by_kind: Mapping[str, int]
    cpu_s_by_kind: Mapping[str, float]


class Generator:
    """Records with keys in turn: record i has key `i % keys` and number `i // keys`.

    Args:
        client: Kafka client properties.
        topics: Every record goes to each of them.
        keys: The number of keys.
        rate: Records per second over all topics, by which the backlog's timestamps are spaced.
        backlog: The number of records of the backlog, per topic.
    """

    def __init__(self, client: Mapping[str, str], topics: tuple[str, ...], keys: int, rate: int, backlog: int) -> None:
        properties = producer_config({"linger.ms": "1", **client}, "latency", 60_000)
        own = {name: value for name, value in properties.items() if not name.startswith("transaction")}
        self._transport = BulkTransport(own, "latency")
        self._topics = topics
        self._keys = pa.array([f"key-{key:06}".encode() for key in range(keys)], pa.binary())
        self._partitions = np.asarray(partition_for_keys(self._keys, PARTITIONS), np.int32)
        self.per_s = rate / len(topics)
        self.backlog = backlog
        self.begun = time.time()
        """When record `backlog` is due; the timestamps of the backlog end there."""

    def due(self, records: npt.NDArray[np.int64]) -> Floats:
        """When records are due, seconds since 1970."""
        return self.begun + (records - self.backlog) / self.per_s

    def write_backlog(self) -> None:
        """Writes the backlog as fast as it goes."""
        for first in range(0, self.backlog, BACKLOG_BLOCK):
            self._send(first, min(first + BACKLOG_BLOCK, self.backlog))
        self._transport.flush(60.0)

    def pace(self, seconds: float) -> int:
        """Writes records when they are due; returns the number of all records."""
        self.begun = time.time()
        first, last = self.backlog, self.backlog + int(seconds * self.per_s)
        while first < last:
            due = self.backlog + int((time.time() - self.begun) * self.per_s)
            if due > first:
                self._send(first, min(due, last))
                first = min(due, last)
            time.sleep(TICK_S)
        self._transport.flush(60.0)
        return last

    def _send(self, first: int, last: int) -> None:
        records = np.arange(first, last)
        rows = records % len(self._keys)
        numbers = (records // len(self._keys)).tolist()
        values = pa.array(
            [(b'{"s":%d,"v":%d.5,"pad":"' % (n, n % 100)).ljust(VALUE_BYTES - 2, b"x") + b'"}' for n in numbers]
        )
        times = (self.due(records) * 1000).astype(np.int64)
        keys = self._keys.take(pa.array(rows))
        for topic in self._topics:
            self._transport.send(SendColumns.of_columns(topic, self._partitions[rows], keys, values, times, None), 60.0)

    def close(self) -> None:
        """Closes the producer."""
        self._transport.close()


class Memory(threading.Thread):
    """Samples the memory and the CPU time of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        self.every_s = SAMPLE_S
        self.peak: dict[str, int] = {}
        self.last: dict[str, int] = {}

    def run(self) -> None:
        """Samples until `stop`."""
        while not self._done.wait(self.every_s):
            self.last = self._sample()
            self.peak = max(self.peak, self.last, key=lambda sample: sum(sample.values()))

    def stop(self) -> None:
        """Ends the sampling."""
        self._done.set()
        self.join()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds by kind of process."""
        found: dict[str, float] = {}
        for kind, seconds in self._cpu.values():
            found[kind] = found.get(kind, 0.0) + seconds
        return found

    def _sample(self) -> dict[str, int]:
        """PSS in bytes by kind of process."""
        found: dict[str, int] = {}
        for process in [self._root, *self._descendants()]:
            try:
                if _is_a_copy(process):
                    continue
                kind = _kind(process, self._root.pid)
                found[kind] = found.get(kind, 0) + _pss(process.pid)
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = kind, times.user + times.system
            except (psutil.Error, OSError):
                continue
        return found

    def _descendants(self) -> list[psutil.Process]:
        try:
            found: list[psutil.Process] = self._root.children(recursive=True)
            return found
        except psutil.Error:
            return []


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _is_a_copy(process: psutil.Process) -> bool:
    """Whether Java has forked the process and it will soon execute another program: until then, it shows Java's memory again."""
    parent = process.parent()
    line = process.cmdline()
    return parent is not None and "java" in "".join(line[:1]) and line == parent.cmdline()


def _kind(process: psutil.Process, root: int) -> str:
    if process.pid == root:
        return "driver"
    if process.name().startswith("java"):
        return "JVM"
    line = process.cmdline()
    if "streams.spark.daemon" in line:
        parent = process.parent()
        return "workers" if parent is not None and "streams.spark.daemon" in parent.cmdline() else "daemon"
    return "planners"


def _read_results(client: Mapping[str, str], keys: int, visible: Any, first: Any, answer: Connection) -> None:
    """The reader's process: notes when which record of each key became visible, until it is asked for the notes."""
    import orjson
    from confluent_kafka import Consumer, TopicPartition

    tuning = {"fetch.wait.max.ms": "10", "enable.partition.eof": "false"}
    consumer = Consumer({**consumer_config(client), **tuning, "group.id": "latency", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(RESULTS, partition, 0) for partition in range(PARTITIONS)])
    newest = [-1] * keys
    notes: list[tuple[int, int, float]] = []
    while not answer.poll():
        messages = consumer.consume(1, timeout=0.05)
        messages += consumer.consume(5_000, timeout=0) if messages else []
        now = time.time()
        for message in messages:
            key, number = int(message.key()[-6:]), orjson.loads(message.value())["s"]
            if number > newest[key]:
                visible.value += number - newest[key]
                newest[key] = number
                notes.append((key, number, now))
        if notes and not first.value:
            first.value = now
    answer.send(np.array(notes))
    consumer.close()


@contextmanager
def _reader(client: Mapping[str, str], keys: int) -> Iterator[tuple[Any, Any, Callable[[], Floats]]]:
    """Number of visible records, time of the first result, and a function that ends the reader and returns its notes."""
    context = multiprocessing.get_context("spawn")
    visible, first = context.Value("q", 0, lock=False), context.Value("d", 0.0, lock=False)
    mine, theirs = context.Pipe()
    process = context.Process(target=_read_results, args=(client, keys, visible, first, theirs), daemon=True)
    process.start()

    def notes() -> Floats:
        mine.send("notes")
        found: Floats = mine.recv()
        return found

    try:
        yield visible, first, notes
    finally:
        process.kill()


def latencies(notes: Floats, due: Callable[[npt.NDArray[np.int64]], Floats], keys: int, first: int) -> Floats:
    """The latencies of records from number `first` on, seconds.

    Args:
        notes: Rows of key, number of its newest visible record, and when that was received; in order of time.
        due: When records were due.
        keys: The number of keys.
        first: The first record to measure.
    """
    found = []
    for key in range(keys):
        of_key = notes[notes[:, 0] == key]
        numbers = of_key[:, 1].astype(np.int64)
        if not len(numbers):
            continue
        # A result makes all records visible that came after the one in the last result.
        covered = np.arange(numbers[-1] + 1)
        records = covered * keys + key
        received = of_key[np.searchsorted(numbers, covered), 2]
        found.append((received - due(records))[records >= first])
    return np.concatenate(found) if found else np.empty(0)


@contextmanager
def _application(workload: str, servers: str, folder: Path, settings: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """`streams run` in a process of its own, with its output in `folder`."""
    command = [sys.executable, "-m", "streams", "run", f"benchmarks.latency_topologies:{workload}"]
    options = ["--bootstrap-servers", servers, "--base-dir", str(folder / "var"), *(f"--set={one}" for one in settings)]
    with (folder / "application.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(reached: Callable[[], bool], application: subprocess.Popen[bytes], folder: Path) -> float:
    """Waits until something is reached; returns the time."""
    until = time.time() + LONGEST_S
    while not reached():
        if application.poll() is not None or time.time() > until:
            raise RuntimeError(
                "the application has ended or stands still: " + (folder / "application.log").read_text()[-4000:]
            )
        time.sleep(0.01)
    return time.time()


def measure(workload: str, backlog: int, rate: int, seconds: float, folder: Path, settings: list[str]) -> Result:
    """The figures of one run; see the module's docstring."""
    topics, keys = TOPICS[workload], KEYS[workload]
    with own_cluster(folder / "kafka") as cluster:
        client = cluster.client
        create_topics(client, [*topics, RESULTS], PARTITIONS)
        generator = Generator(client, topics, keys, rate, backlog // len(topics))
        generator.write_backlog()
        begun = time.time()
        with (
            _reader(client, keys) as (visible, first, notes),
            _application(workload, cluster.servers, folder, settings) as process,
        ):
            memory = Memory(process.pid)
            memory.start()
            first_at = _wait(lambda: first.value > 0, process, folder)
            drained_at = _wait(lambda: visible.value >= generator.backlog, process, folder)
            late = np.empty(0)
            memory.every_s = SAMPLE_PACED_S
            if seconds:
                last = generator.pace(WARM_UP_S + seconds)
                _wait(lambda: visible.value >= last, process, folder)
                measured_from = generator.backlog + int(WARM_UP_S * generator.per_s)
                late = latencies(notes(), generator.due, keys, measured_from) * 1000
            memory.stop()
        generator.close()
    drained_s = drained_at - first_at
    return Result(
        workload=workload,
        backlog=backlog,
        rate=rate,
        first_result_s=round(first.value - begun, 2),
        drained_s=round(drained_s, 2),
        drained_records_per_s=int(backlog / max(drained_s, 1e-3)),
        p50_ms=_percentile(late, 50),
        p99_ms=_percentile(late, 99),
        max_ms=_percentile(late, 100),
        measured=len(late),
        peak_pss_mb=sum(memory.peak.values()) // 2**20,
        peak_pss_mb_by_kind={kind: size // 2**20 for kind, size in sorted(memory.peak.items())},
        at_rest_pss_mb_by_kind={kind: size // 2**20 for kind, size in sorted(memory.last.items())},
        cpu_s_by_kind={kind: round(cpu, 2) for kind, cpu in sorted(memory.cpu_s().items())},
    )


def _percentile(values: Floats, share: float) -> float | None:
    return round(float(np.percentile(values, share)), 1) if len(values) else None


def main(
    workload: Annotated[str, typer.Option(help="windows or join.")] = "windows",
    backlog: Annotated[int, typer.Option(help="Records that wait when the application starts.")] = 1_000_000,
    rate: Annotated[int, typer.Option(help="Records per second afterwards.")] = 20_000,
    seconds: Annotated[float, typer.Option(help="Seconds of paced records to measure; 0: only the backlog.")] = 30.0,
    setting: Annotated[list[str] | None, typer.Option("--set", help="Settings of the application.")] = None,
) -> None:
    """Measure first result, latency and memory on the embedded broker; prints JSON."""
    with tempfile.TemporaryDirectory(prefix="streams-latency-") as folder:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        result = measure(workload, backlog, rate, seconds, Path(folder), setting or [])
    typer.echo(json.dumps(asdict(result), indent=2))


if __name__ == "__main__":
    typer.run(main)
