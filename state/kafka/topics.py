"""Topics: their names and partitions, the largest record that each one takes, and cached facts about topics to write to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from confluent_kafka import KafkaError

from state.errors import KafkaClientError
from state.headers import Header, name_bytes
from state.kafka.config import ClientConfig

# --- Topics as values: existing topics, and topics to create.

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""


@dataclass(frozen=True)
class TopicInfo:
    """A topic that exists.

    Attributes:
        topic_id: Kafka's id of the topic (base64 of a UUID), which changes when a topic is deleted and created again.
        partitions: Number of partitions.
    """

    topic_id: str
    partitions: int


def partitions_of(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """All partitions of topics."""
    return [(name, number) for name, info in topics.items() for number in range(info.partitions)]


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create.

    Attributes:
        partitions: Number of partitions.
        config: Topic configuration.
        replication: Replication factor; -1 = the broker's default.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1


class RecordDeleter(Protocol):
    """Deletes records: `state.kafka.admin.KafkaAdmin`, or the Kafka of a task."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> object: ...
    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...


class LogEnds(Protocol):
    """Returns where logs end: `state.kafka.admin.KafkaAdmin`, or an object that waits for brokers."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, int]: ...


class TopicAdmin(RecordDeleter, LogEnds, Protocol):
    """Requests about topics. `state.kafka.admin.KafkaAdmin` answers them, and so does a simulated Kafka."""

    def topic_names(self) -> list[str]: ...
    def topic_config(self, name: str) -> Mapping[str, str]: ...
    def alter_topic(self, name: str, config: Mapping[str, str]) -> object: ...
    def create_topics(self, topics: Iterable[TopicSpec]) -> object: ...
    def delete_topics(self, names: Sequence[str]) -> object: ...
    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def end_offsets(
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]: ...
    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]: ...


NO_LIMIT = 2**63 - 1
RECORD_OVERHEAD = 36
"""Bytes that librdkafka adds to key, value and headers of each record before it compares with `message.max.bytes`
(`RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD`)."""
BATCH_OVERHEAD = 61
"""Bytes of a batch's header. The broker compares `max.message.bytes` with a batch, and the smallest batch has one record."""
_HEADER_OVERHEAD = 10
"""Maximum bytes for the lengths of a header's name and value."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Which records a topic accepts, as far as that can be known before sending.

    Kafka refuses a record for its size, a missing key, or its timestamp, and with it the whole transaction. A check in advance
    turns away only that record. Invariant: unknown limits refuse nothing.

    Attributes:
        partitions: Number of partitions; 0 = unknown.
        max_bytes: The largest record, as `wire_size` counts.
        needs_key: Records without a key are refused (compacted topics).
        before_max_ms: How far a record's timestamp may be behind the broker's clock.
        after_max_ms: How far a record's timestamp may be ahead of the broker's clock.
    """

    partitions: int = 0
    max_bytes: int = NO_LIMIT
    needs_key: bool = False
    before_max_ms: int = NO_LIMIT
    after_max_ms: int = NO_LIMIT


UNLIMITED = TopicLimits()


def limits_of(partitions: int, config: Mapping[str, str], compressed: bool = False) -> TopicLimits:
    """The limits that follow from a topic's settings."""
    by_clock = config.get("message.timestamp.type", "CreateTime") == "CreateTime"
    sized = "max.message.bytes" in config and not compressed
    size = int(config["max.message.bytes"]) - BATCH_OVERHEAD if sized else NO_LIMIT
    return TopicLimits(
        partitions,
        size,
        "compact" in config.get("cleanup.policy", ""),
        int(config.get("message.timestamp.before.max.ms", NO_LIMIT)) if by_clock else NO_LIMIT,
        int(config.get("message.timestamp.after.max.ms", NO_LIMIT)) if by_clock else NO_LIMIT,
    )


def wire_size(key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()) -> int:
    """Bytes of a record as librdkafka counts them (`rd_kafka_msg_max_wire_size`), or slightly more if it has headers."""
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    for name, data in headers:
        size += len(name_bytes(name)) + (len(data) if data else 0) + _HEADER_OVERHEAD
    return size


MAX_AGE_S = 300.0
"""How long an answer is cached, as in Kafka clients (`metadata.max.age.ms`)."""
MISSING_MAX_AGE_S = 5.0
"""How long an answer is cached if the topic is missing or could not be described, since it may be created at any time."""
_COMPRESSION = ("compression.type", "compression.codec")


class LiveTopics:
    """Cached facts about the topics that are written to.

    The runtime turns away single records that Kafka would refuse together with their whole transaction, and asks for each topic in
    each step; only the first request goes to a broker. Invariant: if Kafka does not answer (no permission to read a topic's
    settings, no response), nothing is limited, because the broker decides in the end.
    """

    def __init__(self, admin: TopicAdmin, client: ClientConfig, seconds: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._compressed = any(client.get(name, "none") != "none" for name in _COMPRESSION)
        self._seconds = seconds
        self._known: dict[str, tuple[TopicLimits | None, float]] = {}

    def limits(self, topic: str) -> TopicLimits | None:
        """The limits of a topic; None if it does not exist, or these credentials may not see it.

        Raises:
            KafkaClientError: Kafka does not answer whether the topic exists.
        """
        found, until = self._known.get(topic, (None, 0.0))
        if self._seconds() >= until:
            found, age = self._ask(topic)
            self._known[topic] = found, self._seconds() + age
        return found

    def batch_bytes(self, topics: Iterable[str]) -> int:
        """The largest batch that all these topics accept: a broker also refuses small records if their batch is too large.

        Raises:
            KafkaClientError: Kafka does not answer.
        """
        return min(
            (limits.max_bytes for topic in topics if (limits := self.limits(topic)) is not None), default=NO_LIMIT
        )

    def now_ms(self) -> int:
        """The clock of the brokers, approximately: they compare the timestamps of records with it."""
        return int(time.time() * 1000)

    def _ask(self, topic: str) -> tuple[TopicLimits | None, float]:
        try:
            info = self._admin.describe_topics([topic]).get(topic)
        except KafkaClientError as error:
            if error.code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            info = None
        if info is None:
            return None, MISSING_MAX_AGE_S
        try:
            config = self._admin.topic_config(topic)
        except KafkaClientError as error:
            denied = error.code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            return limits_of(info.partitions, {}), MAX_AGE_S if denied else MISSING_MAX_AGE_S
        return limits_of(info.partitions, config, self._compressed), MAX_AGE_S
