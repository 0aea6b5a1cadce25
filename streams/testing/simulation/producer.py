"""A transactional producer of the simulated Kafka, which like librdkafka does not prevent incorrect use."""

# ruff: noqa: D102 - members of protocols are described where they are implemented
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from state.columns import Header, encode_headers
from state.errors import ProduceError, ProducerStateError
from state.kafka.partitioner import partition_for_key
from state.kafka.topics import TopicPartition
from streams.testing.simulation.events import Event, Fate

if TYPE_CHECKING:
    from streams.testing.simulation.events import Hook
    from streams.testing.simulation.transactions import Transactional


class Coordinator(Protocol):
    """The part of `SimulatedKafka` that a producer uses."""

    hook: Hook

    def partition_count(self, topic: str) -> int: ...
    def fence(self, transactional: Transactional) -> int: ...
    def produce(
        self,
        transactional: Transactional,
        epoch: int,
        place: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None,
    ) -> int: ...
    def produce_offsets(
        self, transactional: Transactional, epoch: int, offsets: Mapping[TopicPartition, int], group_id: str
    ) -> None: ...
    def end_transaction(self, transactional: Transactional, epoch: int, committed: bool) -> None: ...
    def delay_commit(self, transactional: Transactional, epoch: int) -> None: ...


class SimulatedProducer:
    """The part of `state.kafka.producer.TransactionalProducer` that a step uses.

    Unlike the real producer, this one can be used for several transactions, so that a test can show the consequences.

    Args:
        kafka: The simulated Kafka.
        transactional: The coordinator's state of the transactional id.
    """

    def __init__(self, kafka: Coordinator, transactional: Transactional) -> None:
        self._kafka = kafka
        self._transactional = transactional
        self._epoch = -1
        self._begun = False
        self._sent: dict[TopicPartition, tuple[int, int]] = {}

    @property
    def transactional_id(self) -> str:
        """Its transactional id."""
        return self._transactional.name

    def init_transactions(self) -> None:
        """Fences every older producer of the id and aborts their open transactions."""
        self._epoch = self._kafka.fence(self._transactional)

    def begin(self) -> None:
        """Begins a transaction, of which the first record informs the broker."""
        if self._epoch < 0:
            raise ProducerStateError("begin before init_transactions")
        self._begun, self._sent = True, {}

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header] | None = None,
    ) -> None:
        """Sends one record."""
        if partition is None:
            partition = max(0, partition_for_key(key, self._kafka.partition_count(topic)))
        self._send(topic, partition, key, value, timestamp_ms, encode_headers(headers) if headers else None)

    def send_columns(
        self,
        topic: str,
        partitions: Any,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps: np.ndarray,
        headers: pa.Array | None = None,
    ) -> None:
        """Sends many records of one topic."""
        count = len(values)
        where = [partitions] * count if isinstance(partitions, int) else partitions.tolist()
        columns = (
            [None] * count if keys is None else keys.to_pylist(),
            values.to_pylist(),
            timestamps.tolist(),
            [None] * count if headers is None else headers.to_pylist(),
        )
        for partition, key, value, timestamp, cell in zip(where, *columns, strict=True):
            self._send(topic, partition, key, value, timestamp, cell)

    def _send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None,
    ) -> None:
        self._in_transaction("send")
        offset = self._kafka.produce(
            self._transactional, self._epoch, (topic, partition), key, value, timestamp, headers
        )
        first, _ = self._sent.get((topic, partition), (offset, 0))
        self._sent[topic, partition] = (first, offset)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_id: str) -> None:
        """Sends source offsets as part of the transaction."""
        self._in_transaction("send_offsets")
        self._kafka.produce_offsets(self._transactional, self._epoch, offsets, group_id)

    def flush(self) -> None:
        """Does nothing, because every sent record is at the broker already."""

    def delivered(self, topic: str, partition: int) -> int | None:
        """The offset of the last record that this transaction has sent to a partition; None if there is none."""
        sent = self._sent.get((topic, partition))
        return None if sent is None else sent[1]

    def commit(self) -> None:
        """Commits.

        Raises:
            FencedError: Another producer has taken over, or the transaction took too long.
            ProduceError: No reply came in time, so the outcome is unknown.
        """
        self._in_transaction("commit")
        self._begun = False
        event = Event("commit", self.transactional_id, f"epoch {self._epoch}")
        if self._kafka.hook.before(event) is Fate.LATE:
            self._kafka.delay_commit(self._transactional, self._epoch)
            raise ProduceError(
                f"committing a transaction of {self.transactional_id!r}: no reply from the broker in time"
            )
        self._kafka.end_transaction(self._transactional, self._epoch, committed=True)
        self._kafka.hook.after(event)

    def close(self) -> None:
        """Closes the client; an open transaction stays open at the broker."""

    def _in_transaction(self, what: str) -> None:
        if not self._begun:
            raise ProducerStateError(f"{what} of transactional id {self.transactional_id!r} outside of a transaction")
