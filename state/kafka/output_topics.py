"""`LiveTopics`: cached facts about the topics that are written to.

The runtime turns away single records that Kafka would refuse together with their whole transaction, and asks for each topic in
each step; only the first request goes to a broker. Invariant: where Kafka does not answer (no permission to read a topic's
settings, no response), nothing is limited, because the broker has the last word anyway.
"""

# ruff: noqa: D102 - members of protocols are described where they are implemented
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError

from state.errors import KafkaClientError
from state.kafka.config import ClientConfig
from state.kafka.topic_limits import NO_LIMIT, TopicLimits, limits_of
from state.kafka.topics import TopicInfo

MAX_AGE_S = 300.0
"""How long an answer is cached, as in Kafka clients (`metadata.max.age.ms`)."""
MISSING_MAX_AGE_S = 5.0
"""The same for a missing topic, or one that could not be described: it may be created at any time."""
_COMPRESSION = ("compression.type", "compression.codec")


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module needs."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def topic_config(self, name: str) -> Mapping[str, str]: ...


class LiveTopics:
    """The topics of a cluster.

    Args:
        admin: The admin client.
        client: The user's client properties.
        seconds: A monotonic clock.
    """

    def __init__(self, admin: Admin, client: ClientConfig, seconds: Callable[[], float] = time.monotonic) -> None:
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
        """The largest batch that all these topics accept: a broker refuses small records too if their batch is too large.

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
