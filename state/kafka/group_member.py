"""`GroupMember`: a member of a consumer group that shares partitions with the others, and reads none of them itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from state.kafka.config import QUIET
from state.kafka.error_mapping import REFUSED, failure_of, request_error
from state.kafka.topics import TopicPartition

# A topic that is not known yet is not refused: metadata may be a moment old.
_REFUSED = (REFUSED | {KafkaError.GROUP_AUTHORIZATION_FAILED}) - {KafkaError.UNKNOWN_TOPIC_OR_PART}


class GroupMember:
    """See the module. Partitions move one by one (cooperative), so the others stay where they are.

    Args:
        client: Librdkafka client properties.
        group_id: The group.
        topics: Topics whose partitions are shared.
    """

    def __init__(self, client: Mapping[str, str], group_id: str, topics: Sequence[str]) -> None:
        self._group_id, self._topics = group_id, topics
        self._assigned: set[TopicPartition] = set()
        settings = {
            "group.id": group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
        self._consumer = Consumer({**QUIET, **client, **settings})
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, timeout_s: float) -> set[TopicPartition]:
        """Stays in the group, which needs a call every few seconds, and gives the partitions that this member has.

        Raises:
            KafkaClientError: Kafka refuses this member, for good.
        """
        message = self._consumer.poll(timeout_s)
        error = None if message is None else message.error()
        if error is not None and (error.code() in _REFUSED or error.fatal()):
            advice = (
                f"check the client properties (addresses, credentials, TLS) and the rights on this group and on the topics "
                f"{', '.join(self._topics)}"
            )
            raise request_error(f"joining the consumer group {self._group_id!r}", advice, failure_of(error))
        return set(self._assigned)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Shows how far this member is, as the group's offsets; in the background, and nothing depends on it."""
        found = [Place(*place, offset) for place, offset in offsets.items() if place in self._assigned]
        if found:
            try:
                self._consumer.commit(offsets=found, asynchronous=True)
            except KafkaException:
                return

    def close(self) -> None:
        self._consumer.close()

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        consumer.incremental_assign(places)
        # Nothing is read here; paused partitions are not fetched.
        consumer.pause(places)
        self._assigned |= {(place.topic, place.partition) for place in places}

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        consumer.incremental_unassign(places)
        self._assigned -= {(place.topic, place.partition) for place in places}
