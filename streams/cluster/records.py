"""Reads and writes the records of a topic as Kafka's console tools do: no group, no transaction, no engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from state.errors import KafkaClientError, TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import admin_config, consumer_config
from state.kafka.message_reader import Messages, read_messages
from state.kafka.placement import Placement
from state.kafka.topics import TopicInfo
from streams.cluster.key_functions import shown_in

_PARTITIONERS = {
    Placement.MURMUR2: "murmur2_random",
    Placement.CRC32: "consistent_random",
    Placement.FNV1A: "fnv1a_random",
}
"""librdkafka's names of the functions."""
_QUIET_S = 10.0
"""Seconds without a record after which reading fails, except when waiting for further records."""
_POLL_S = 0.5
"""The longest delay of Ctrl-C while waiting for further records, seconds."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record as stored in Kafka; its timestamp in ms, -1 if it has none."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The position where reading begins.

    Attributes:
        offset: The offset in each partition; a negative number counts back from the end, None is the end itself.
        partition: The only partition to read; None: all.
    """

    offset: int | None = 0
    partition: int | None = None


def read_records(
    client: Mapping[str, str], topic: str, begin: Begin | None = None, *, follow: bool = False
) -> Iterator[Incoming]:
    """Yields the committed records of a topic, in order within each partition.

    Raises:
        TopicNotFoundError: The topic or partition does not exist.
        KafkaClientError: The broker stopped answering.
    """
    places = _places(client, topic, begin or Begin())
    consumer = Consumer({**consumer_config(client), "auto.offset.reset": "earliest"})
    try:
        consumer.assign(places)
        reading = {place.partition for place in places}
        while reading or follow:
            message = consumer.poll(_POLL_S if follow else _QUIET_S)
            if message is None:
                if not follow:
                    raise KafkaClientError(f"no records arrived from {topic!r} for {_QUIET_S:g} s; check the brokers")
                continue
            error = message.error()
            if error is None:
                if follow or message.partition() in reading:
                    yield _incoming(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
            # The right on the client's group is not needed: it reads without joining.
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaClientError(f"{topic!r} cannot be read: {error.str()}")
    except KafkaException as error:
        raise KafkaClientError(f"{topic!r} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _places(client: Mapping[str, str], topic: str, begin: Begin) -> list[TopicPartition]:
    with KafkaAdmin(client) as admin:
        found = admin.describe_topics([topic])
        if topic not in found:
            raise TopicNotFoundError(topic)
        count = found[topic].partitions
        if begin.partition is not None and begin.partition >= count:
            raise TopicNotFoundError(topic, begin.partition)
        numbers = range(count) if begin.partition is None else [begin.partition]
        if begin.offset is not None and begin.offset >= 0:
            return [TopicPartition(topic, number, begin.offset) for number in numbers]
        ends = admin.end_offsets([(topic, number) for number in numbers])
    return [TopicPartition(topic, number, max(0, ends[topic, number] + (begin.offset or 0))) for number in numbers]


def _incoming(message: Message) -> Incoming:
    return Incoming(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


_FLUSH_S = 30.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to write.

    Attributes:
        key: The key; None: no key.
        value: The value; None: a tombstone.
        timestamp: The event time, ms; None: the time of writing.
        partition: The partition; None: by key.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


def write_records(client: Mapping[str, str], topic: str, records: Iterable[Outgoing]) -> int:
    """Writes records, each key where other producers put it, and waits until Kafka has acknowledged them; returns their number."""
    with KafkaAdmin(client) as admin:
        found = admin.describe_topics([topic])
        if topic not in found:
            raise TopicNotFoundError(topic)
        partitioner = _PARTITIONERS[_function(client, found, admin)]
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**admin_config(client), "partitioner": partitioner, "linger.ms": "20"})
    count = 0
    for record in records:
        count += 1
        arguments = _arguments(topic, record)
        try:
            producer.produce(**arguments, on_delivery=delivered)
        except BufferError:
            if producer.flush(_FLUSH_S):
                raise KafkaClientError(
                    f"{topic!r} has accepted no records for {_FLUSH_S:g} s; check the brokers"
                ) from None
            producer.produce(**arguments, on_delivery=delivered)
        except KafkaException as error:  # it is too large
            failures.append(error.args[0])
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failures or left:
        why = failures[0].str() if failures else f"no answer within {_FLUSH_S:g} s"
        raise KafkaClientError(f"{len(failures) + left} of {count} records were not written to {topic!r}: {why}")
    return count


def _function(client: Mapping[str, str], found: Mapping[str, TopicInfo], admin: KafkaAdmin) -> Placement:
    """The function that explains where the keys of a topic are; Kafka's own, if none does."""
    (info,) = found.values()
    if info.partitions == 1:
        return Placement.MURMUR2
    try:
        (shown,) = shown_in(found, admin, _KeyReader(client)).values()
    except KafkaClientError:
        # A client that may write does not always have the right to read.
        return Placement.MURMUR2
    return shown.functions[0] if shown.functions else Placement.MURMUR2


class _KeyReader:
    """Reads records for `shown_in`."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Messages]:
        """Committed records [start, end)."""
        return read_messages(self._client, topic, partition, start, end, _QUIET_S)


class RecordWriter:
    """Writes single records while a program runs; any thread may write.

    Args:
        client: The user's client properties.
        wait_s: How long to wait for Kafka's answer.
    """

    def __init__(self, client: Mapping[str, str], wait_s: float = _FLUSH_S) -> None:
        self._wait_s = wait_s
        settings = {"partitioner": "murmur2_random", "enable.idempotence": "true", "linger.ms": "0"}
        self._producer = Producer({**admin_config(client), **settings})

    def write(self, topic: str, record: Outgoing) -> tuple[int, int]:
        """Writes a record, and returns its partition and offset once Kafka has acknowledged it."""
        answers: list[tuple[KafkaError | None, Message]] = []
        deadline = time.monotonic() + self._wait_s
        try:
            self._producer.produce(**_arguments(topic, record), on_delivery=lambda *answer: answers.append(answer))
            while not answers and time.monotonic() < deadline:
                self._producer.poll(0.01)
        except (KafkaException, BufferError) as error:
            raise KafkaClientError(f"the record was not written to {topic!r}: {error}") from error
        if not answers:
            raise KafkaClientError(f"{topic!r} did not answer within {self._wait_s:g} s; the record may still arrive")
        failure, message = answers[0]
        if failure is not None:
            raise KafkaClientError(f"the record was not written to {topic!r}: {failure.str()}")
        return message.partition() or 0, message.offset() or 0

    def close(self) -> None:
        """Waits until everything is written."""
        self._producer.flush(self._wait_s)


def _arguments(topic: str, record: Outgoing) -> dict[str, Any]:
    """The client's arguments. A timestamp or partition that is None is left out, because the client does not accept it."""
    optional = {"timestamp": record.timestamp, "partition": record.partition}
    return {
        "topic": topic,
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
        **{name: value for name, value in optional.items() if value is not None},
    }
