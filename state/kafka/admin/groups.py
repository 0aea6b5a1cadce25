"""The committed offsets of consumer groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

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
) -> dict[TopicPartition, tuple[int, str]]:
    """Committed offsets of a consumer group, and their metadata; empty for a group that does not exist."""
    if partitions is None:
        partitions = [(name, number) for name, count in requests.partition_counts().items() for number in range(count)]
    asked = [KafkaPartition(topic, number) for topic, number in partitions]
    with _consumer(requests, group, f"reading the offsets of group {group!r}") as consumer:
        found = consumer.committed(asked, requests.timeout_s) if asked else []
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found if each.offset >= 0}


def commit_group_offsets(
    requests: AdminRequests, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Commits offsets of a consumer group that has no members, with metadata."""
    wanted = [KafkaPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
    what = f"committing offsets of group {group!r}"
    with _consumer(requests, group, what) as consumer:
        for each in consumer.commit(offsets=wanted, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)


@contextmanager
def _consumer(requests: AdminRequests, group: str, what: str) -> Iterator[Consumer]:
    """A consumer that never joins its group.

    The admin requests for offsets crash the process (segmentation fault in librdkafka 2.16) while the group's coordinator is not
    ready. Uncommitted, because read_committed would wait for transactions. Quiet, because a coordinator that is not ready yet
    is asked again and need not be logged.
    """
    properties = {
        **admin_config(requests.config),
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": "false",
        "log_level": {**QUIET, **requests.config}["log_level"],
    }
    consumer = Consumer(properties)
    try:
        yield consumer
    except KafkaException as exception:
        raise request_error(what, "check the brokers", failure_of(exception.args[0])) from exception
    finally:
        consumer.close()


def delete_group(requests: AdminRequests, group: str) -> bool:
    """Delete a consumer group with its committed offsets.

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
