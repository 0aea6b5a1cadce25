"""Writes records to a topic by hand, without an installation of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import admin_config
from streams.broker.errors import BrokerError

_FLUSH_S = 30.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to write.

    Attributes:
        key: The key; None: no key.
        value: The value; None: a tombstone.
        timestamp: The event time, ms; None: the time of writing.
        headers: The headers.
        partition: The partition; None: by key.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


def write_records(client: Mapping[str, str], topic: str, records: Iterable[Outgoing]) -> int:
    """Writes records, and waits until Kafka has acknowledged them.

    Args:
        client: Properties of the Kafka client.
        topic: The topic, which must exist.
        records: What to write.

    Returns:
        The number of records.

    Raises:
        TopicNotFoundError: The topic does not exist; writing does not create topics.
        BrokerError: Kafka did not accept a record.
    """
    with KafkaAdmin(client) as admin:
        if topic not in admin.describe_topics([topic]):
            raise TopicNotFoundError(topic)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    # Kafka's own partitioner, so that a key goes to the same partition as from other clients.
    producer = Producer({**admin_config(client), "partitioner": "murmur2_random", "linger.ms": "20"})
    count = 0
    for record in records:
        count += 1
        arguments = _arguments(topic, record)
        try:
            producer.produce(**arguments, on_delivery=delivered)
        except BufferError:
            if producer.flush(_FLUSH_S):
                raise BrokerError(f"{topic!r} has taken nothing for {_FLUSH_S:g} s; check the brokers") from None
            producer.produce(**arguments, on_delivery=delivered)
        except KafkaException as error:  # it is too large
            failures.append(error.args[0])
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failures or left:
        why = failures[0].str() if failures else f"no answer within {_FLUSH_S:g} s"
        raise BrokerError(f"{len(failures) + left} of {count} records were not written to {topic!r}: {why}")
    return count


def _arguments(topic: str, record: Outgoing) -> dict[str, Any]:
    """The client's arguments, without a timestamp or partition that is None, which the client does not accept."""
    optional = {"timestamp": record.timestamp, "partition": record.partition}
    return {
        "topic": topic,
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
        **{name: value for name, value in optional.items() if value is not None},
    }
