"""The committed offsets of consumer groups."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from state.errors import KafkaClientError
from state.kafka.admin.requests import POLL_S, AdminRequests
from state.kafka.config import QUIET, admin_config
from state.kafka.error_mapping import failure_of, request_error
from state.kafka.topics import TopicPartition

# The group's coordinator is moving or new; a repeated request succeeds.
_COORDINATOR_AWAY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def group_offsets(
    requests: AdminRequests, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Committed offsets of a consumer group; empty for a group that does not exist.

    Args:
        requests: The client.
        group: The group's id.
        partitions: The partitions to look up; None = all partitions of all topics.
    """
    # Through a consumer that never joins: the admin request for this crashes the process (segmentation fault in librdkafka
    # 2.16) while the group's coordinator is not ready. Uncommitted, because read_committed would wait for transactions.
    # Quiet, because a coordinator that is not ready yet is asked again and need not be logged.
    quiet = {**QUIET, **requests.config}["log_level"]
    properties = {
        **admin_config(requests.config),
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "log_level": quiet,
    }
    if partitions is None:
        partitions = [(name, number) for name, count in requests.partition_counts().items() for number in range(count)]
    consumer = Consumer(properties)
    try:
        asked = [KafkaPartition(topic, number) for topic, number in partitions]
        found = consumer.committed(asked, requests.timeout_s) if asked else []
    except KafkaException as exception:
        failure = failure_of(exception.args[0])
        raise request_error(f"reading the offsets of group {group!r}", "check the brokers", failure) from exception
    finally:
        consumer.close()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def delete_group(requests: AdminRequests, group: str) -> bool:
    """Delete a consumer group with its committed offsets.

    Args:
        requests: The client.
        group: The group's id.

    Returns:
        Whether there was one.

    Raises:
        KafkaClientError: The group has members, or the broker refused.
    """
    deadline = time.monotonic() + requests.timeout_s
    while True:
        (future,) = requests.client.delete_consumer_groups([group], request_timeout=requests.timeout_s).values()
        try:
            requests.result(future, f"deleting consumer group {group!r}")
        except KafkaClientError as error:
            if error.code == KafkaError.GROUP_ID_NOT_FOUND:
                return False
            if error.code not in _COORDINATOR_AWAY or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return True
