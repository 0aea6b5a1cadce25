"""`TransactionalProducer`: writes one transaction and is then closed; one that is `kept` writes one after another.

librdkafka speaks the old EndTxn, in which a delayed commit of one transaction can commit half of the next one of the same
producer; a new producer gets a new epoch, and the broker refuses the late request. So a producer writes its next transaction only
if no request of the last one can have been sent twice (`again`). There is no abort, because after an error the broker's state is
unknown: the next attempt fences this producer (which aborts an open transaction) and reads the commit marker. Invariants (checked
here, not left to callers): the calls come in the order NEW -> READY -> IN_TRANSACTION -> COMMITTED; any error makes the producer
FAILED for good; a commit is attempted only when the broker has acknowledged every record.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn
from state.errors import ProduceError, ProducerStateError
from state.headers import Header
from state.kafka.config import RESEND_S, ClientConfig, kept_producer_config, producer_config
from state.kafka.error_mapping import timed_out
from state.kafka.librdkafka import bulk_available
from state.kafka.transport import ProducerTransport, SendColumns

KEPT_CALL_S = 10.0
"""The longest time of a call of a kept producer, other than fencing, s."""
STUCK_S = 5.0
"""How long after its time-out a call is given up, s."""


class ProducerState(enum.Enum):
    """The states in a producer's life."""

    NEW = "new"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTED = "committed"
    FAILED = "failed"
    CLOSED = "closed"


class TransactionalProducer:
    """Writes records, source offsets and one commit; not thread safe.

    Args:
        config: The user's client properties.
        transactional_id: Kafka's `transactional.id`; only the newest producer of an id is alive.
        timeout_s: Seconds that any one call may take; also the broker's timeout of an open transaction.
        bulk: Produce through librdkafka's C API where the installed confluent-kafka allows it.
        kept: Whether it may write several transactions (`again`).
        stuck: Ends the process, with a reason; called if a call has not returned long after its time-out.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        config: ClientConfig,
        transactional_id: str,
        timeout_s: float = 60.0,
        *,
        bulk: bool = True,
        kept: bool = False,
        stuck: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transactional_id = transactional_id
        self.state = ProducerState.NEW
        self._timeout_s = timeout_s
        # In a small transaction, no call takes long.
        self._call_s = min(timeout_s, KEPT_CALL_S) if kept else timeout_s
        self._kept = kept
        self._stuck = stuck
        self._clock = clock
        self._began = self._committed_s = 0.0
        if kept:
            config = kept_producer_config(config)
        properties = producer_config(config, transactional_id, int(timeout_s * 1000))
        self._transport: ProducerTransport
        if bulk and bulk_available():
            from state.kafka.native_producer import BulkTransport

            self._transport = BulkTransport(properties, transactional_id)
        else:
            from state.kafka.transport import OrdinaryTransport

            self._transport = OrdinaryTransport(config, properties, transactional_id)

    def init_transactions(self) -> None:
        """Fence every older producer of this id, and make the broker decide its transaction (abort it if open).

        Raises:
            ProduceError: The call failed or took longer than `timeout_s`.
        """
        with self._step("init_transactions", ProducerState.NEW, ProducerState.READY):
            self._transport.init_transactions(self._timeout_s)

    def begin(self) -> None:
        with self._step("begin", ProducerState.READY, ProducerState.IN_TRANSACTION):
            self._began = self._clock()
            self._transport.begin()

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header] | None = None,
    ) -> None:
        """Send one record; for many use `send_columns`.

        Raises:
            RecordTooLargeError: The record is larger than allowed.
            ProduceError: The record was refused, or an earlier one was.
        """
        with self._step("send", ProducerState.IN_TRANSACTION, ProducerState.IN_TRANSACTION):
            columns = SendColumns.of_record(topic, partition, key, value, timestamp_ms, headers)
            self._transport.send(columns, self._call_s)

    def send_columns(
        self,
        topic: str,
        partitions: npt.NDArray[np.int32] | int,
        keys: BinaryColumn | None,
        values: BinaryColumn | pa.NullArray,
        timestamps: npt.NDArray[np.int64],
        headers: BinaryColumn | None = None,
    ) -> None:
        """Send n records of one topic, in the order of the rows.

        Raises:
            ValueError: The columns differ in length.
            RecordTooLargeError: A record is larger than allowed.
            ProduceError: A record was refused, or an earlier one was.
        """
        with self._step("send_columns", ProducerState.IN_TRANSACTION, ProducerState.IN_TRANSACTION):
            columns = SendColumns.of_columns(topic, partitions, keys, values, timestamps, headers)
            self._transport.send(columns, self._call_s)

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group_id: str) -> None:
        """Commit source offsets to a consumer group within the transaction; no member of the group is needed."""
        with self._step("send_offsets", ProducerState.IN_TRANSACTION, ProducerState.IN_TRANSACTION):
            if offsets:
                with self._watched("send_offsets"):
                    self._transport.send_offsets(offsets, group_id, self._call_s)

    def flush(self) -> None:
        """Wait until the broker has acknowledged every record sent so far.

        Raises:
            ProduceError: A record failed, or not all were acknowledged within `timeout_s`.
        """
        with self._step("flush", ProducerState.IN_TRANSACTION, ProducerState.IN_TRANSACTION):
            self._flush()

    def delivered(self, topic: str, partition: int) -> int | None:
        """Offset of the last record that was sent to a partition by number; only valid after `flush`."""
        with self._step("delivered", ProducerState.IN_TRANSACTION, ProducerState.IN_TRANSACTION):
            return self._transport.delivered(topic, partition)

    def commit(self) -> None:
        """Commit the transaction, after every record was acknowledged.

        Raises:
            FencedError: This producer was fenced, or its transaction timed out.
            ProduceError: A record failed (then nothing is committed), or the commit failed (then the outcome is unknown: the next
                attempt reads the marker).
        """
        with self._step("commit", ProducerState.IN_TRANSACTION, ProducerState.COMMITTED):
            self._flush()
            self._transport.commit(self._call_s)
            self._transport.raise_delivery_failure()
            self._committed_s = self._clock() - self._began

    def again(self) -> bool:
        """Get ready for another transaction; False: this producer may not write one, so close it and fence with a new one.

        librdkafka sends a request again only after it has waited for `retry.backoff.ms`, whatever the reason: a timeout, a
        disconnect or an error. So a transaction that took less time than this, from its beginning to its end, has sent each request
        only once, and each was answered: no request is still on its way. A producer that is ready, but has not begun a transaction
        yet, has sent nothing that could arrive again. If it has been fenced, the brokers refuse its requests.
        """
        if self._kept and self.state is ProducerState.READY:
            return True
        if not self._kept or self.state is not ProducerState.COMMITTED or self._committed_s >= RESEND_S:
            return False
        self.state = ProducerState.READY
        return True

    @contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        """Ends the process if a call does not return.

        librdkafka (2.16) checks no time-out while it looks for the group's coordinator (its issue 5456), and may look forever once
        connections were cut (5511). Nothing within the process can end such a call, so the process has to end as if it were killed.
        """
        if self._stuck is None:
            yield
            return
        why = f"{what} of transactional id {self.transactional_id!r} has not come back {self._call_s + STUCK_S:g} s after its call"
        timer = threading.Timer(self._call_s + STUCK_S, self._stuck, [why])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _flush(self) -> None:
        remaining = self._transport.flush(self._call_s)
        self._transport.raise_delivery_failure()
        if remaining:
            raise ProduceError(
                f"{remaining} records of transactional id {self.transactional_id!r} were not acknowledged within "
                f"{self._call_s:g} s; check the brokers or raise the timeout; nothing of this transaction is visible",
                timed_out("no acknowledgement"),
            )

    def close(self) -> None:
        """Release the client at once: unsent records are dropped, and nothing is committed or aborted."""
        if self.state is not ProducerState.CLOSED:
            self.state = ProducerState.CLOSED
            self._transport.close()

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _step(self, what: str, required: ProducerState, following: ProducerState) -> Iterator[None]:
        """Run one call, allowed only in the `required` state. The state becomes `following`, or FAILED after any error."""
        if self.state is not required:
            raise ProducerStateError(
                f"{what} of transactional id {self.transactional_id!r} needs a producer that is {required.value!r}, "
                f"this one is {self.state.value!r}; the next attempt needs a new one"
            )
        try:
            yield
        except BaseException:
            self.state = ProducerState.FAILED
            raise
        self.state = following
