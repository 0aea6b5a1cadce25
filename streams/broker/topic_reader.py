"""Reads the committed records of a topic for inspection, from any position, up to the end or continuously."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import consumer_config
from streams.broker.errors import BrokerError

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

    Args:
        client: Properties of the Kafka client.
        topic: The topic.
        begin: Where to begin; None: at the first record.
        follow: Whether to wait for further records; otherwise reading ends at the present end of each partition.

    Raises:
        TopicNotFoundError: The topic or partition does not exist.
        BrokerError: The broker stopped answering.
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
                    raise BrokerError(f"nothing came of {topic!r} for {_QUIET_S:g} s; check the brokers")
                continue
            error = message.error()
            if error is None:
                if follow or message.partition() in reading:
                    yield _incoming(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
            # The right on the client's group is not needed: it reads without joining.
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise BrokerError(f"{topic!r} cannot be read: {error.str()}")
    except KafkaException as error:
        raise BrokerError(f"{topic!r} cannot be read: {error.args[0].str()}") from error
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
