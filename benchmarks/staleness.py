"""How far a served store is behind: the time from a commit, as a reader of the results sees it, until a read shows its rows.

    python -m benchmarks.staleness [--execution live] [--rate 1000] [--seconds 30] [--json]

An application counts records by key, `streams serve` serves its counts, and both are processes of their own on the embedded broker,
as is what writes the records: a read that is timed is not to wait for another thread of this process.
Some keys are read over HTTP again and again by `StoreClient`, one read after the other; how long each takes is printed, too.
Every count that is read must be one that was committed, and none may go back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated

import httpx2
import numpy as np
import typer
from confluent_kafka import Consumer, Producer

from benchmarks.harness.cluster import own_cluster
from benchmarks.harness.probe import MachineProbe
from streams import Materialized, StreamsBuilder, Topology
from streams.broker.processes import free_ports
from streams.config import Execution
from streams.serve.client import StoreClient
from topologies.records import create_topics

PROGRAM, APPLICATION = "benchmarks.staleness:build", "staleness"
INPUT, RESULTS, STORE = "staleness-input", "staleness-results", "counts"
TASKS, KEYS = 4, 100
READ = tuple(f"key-{number}" for number in range(4))
"""The keys that are read."""
START_S = 180.0


def build() -> Topology:
    """Counts records by key."""
    builder = StreamsBuilder()
    builder.stream(INPUT).group_by_key().count(materialized=Materialized(STORE)).to_stream().to(RESULTS)
    return builder.build()


class Seen:
    """When each count of a key was seen first, s; counts only grow."""

    def __init__(self) -> None:
        self._at: dict[str, list[tuple[float, int]]] = {key: [] for key in READ}

    def add(self, key: str, count: int) -> None:
        seen = self._at[key]
        if seen and seen[-1][1] > count:
            raise RuntimeError(f"the count of {key} went back from {seen[-1][1]} to {count}")
        if not seen or seen[-1][1] < count:
            seen.append((time.monotonic(), count))

    def check_within(self, committed: Seen) -> None:
        """Raises `RuntimeError` if a count was seen here that is none of those."""
        for key, seen in self._at.items():
            known = {count for _, count in committed._at[key]}
            if wrong := [count for _, count in seen if count not in known]:
                raise RuntimeError(f"{key} was served with {wrong[0]}, which was never committed")

    def behind(self, other: Seen, after: float) -> list[float]:
        """How long after `other` each of its counts was seen here, ms."""
        found = []
        for key, seen in other._at.items():
            times, counts = np.array(self._at[key]).reshape(-1, 2).T
            for at, count in seen:
                place = int(np.searchsorted(counts, count))
                if at >= after and place < len(times):
                    found.append(max(times[place] - at, 0.0) * 1000)
        return found


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of `streams` within the block."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    running = subprocess.Popen([sys.executable, "-m", "streams", *command], env=environment, stdout=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


def write(servers: str, rate: int, ended: Event) -> None:
    """Writes records until the event is set."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "partitioner": "murmur2_random"})
    began, sent = time.monotonic(), 0
    while not ended.wait(0.005):
        for number in range(sent, int((time.monotonic() - began) * rate)):
            producer.produce(INPUT, b"{}", f"key-{number % KEYS}")
            sent = number + 1
        producer.poll(0)
    producer.flush()


@contextmanager
def writing(servers: str, rate: int) -> Iterator[None]:
    """A process that writes records within the block."""
    context = get_context("spawn")
    ended = context.Event()
    running = context.Process(target=write, args=(servers, rate, ended))
    running.start()
    try:
        yield
        if not running.is_alive():
            raise RuntimeError("the process that writes records has ended")
    finally:
        ended.set()
        running.join()


def measure(
    servers: str, application_id: str, folder: Path, rate: int, seconds: float
) -> tuple[list[float], list[float]]:
    """The staleness of each commit that changed a key that is read, ms; and the time that each read of a key took, ms.

    Args:
        servers: The brokers; the topics are there.
        application_id: The application, which runs, or is just being started.
        folder: The base directory of the process that serves.
        rate: Records a second.
        seconds: How long keys are read.

    Raises:
        TimeoutError: The store was not served in time.
        RuntimeError: A count went back, or was none that is committed.
    """
    committed, served, ended = Seen(), Seen(), threading.Event()
    took_ms: list[float] = []
    with ExitStack() as stack:
        (port,) = free_ports(1)
        where = (PROGRAM, "-a", application_id, "-b", servers, "--base-dir", str(folder))

        def consume() -> None:
            where = {"bootstrap.servers": servers, "group.id": "staleness-reader", "auto.offset.reset": "earliest"}
            consumer = Consumer({**where, "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
            consumer.subscribe([RESULTS])
            while not ended.is_set():
                record = consumer.poll(0.05)
                if record is not None and not record.error() and (key := (record.key() or b"").decode()) in READ:
                    committed.add(key, int.from_bytes(record.value() or b"", "big"))
            consumer.close()

        stack.enter_context(writing(servers, rate))
        thread = threading.Thread(target=consume)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            server = None
            until = time.monotonic() + START_S
            while not is_served(http):
                if server is None or server.poll() is not None:
                    # It refuses to start before the application has made its topics.
                    server = stack.enter_context(process("serve", *where, "--http", str(port)))
                if time.monotonic() > until:
                    raise TimeoutError(f"the store was not served within {START_S:g} s")
                time.sleep(1.0)
            store: StoreClient[str, int] = StoreClient(f"http://127.0.0.1:{port}", STORE, value=int)
            begin = time.monotonic()
            while time.monotonic() < begin + seconds:
                for key in READ:
                    asked = time.monotonic()
                    count = store.get(key)
                    took_ms.append((time.monotonic() - asked) * 1000)
                    served.add(key, count or 0)
            # What was seen last is committed, too, once its record has come.
            time.sleep(1.0)
        served.check_within(committed)
        return served.behind(committed, begin), took_ms


def is_served(http: httpx2.Client) -> bool:
    """Whether all keys have rows."""
    try:
        return all(http.get(f"/v1/stores/{STORE}/keys/{key}").status_code == 200 for key in READ)
    except httpx2.TransportError:
        return False


def main(
    execution: Annotated[Execution, typer.Option(help="How the application runs.")] = Execution.LIVE,
    rate: Annotated[int, typer.Option(help="Records a second.")] = 1_000,
    seconds: Annotated[float, typer.Option(help="How long keys are read.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Print how far reads are behind commits."""
    with tempfile.TemporaryDirectory(prefix="staleness-") as scratch, own_cluster(Path(scratch) / "kafka") as kafka:
        servers, folder = kafka.client["bootstrap.servers"], Path(scratch)
        create_topics(kafka.client, [INPUT, RESULTS], TASKS)
        where = (PROGRAM, "-a", APPLICATION, "-b", servers, "--base-dir", str(folder))
        with process("run", *where, "--set", f"execution={execution.value}"), MachineProbe() as machine:
            behind, took_ms = measure(servers, APPLICATION, folder, rate, seconds)
    stale, gets = of(behind), of(took_ms)
    if as_json:
        about = {"execution": execution.value, "rate": rate, "seconds": seconds, "probe_us": round(machine.mean_us, 1)}
        typer.echo(json.dumps({**about, "staleness_ms": stale, "get_ms": gets}))
        return
    typer.echo(f"{stale['count']} commits: {in_words(stale)} behind; probe {machine.mean_us:.0f} µs")
    typer.echo(f"{gets['count']} reads of a key: {in_words(gets)}; each was checked")


def of(times_ms: Sequence[float]) -> dict[str, float]:
    """What is said of some times."""
    p50, p99, most = (round(float(one), 3) for one in np.percentile(times_ms, [50, 99, 100]))
    return {"count": len(times_ms), "p50": p50, "p99": p99, "max": most}


def in_words(of: dict[str, float]) -> str:
    """The same for people."""
    return f"p50 {of['p50']:.2f} ms, p99 {of['p99']:.2f} ms, at most {of['max']:.2f} ms"


if __name__ == "__main__":
    typer.run(main)
