"""Records for the example topologies: created in memory, written to Kafka in event-time order, read back as tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from state.errors import StreamsError
from state.kafka.admin import KafkaAdmin, TopicSpec, wait_until_decided
from state.kafka.config import consumer_config

PARTITIONS = 4
TIMEOUT_S = 30.0
DECIDED_S = 90.0
"""How long to wait until recent commits are visible, seconds: longer than a transaction may stay open."""
_POLL_EVERY = 2_000
_WAIT_S = 0.2

Advance = Callable[[int], None]


class LoadError(StreamsError):
    """Records could not be written or read back."""


@dataclass(frozen=True)
class Records:
    """n records of one topic.

    Attributes:
        topic: The topic.
        keys: The n keys.
        values: The n values, JSON.
        timestamps: int64[n], epoch ms.
    """

    topic: str
    keys: Sequence[bytes]
    values: Sequence[bytes]
    timestamps: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.timestamps)


def in_event_time_order(parts: Sequence[Records]) -> Iterator[tuple[str, bytes, bytes, int]]:
    """All records by timestamp, as (topic, key, value, timestamp); at equal timestamps in the order of the parts."""
    times = np.concatenate([part.timestamps for part in parts])
    which = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    rows = np.concatenate([np.arange(len(part)) for part in parts])
    order = np.argsort(times, kind="stable")
    for part_index, row, timestamp in zip(
        which[order].tolist(), rows[order].tolist(), times[order].tolist(), strict=True
    ):
        part = parts[part_index]
        yield part.topic, part.keys[row], part.values[row], timestamp


def create_topics(client: Mapping[str, str], topics: Sequence[str], partitions: int = PARTITIONS) -> None:
    """Creates the topics, with `retention.ms=-1`: the broker's retention goes by event time.

    Raises:
        LoadError: A topic already exists; its records would become part of the input.
        KafkaClientError: The broker refused a topic, or does not answer.
    """
    with KafkaAdmin(client) as admin:
        existing = sorted(admin.describe_topics(topics))
        if existing:
            raise LoadError(
                f"These topics already exist, and their records would be mixed with ours: {', '.join(existing)}. "
                "Delete them, or take another cluster."
            )
        admin.create_topics(TopicSpec(topic, partitions, {"retention.ms": "-1"}) for topic in topics)


def produce(client: Mapping[str, str], parts: Sequence[Records], advance: Advance = lambda count: None) -> int:
    """Writes the records in event-time order, each to the partition of its key (murmur2, as Java clients do).

    Args:
        client: Kafka client properties.
        parts: The records, whose topics exist.
        advance: Called with the number of further records that were handed over.

    Returns:
        Number of records.

    Raises:
        LoadError: A record was not delivered.
    """
    failed: list[KafkaError] = []
    tuning = {"linger.ms": "20", "queue.buffering.max.messages": "500000", "enable.idempotence": "true"}
    own = {"partitioner": "murmur2_random", "delivery.report.only.error": True}
    producer = Producer({**tuning, **client, **own}, on_delivery=lambda error, message: failed.append(error))
    count = 0
    for topic, key, value, timestamp in in_event_time_order(parts):
        while True:
            try:
                producer.produce(topic, key=key, value=value, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % _POLL_EVERY == 0:
            producer.poll(0)
            advance(_POLL_EVERY)
    left = producer.flush(TIMEOUT_S)
    if failed or left:
        why = failed[0].str() if failed else f"{left} records were not acknowledged within {TIMEOUT_S:.0f} s"
        raise LoadError(f"Not all of {count:,} records were delivered: {why}")
    advance(count % _POLL_EVERY)
    return count


@contextmanager
def shown(title: str, total: int, console: Console | None = None) -> Iterator[Advance]:
    """A progress bar in a terminal, elsewhere one line at the end.

    Args:
        title: The title of the bar.
        total: The total number of records.
        console: Where to print; default: standard error.
    """
    console = console or Console(stderr=True)
    begin = time.perf_counter()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.update(task, advance=count)
    console.print(f"{title}: {total:,} records in {time.perf_counter() - begin:.1f} s", highlight=False)


def read_table(client: Mapping[str, str], topic: str) -> dict[str, Any]:
    """The final table of a topic: the last committed value of each key, JSON; a null value deletes.

    Raises:
        LoadError: The topic cannot be read to its end.
        KafkaClientError: A transaction that writes to it stays open.
    """
    with KafkaAdmin(client) as admin:
        partitions = range(admin.describe_topics([topic])[topic].partitions)
        wait_until_decided(admin, [(topic, partition) for partition in partitions], DECIDED_S)
    consumer = Consumer({**consumer_config(client), "auto.offset.reset": "earliest", "group.id": f"read-{topic}"})
    table: dict[str, Any] = {}
    try:
        unread = set(partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        heard = time.monotonic()
        while unread:
            # `consume` waits until it has the requested number, so the timeout is short.
            messages = consumer.consume(10_000, timeout=_WAIT_S)
            heard = time.monotonic() if messages else heard
            if time.monotonic() > heard + TIMEOUT_S:
                raise LoadError(f"Topic '{topic}', partitions {sorted(unread)}: nothing came for {TIMEOUT_S:.0f} s.")
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise LoadError(f"Topic '{topic}', partition {message.partition()}: {error.str()}")
                if error is not None:
                    unread.discard(message.partition())
                elif message.value() is None:
                    table.pop(message.key().decode(), None)
                else:
                    table[message.key().decode()] = orjson.loads(message.value())
    finally:
        consumer.close()
    return table
