"""Records as lines of text, for a first try: no Kafka tools need to be installed to fill a topic and to look into one.

A line is a key, a tab and a value; one without a tab is a value without a key. Written as it is; what is no UTF-8 is shown
with backslashes. Only committed records are read, of each partition up to where it ends when that is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import admin_config, consumer_config
from streams.broker.errors import BrokerError

_QUIET_S = 10.0
"""How long nothing may come before reading is given up, seconds."""
_FLUSH_S = 30.0


def write_lines(client: Mapping[str, str], topic: str, lines: Iterable[bytes]) -> int:
    """Writes a record for each line, stamped with the time of writing; empty lines are left out.

    Returns:
        The number of records.

    Raises:
        TopicNotFoundError: there is no such topic; none is made by writing to it.
        BrokerError: Kafka did not take a record.
    """
    _partitions(client, topic)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    # Kafka's own partitioner, so that a key lies where other clients put it.
    producer = Producer({**admin_config(client), "partitioner": "murmur2_random", "linger.ms": "20"})
    count = 0
    for line in lines:
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        first, tab, rest = text.partition(b"\t")
        key, value = (first, rest) if tab else (None, text)
        count += 1
        try:
            producer.produce(topic, value, key, on_delivery=delivered)
        except BufferError:
            if producer.flush(_FLUSH_S):
                raise BrokerError(f"{topic!r} has taken nothing for {_FLUSH_S:g} s; check the brokers") from None
            producer.produce(topic, value, key, on_delivery=delivered)
        except KafkaException as error:  # it is too large
            failures.append(error.args[0])
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failures or left:
        why = failures[0].str() if failures else f"no answer within {_FLUSH_S:g} s"
        raise BrokerError(f"{len(failures) + left} of {count} records were not written to {topic!r}: {why}")
    return count


def read_lines(client: Mapping[str, str], topic: str) -> Iterator[str]:
    """Yields a line for each committed record of a topic, partition by partition in the order in which they come.

    Raises:
        TopicNotFoundError: there is no such topic.
        BrokerError: the broker stopped answering.
    """
    partitions = _partitions(client, topic)
    consumer = Consumer({**consumer_config(client), "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        reading = set(range(partitions))
        while reading:
            message = consumer.poll(_QUIET_S)
            if message is None:
                raise BrokerError(f"nothing came of {topic!r} for {_QUIET_S:g} s; check the brokers")
            error = message.error()
            if error is None:
                if message.partition() in reading:
                    yield _line(message.key(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
            elif not error.retriable():
                raise BrokerError(f"{topic!r} cannot be read: {error.str()}")
    except KafkaException as error:
        raise BrokerError(f"{topic!r} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _partitions(client: Mapping[str, str], topic: str) -> int:
    with KafkaAdmin(client) as admin:
        found = admin.describe_topics([topic])
    if topic not in found:
        raise TopicNotFoundError(topic)
    return found[topic].partitions


def _line(key: bytes | None, value: bytes | None) -> str:
    texts = ["null" if part is None else part.decode(errors="backslashreplace") for part in (key, value)]
    return texts[1] if key is None else "\t".join(texts)
