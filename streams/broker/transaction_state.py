"""What brokers know of transactions: a partition's leader of the open ones, a coordinator of its transactional ids (KIP-664)."""

from __future__ import annotations

from typing import NamedTuple

from state.kafka.topics import TopicPartition


class OpenProducer(NamedTuple):
    """A producer with an open transaction, as the partition's leader knows it.

    Attributes:
        producer_id: Its id.
        epoch: Its epoch.
        coordinator_epoch: The epoch of the coordinator that closed the producer's last transaction here; -1: none yet.
        start_offset: The offset of the transaction's first record.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int


class CoordinatorView(NamedTuple):
    """A transactional id, as its coordinator knows it.

    Attributes:
        transactional_id: The id.
        epoch: The producer's epoch.
        state: The name of the state, such as `Ongoing`.
        started_ms: When the transaction began, ms since 1970; None: there is none.
        timeout_ms: How long a transaction may take.
        partitions: The partitions of the transaction.
    """

    transactional_id: str
    epoch: int
    state: str
    started_ms: int | None
    timeout_ms: int
    partitions: frozenset[TopicPartition]
