"""Lists offsets of partitions, and waits where a leader is being elected or was elected just now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from state.errors import ClientFailure, KafkaClientError, TopicNotFoundError
from state.kafka.admin.requests import POLL_S, AdminRequests
from state.kafka.error_mapping import TOPIC_NOT_FOUND, TRANSIENT
from state.kafka.topics import TopicPartition

LEADERLESS = ClientFailure(KafkaError.LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE", "no leader", retriable=True)
# The codes of listing offsets for a topic or partition that does not exist, and for one whose leader is away.
_NO_LEADER = TOPIC_NOT_FOUND | {KafkaError._NOENT}
# The same codes come for a moment for a new partition: it was described, but its leader does not know it yet.
_NEW_PARTITION_S = 1.0


def list_offsets(
    requests: AdminRequests, specs: Mapping[TopicPartition, OffsetSpec], committed: bool = True, new: bool = False
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """One request for all partitions, repeated for those whose leader is being elected or was elected just now.

    Raises:
        TopicNotFoundError: A topic or partition does not exist.
        KafkaClientError: A partition has no leader (transient), or the request failed.
    """
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    found: dict[TopicPartition, ListOffsetsResultInfo] = {}
    waiting = {place: (KafkaPartition(*place), spec) for place, spec in specs.items()}
    begun = time.monotonic()
    while waiting:
        client = requests.client_knowing(topic for topic, _ in waiting)
        futures = client.list_offsets(dict(waiting.values()), isolation_level=level, request_timeout=requests.timeout_s)
        for where, future in futures.items():
            try:
                info = _listed(requests, future, where)
            except KafkaClientError as error:
                waited = time.monotonic() - begun
                if error.code not in _NO_LEADER or waited > (requests.timeout_s if new else _NEW_PARTITION_S):
                    _raise_unless_passing(requests, where, error, waited)
                continue
            found[where.topic, where.partition] = info
            del waiting[where.topic, where.partition]
        if waiting:
            time.sleep(POLL_S)
    return found


def _listed(
    requests: AdminRequests, future: Future[ListOffsetsResultInfo], where: KafkaPartition
) -> ListOffsetsResultInfo:
    """The answer for one partition. Where the leader did not answer, librdkafka 2.16 has neither answer nor error."""
    info = requests.result(future, f"listing offsets of {where.topic}-{where.partition}")
    if info.offset == OFFSET_INVALID:
        requests.replace_client()
        raise _leaderless(where)
    return info


def _raise_unless_passing(
    requests: AdminRequests, where: KafkaPartition, error: KafkaClientError, waited_s: float
) -> None:
    """Raise the named error of one partition, unless the failure may resolve itself and has not had its time."""
    if error.code in _NO_LEADER:
        # The client reports a partition that never existed like one whose broker is away.
        described = requests.descriptions([where.topic]).get(where.topic)
        if described is None or where.partition >= len(described.partitions):
            raise TopicNotFoundError(where.topic, where.partition, error.failure) from error
        error = _leaderless(where)
    if error.code not in TRANSIENT or waited_s > requests.timeout_s:
        raise error


def _leaderless(where: KafkaPartition) -> KafkaClientError:
    """The error for a partition that nobody answers for at present."""
    return KafkaClientError(
        f"partition {where.partition} of topic {where.topic!r} has no leader: the brokers that hold it are away, or are "
        f"just starting; bring them back",
        LEADERLESS,
    )
