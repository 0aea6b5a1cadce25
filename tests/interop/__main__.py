"""Plays the cut-over of `docs/port/kafka-streams.md` on a real broker: `make interop`.

Java begins, this engine takes over, Java gets it back, and so once more. Beside it, another Java application reads the same
input and never changes. Then outputs and stores of both must be equal. Needs Java and the jars that `make peers` fetches.
"""

from __future__ import annotations

import collections
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.peers.environments import jars_of
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.application.java.limits import topics_with_unread
from streams.broker import EmbeddedBroker, fetch_jars
from streams.broker.jars import class_path, find_java
from tests.interop.program import APP, INPUTS, KINDS

HERE = Path(__file__).parent
ALONE = "alone"
"""The Java application that never changes."""
PARTITIONS = 2
PHASE_MS = 90_000
BY_KEY = frozenset({"rep", "tg", "fk"})
"""Kinds whose records come through repartition topics, where several tasks write: only each key's last result is certain."""
JOINS = frozenset({"ij", "lj", "oj", "grace"})
"""Kinds whose results may come in another order."""
LOST_IN_JAVA = "grace"
"""The kind whose waiting records Java does not restore (`lost_in_java`). This engine finds them when it takes over again, so the
results of the phases before Java got them are complete then."""
WITHOUT_SEQUENCE = ("-this-join-store", "-other-join-store", "-Buffer")
"""Ends of stores whose keys end with a number that Java counts up, and this engine does not need."""
INTERNAL = (
    "by-val-repartition",
    "by-team-repartition",
    "fk-subscription-registration-topic",
    "fk-subscription-response-topic",
)

Rows = Iterable[tuple[str, bytes, bytes | None, int]]


def records(
    phase: int, late: bool
) -> tuple[list[tuple[str, bytes, bytes | None, int]], list[tuple[str, bytes, bytes | None, int]]]:
    """The input of a phase: what the other records look up, and these.

    `late`: also records that are late. Java takes them in after a restart, because it does not remember the times of its operators.
    """
    start = START + phase * PHASE_MS
    first: list[tuple[str, bytes, bytes | None, int]] = []
    second: list[tuple[str, bytes, bytes | None, int]] = []
    for number, key in enumerate("abcdefab"):
        at, value = start + number * 7_000, f"{key}{phase}{number}".encode()
        for topic in ("in-kv", "in-agg", "in-win", "in-sld", "in-sess"):
            second.append((topic, key.encode(), value, at))
        second.append(("in-rep", key.encode(), f"v{(number + phase) % 3}".encode(), at))
        second.append(("in-red", struct.pack(">q", number % 4), struct.pack(">q", number + phase), at))
        first.append(("in-price", key.encode(), value if number % 3 else None, at))
        second.append(("in-order", key.encode(), value, at + 3_000))
        first.append(("in-tab", key.encode(), value if number % 4 else None, start + number))
        second.append(("in-ev", key.encode(), value, at + 10))
        first.append(("in-l", key.encode(), b"l" + value, at))
        second.append(("in-r", key.encode(), b"r" + value, at + 20_000))
        # Whether a record has a partner depends on its key, and not on what is read first. Some have the same time and key.
        first += [("in-one", key.encode(), each + value, at) for each in ((b"1", b"2") if number % 3 else (b"1",))]
        second.append(("in-two", (key if key in "ab" else key * 2).encode(), b"r" + value, at + 3_000))
        first.append(("in-dept", f"d{number % 3}".encode(), b"D" + value, start + number))
        second.append(("in-emp", key.encode(), f"d{(number + phase) % 4}".encode(), at))
        second.append(("in-tg", key.encode(), f"t{(number * phase) % 3}".encode(), at))
    # A pair with a record of the phase before, and windows of it that are still open.
    second.append(("in-r", b"f", b"early", start - 45_000))
    for topic in ("in-win", "in-sld", "in-sess"):
        second.append((topic, b"a", b"disorder", start + 40_000))
        if late:
            second.append((topic, b"b", b"late", start - 80_000))
    return first, second


START = (int(time.time()) - 3600) // 60 * 60 * 1000


class Cluster:
    """The broker, as this run uses it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = KafkaAdmin({"bootstrap.servers": servers})
        self._kafka = LiveKafka({"bootstrap.servers": servers}, 60_000, bulk=False)
        self._producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})

    def make_topics(self) -> None:
        names = [*INPUTS, *(f"{app}-out-{kind}" for app in (APP, ALONE) for kind in KINDS)]
        self.admin.create_topics([TopicSpec(name, PARTITIONS, {}, 1) for name in names])

    def send(self, rows: Rows) -> None:
        for topic, key, value, at in rows:
            self._producer.produce(topic, value, key, timestamp=at)
        self._producer.flush()

    def wait(self, app: str, java: subprocess.Popen[bytes], timeout_s: float = 120) -> None:
        """Waits until an application has read everything, what it sends to itself included."""
        until, calm = time.monotonic() + timeout_s, 0
        while calm < 3:
            if java.poll() is not None:
                raise SystemExit(f"the Java application {app} has ended with {java.returncode}")
            if time.monotonic() > until:
                raise SystemExit(f"the Java application {app} has not read everything within {timeout_s:g} s")
            topics = [*INPUTS, *(f"{app}-{name}" for name in INTERNAL)]
            calm = 0 if topics_with_unread(self.admin, self._kafka, app, topics) else calm + 1
            time.sleep(0.3)

    def rows(self, topic: str) -> Iterator[tuple[int, bytes | None, bytes | None, int]]:
        """Partition, key, value and time of each committed record."""
        kafka = self._kafka
        for partition in range(PARTITIONS):
            place = (topic, partition)
            for columns in kafka.read(*place, kafka.begin_offset(place), self.admin.end_offsets([place])[place]):
                for (key, value), at in zip(columns.cells(), columns.timestamps.tolist(), strict=True):
                    yield partition, key, value, at


def compiled(folder: Path) -> str:
    """The class path of the Java program."""
    jars = jars_of("kafka-streams")
    fetch_jars(jars=jars)
    javac = find_java().with_name("javac")
    subprocess.run(
        [str(javac), "--release", "17", "-cp", class_path(jars), "-d", str(folder), str(HERE / "Interop.java")],
        check=True,
    )
    return f"{folder}:{class_path(jars)}"


@contextmanager
def java(classes: str, servers: str, app: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Java application that runs within the block, and is closed at its end."""
    options = ["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes, "Interop"]
    process = subprocess.Popen([str(find_java()), *options, servers, app, str(folder / app)])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def command(servers: str, folder: Path, *arguments: str) -> None:
    """One of the engine's commands."""
    given = ["--application-id", APP, "--base-dir", str(folder / "base")]
    name, *more = arguments
    print("$ streams", *arguments, flush=True)
    environment = {**os.environ, "STREAMS_BOOTSTRAP_SERVERS": servers, "STREAMS_MODE": "compat"}
    target = f"{HERE / 'program.py'}:build"
    subprocess.run([sys.executable, "-m", "streams", name, target, *given, *more], check=True, env=environment)


def compare(cluster: Cluster) -> list[str]:
    """How the application that was taken over and handed back differs from the one that never changed."""
    wrong = []
    for kind in KINDS:
        ours, theirs = (results(cluster, f"{app}-out-{kind}", kind) for app in (APP, ALONE))
        wrong += differences(f"results of {kind}", ours, theirs)
    stores = [
        name for name in cluster.admin.topic_names() if name.startswith(f"{ALONE}-") and name.endswith("-changelog")
    ]
    for topic in stores:
        name = topic.removeprefix(f"{ALONE}-").removesuffix("-changelog")
        if not name.endswith(WITHOUT_SEQUENCE):
            ours, theirs = (last_rows(cluster, f"{app}-{name}-changelog") for app in (APP, ALONE))
            wrong += differences(f"store {name}", ours, theirs)
    return wrong


def results(cluster: Cluster, topic: str, kind: str) -> Mapping[object, object]:
    if kind in BY_KEY:
        return last_rows(cluster, topic)
    found = collections.defaultdict(list)
    for _, key, value, at in cluster.rows(topic):
        if kind != LOST_IN_JAVA or at < START + 2 * PHASE_MS:
            found[key].append((value, at))
    return {key: sorted(of, key=repr) for key, of in found.items()} if kind in JOINS else dict(found)


def last_rows(cluster: Cluster, topic: str) -> Mapping[object, object]:
    found = {(partition, key): value for partition, key, value, _ in cluster.rows(topic)}
    return {place: value for place, value in found.items() if value is not None}


def differences(what: str, ours: Mapping[object, object], theirs: Mapping[object, object]) -> list[str]:
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    print(f"{what}: {len(theirs)} keys, {'equal' if not keys else f'{len(keys)} DIFFER'}", flush=True)
    return [f"{what}, {key!r}: {ours.get(key)!r} instead of {theirs.get(key)!r}" for key in keys]


def main(phases: int) -> int:
    """Plays so many phases; the first one is Java's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        classes = compiled(folder / "classes")
        fetch_jars()
        broker = EmbeddedBroker(folder / "kafka", die_with_parent=True)
        broker.start()
        try:
            cluster = Cluster(broker.bootstrap_servers)
            cluster.make_topics()
            play(cluster, classes, folder, phases)
            wrong = compare(cluster)
        finally:
            broker.stop(delete=True)
    for one in wrong[:40]:
        print(one)
    print("EQUAL" if not wrong else f"{len(wrong)} DIFFERENCES")
    return 1 if wrong else 0


def play(cluster: Cluster, classes: str, folder: Path, phases: int) -> None:
    """Java, here, Java, and so on."""
    servers = cluster.servers
    with java(classes, servers, ALONE, folder) as alone:
        for phase in range(phases):
            here = phase % 2 == 1
            print(f"phase {phase}, {time.strftime('%H:%M:%S')}: {'here' if here else 'Java'}", flush=True)
            parts = records(phase, late=here)
            if not here:
                with java(classes, servers, APP, folder) as mine:
                    for part in parts:
                        cluster.send(part)
                        cluster.wait(ALONE, alone)
                        cluster.wait(APP, mine)
                continue
            for part in parts:
                cluster.send(part)
                cluster.wait(ALONE, alone)
            command(servers, folder, "import-app", "--dry-run")
            command(servers, folder, "import-app", "--yes")
            command(servers, folder, "run", "--available-now")
            command(servers, folder, "export-app", "--leave", "--yes")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
