"""Reads topics from outside: all committed records, all aborted ones, or continuously throughout a drill."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyarrow import parquet

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.drills.drill import DrillFailed
from streams.drills.processes import wait_until

SOON_ELSEWHERE = {"socket.timeout.ms": 5_000, "topic.metadata.refresh.interval.ms": 2_000}
"""Client properties with which a client soon switches from a broker that does not answer to the new leader."""
DECIDED_S = 120.0
"""Longer than any transaction may stay open."""
SILENT_S = 20.0
"""How long a reader may receive nothing before another one replaces it."""


@dataclass(frozen=True)
class Read:
    """A record as a read_committed consumer sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_committed(servers: str, topic: str) -> list[Read]:
    """All committed records of a topic, by partition and offset."""
    return _read({"bootstrap.servers": servers}, topic, "read_committed")


def read_first(client: Mapping[str, str], topic: str, most: int) -> list[Read]:
    """The first committed records of each partition of a topic in any cluster, by partition and offset."""
    return _read(client, topic, "read_committed", most)


def read_aborted(servers: str, topic: str) -> list[Read]:
    """The records in the log of a topic whose transactions were aborted."""
    # In this order, every transaction that the first read finds has been decided when the second one gets there.
    every_one = _read({"bootstrap.servers": servers}, topic, "read_uncommitted")
    committed = {(one.partition, one.offset) for one in read_committed(servers, topic)}
    return [one for one in every_one if (one.partition, one.offset) not in committed]


_VERIFIER = {
    "group.id": "verifier",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # The next answer reports the end of a partition; otherwise the broker would wait half a second for it.
    "fetch.wait.max.ms": 20,
    "log_level": "0",
}


def _read(client: Mapping[str, str], topic: str, isolation: str, most: int | None = None) -> list[Read]:
    """All records of a topic, by partition and offset.

    This includes records of transactions that are just finishing: a commit returns before its control records are written, and only
    then do its records become visible. So the read continues to the end that the log has at the start, including control records
    and aborted ones.
    """
    with KafkaAdmin(dict(client)) as admin:
        places = [(topic, number) for number in range(admin.describe_topics([topic])[topic].partitions)]
        ends = admin.end_offsets(places, committed=False)
    consumer = Consumer({**client, **_VERIFIER, "isolation.level": isolation})
    consumer.assign([TopicPartition(*place, 0) for place in places])
    found: list[Read] = []
    waiting = dict(ends)
    counts: Counter[tuple[str, int]] = Counter()
    deadline = time.monotonic() + DECIDED_S
    while waiting:
        message = consumer.poll(1)
        if time.monotonic() >= deadline:
            raise DrillFailed(f"{topic} could not be read within {DECIDED_S:g} s: waiting for {waiting} of {ends}")
        if message is None:
            continue
        place = (message.topic(), message.partition())
        if not message.error():
            if most is None or counts[place] < most:
                counts[place] += 1
                found.append(_as_read(message))
            else:
                waiting.pop(place, None)
        elif message.error().name() != "_PARTITION_EOF":
            raise DrillFailed(f"{topic} could not be read: {message.error()}")
        elif message.offset() >= ends[place]:
            waiting.pop(place, None)
    consumer.close()
    return sorted(found, key=lambda r: (r.partition, r.offset))


class OutsideReader(threading.Thread):
    """A read_committed consumer that reads a topic all the time, as an outside reader would.

    After restarts of several brokers librdkafka 2.16 sometimes never fetches a partition again, although its leader has
    answered others for minutes. A drill tests the application, so a consumer that receives nothing is replaced by another one.

    Attributes:
        records: The records read so far, in the order of arrival.
    """

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"follower of {topic}", daemon=True)
        self.records: list[Read] = []
        self._servers = servers
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)
        self._finish = threading.Event()

    def run(self) -> None:
        while not self._finish.is_set():
            consumer = self._open()
            heard = time.monotonic()
            while not self._finish.is_set() and time.monotonic() - heard < SILENT_S:
                message = consumer.poll(0.1)
                if message is not None and not message.error():
                    heard = time.monotonic()
                    read = _as_read(message)
                    self._next[read.partition] = read.offset + 1
                    self.records.append(read)
            consumer.close()

    def _open(self) -> Consumer:
        """A consumer that continues after the last record read from each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # Drills take its broker away, so it waits, and does not log that.
                "log_level": "0",
                # But it soon leaves a leader that hangs; otherwise a drill would measure the reader's recovery.
                **SOON_ELSEWHERE,
            }
        )
        consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in self._next.items()])
        return consumer

    def finish(self) -> list[Read]:
        """Ends the thread, and returns all records that it has read."""
        self._finish.set()
        self.join()
        return self.records


def _as_read(one: Message) -> Read:
    headers = tuple(one.headers() or ())
    return Read(one.partition(), one.offset(), one.timestamp()[1], one.key(), one.value(), headers)


# What drills do with topics: change settings, add partitions, and write, delete and count records.

_TIMEOUT_S = 60.0


class ScratchTopics:
    """The topics of a scratch broker.

    Args:
        servers: The broker's address.
    """

    def __init__(self, servers: str) -> None:
        self._client = {"bootstrap.servers": servers, "log_level": "0"}

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; an existing one stays as it is."""
        with KafkaAdmin(self._client) as admin:
            admin.create_topics([TopicSpec(name, partitions, config or {})])

    def delete(self, name: str) -> None:
        with KafkaAdmin(self._client) as admin:
            admin.delete_topics([name])

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Sets some settings of a topic, and leaves the others."""
        with KafkaAdmin(self._client) as admin:
            admin.alter_topic(name, config)

    def grow(self, name: str, partitions: int) -> None:
        """Adds partitions, and waits until all of them answer."""
        # The variable keeps the client until the answer arrives: a client that is garbage-collected cancels its requests.
        client = AdminClient(self._client)
        client.create_partitions([NewPartitions(name, partitions)])[name].result(_TIMEOUT_S)
        places = [(name, number) for number in range(partitions)]

        def there() -> bool:
            with KafkaAdmin(self._client) as admin:
                try:
                    return admin.end_offsets(places).keys() == set(places)
                except TopicNotFoundError:
                    return False

        wait_until(there, _TIMEOUT_S, f"{partitions} partitions of {name}")

    def lose_before(self, name: str, partition: int, offset: int) -> None:
        """Deletes the records below an offset, as retention does."""
        with KafkaAdmin(self._client) as admin:
            admin.delete_records({(name, partition): offset})

    def begin(self, name: str, partition: int = 0) -> int:
        """The first offset of a partition."""
        with KafkaAdmin(self._client) as admin:
            return admin.begin_offsets([(name, partition)])[name, partition]

    def end(self, name: str, partition: int = 0, *, committed: bool = False) -> int:
        """The end of a partition's log; with `committed`, the end that a read_committed consumer sees."""
        with KafkaAdmin(self._client) as admin:
            return admin.end_offsets([(name, partition)], committed=committed)[name, partition]

    def write(self, name: str, *records: tuple[bytes | None, bytes | None, int], partition: int = 0) -> None:
        """Writes records of key, value and timestamp, and waits for them."""
        producer = Producer({**self._client, "enable.idempotence": True})
        failures: list[object] = []
        for key, value, timestamp in records:
            producer.produce(
                name,
                value,
                key,
                partition,
                timestamp=timestamp,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        if producer.flush(_TIMEOUT_S) or failures:
            raise DrillFailed(f"records could not be written to {name}: {failures[:3]}")


# The rows of a Delta table on this machine's disk, read from its transaction log and its Parquet files.
#
# A verifier that shares nothing with the writer: neither Spark nor Delta's own library.


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """The rows of the table's newest version; none if there is no table."""
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_bytes().splitlines():
            action = orjson.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                if action["add"].get("deletionVector"):
                    raise DrillFailed(f"{table} has deletion vectors, which are not read here")
                files[action["add"]["path"]] = None
    return [row for file in files for row in parquet.read_table(table / unquote(file)).to_pylist()]
