"""What is in an output topic, as a `read_committed` consumer sees it; results of closing records are left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

CLOSING = b"close-"
"""How the keys of closing records begin."""
_MOST = 20_000
_WAIT_S = 0.2
_SILENCE_S = 60.0


class OutputError(Exception):
    """An output topic cannot be read, or has a record that cannot be what the workload asks for."""


def committed(client: Mapping[str, str], topic: str, partitions: int) -> Iterator[Message]:
    """All committed records of a topic up to its end; partition by partition in order of offsets.

    Raises:
        OutputError: The broker does not answer.
    """
    consumer = Consumer(
        {
            **client,
            "group.id": "benchmark-verifier",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            yield from _to_the_end(consumer, f"{topic} {partition}")
    finally:
        consumer.close()


def _to_the_end(consumer: Consumer, place: str) -> Iterator[Message]:
    heard = time.monotonic()
    while True:
        # `consume` waits until it has the requested number, so the timeout is short.
        messages = consumer.consume(_MOST, _WAIT_S)
        heard = time.monotonic() if messages else heard
        if time.monotonic() > heard + _SILENCE_S:
            raise OutputError(f"output {place}: nothing came for {_SILENCE_S:.0f} s")
        for message in messages:
            error = message.error()
            if error is None:
                if not (message.key() or b"").startswith(CLOSING):
                    yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise OutputError(f"output {place}") from KafkaException(error)


def last_values(client: Mapping[str, str], topic: str, partitions: int) -> tuple[dict[bytes, Any], int]:
    """The table that a topic amounts to, values parsed; and the number of its records."""
    table: dict[bytes, bytes] = {}
    count = 0
    for message in committed(client, topic, partitions):
        count += 1
        if message.value() is None:
            table.pop(message.key(), None)
        else:
            table[message.key()] = message.value()
    return {key: orjson.loads(value) for key, value in table.items()}, count


Row = tuple[float | int | None, ...]


def rows(
    client: Mapping[str, str],
    topic: str,
    partitions: int,
    read: Callable[[bytes, Any], Row],
    parse: Callable[[bytes], Any] = orjson.loads,
) -> list[Row]:
    """Every record of a topic as a row of numbers.

    Args:
        client: Kafka client properties.
        topic: The topic.
        partitions: The number of its partitions.
        read: Makes a row of a key and a parsed value.
        parse: Parses a value.
    """
    return [read(one.key(), parse(one.value())) for one in committed(client, topic, partitions)]
