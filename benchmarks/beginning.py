"""How long it takes to begin: `streams run` until its first result is committed, and the commands that ask a cluster.

    python -m benchmarks.beginning [--times 5] [--execution live] [--commands]

A topic has a few lines; the word count (`topologies.word_count`) is started as a new application each time, on the embedded broker.
The clock runs from the start of the process until a reader with `read_committed` has a result. `benchmarks/beginning.md` has
figures. CPU seconds compare on any machine; wall time needs a quiet one.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import numpy as np
import typer
from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness.cluster import Cluster, own_cluster
from benchmarks.usage import TreeUsage
from state.kafka.config import consumer_config
from topologies.records import Records, produce

TARGET = "topologies.word_count:build"
LINES, COUNTS = "lines", "counts"
PARTITIONS = 4
_GIVE_UP_S = 180.0
_STREAMS = (sys.executable, "-m", "streams")


def lines() -> list[Records]:
    """Some lines of text."""
    values = [b'{"text": "all streams lead to the ocean"}', b'{"text": "hello kafka streams"}'] * 8
    times = np.full(len(values), int(time.time() * 1000), np.int64)
    return [Records(LINES, [b"%d" % number for number in range(len(values))], values, times)]


@contextmanager
def first_result(cluster: Cluster) -> Iterator[Consumer]:
    """A reader of what will be committed from now on."""
    consumer = Consumer(
        {**consumer_config(cluster.client), "isolation.level": "read_committed", "group.id": "beginning"}
    )
    try:
        ends = [
            TopicPartition(COUNTS, number, consumer.get_watermark_offsets(TopicPartition(COUNTS, number), 10)[1])
            for number in range(PARTITIONS)
        ]
        consumer.assign(ends)
        yield consumer
    finally:
        consumer.close()


def begin(cluster: Cluster, folder: Path, options: Sequence[str]) -> dict[str, float]:
    """Runs the application until its first result; seconds of the wall clock, and CPU seconds by kind of process.

    Raises:
        TimeoutError: No result came.
    """
    application = f"beginning-{uuid4().hex[:8]}"
    command = [*_STREAMS, "run", TARGET, "--application-id", application, *options]
    command += ["--bootstrap-servers", cluster.servers, "--base-dir", str(folder / application)]
    with first_result(cluster) as consumer:
        begun = time.monotonic()
        process = subprocess.Popen(command)
        try:
            with TreeUsage(set(), process.pid) as usage:
                while (message := consumer.poll(0.02)) is None or message.error() is not None:
                    if process.poll() is not None or time.monotonic() - begun > _GIVE_UP_S:
                        raise TimeoutError("no result has come")
                wall = time.monotonic() - begun
                cpu = usage.cpu_by_name()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {"wall": wall, **cpu, "CPU": sum(cpu.values())}


def cpu_of(command: Sequence[str]) -> dict[str, float]:
    """Seconds of the wall clock and of CPU that a command takes."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, input=b"k\t{}\n", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "CPU": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def commands(cluster: Cluster, application: str, base: Path) -> dict[str, list[str]]:
    """Name -> the command, of those that look at a cluster and are done."""
    kafka = ["--bootstrap-servers", cluster.servers]
    app = [TARGET, "--application-id", application, *kafka, "--base-dir", str(base)]
    called = {
        "status": ["status", *app],
        "pause": ["pause", application, *kafka],
        "resume": ["resume", application, *kafka],
        "execution": ["execution", application, "as-set", *kafka],
        "describe": ["describe", TARGET],
        "check": ["check", TARGET],
        "doctor": ["doctor", *app],
        "state": ["state", *app],
        "dlq list": ["dlq", "list", *app],
        "snapshots": ["snapshots", *app],
        "config": ["config"],
        "acls": ["acls", *app],
        "topic list": ["topic", "list", *kafka],
        "topic describe": ["topic", "describe", LINES, *kafka],
        "topic read": ["topic", "read", COUNTS, "--limit", "2", *kafka],
        "topic send": ["topic", "send", "other", *kafka],
        "errors": ["errors"],
        "transactions": ["transactions", *app],
        "--help": ["--help"],
        "run --help": ["run", "--help"],
    }
    return {name: [*_STREAMS, *words] for name, words in called.items()}


def show(title: str, runs: Sequence[Mapping[str, float]]) -> None:
    """Prints the medians."""
    names = {name: None for run in runs for name in run}
    medians = (f"{name} {statistics.median(run.get(name, 0.0) for run in runs):.2f}" for name in names)
    typer.echo(f"{title}: {', '.join(medians)} s")


def main(
    times: Annotated[int, typer.Option(help="How often.")] = 3,
    execution: Annotated[str | None, typer.Option(help="The setting of that name.")] = None,
    with_commands: Annotated[bool, typer.Option("--commands", help="Measure the commands, too.")] = False,
) -> None:
    """Measure how long it takes to begin."""
    # Without bytecode, each process compiles what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = [] if execution is None else ["--set", f"execution={execution}"]
    with tempfile.TemporaryDirectory(prefix="beginning-") as name, own_cluster(Path(name) / "kafka") as cluster:
        folder = Path(name)
        cluster.create([LINES, COUNTS, "other"], PARTITIONS)
        produce(cluster.client, lines(), lambda count: None)
        runs = []
        # The first one also fills the caches of the disk, and is left out.
        for number in range(times + 1):
            runs.append(begin(cluster, folder, options))
            show(f"run {number}", runs[-1:])
        show("streams run until the first result", runs[1:])
        if with_commands:
            application = next(path.name for path in folder.glob("beginning-*"))
            for title, command in commands(cluster, application, folder / application).items():
                show(title, [cpu_of(command) for _ in range(times)])


if __name__ == "__main__":
    typer.run(main)
