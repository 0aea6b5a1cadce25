"""The producer that the sessions of a process share: one transaction after another, each with a step of every task that has one.

A transaction costs the brokers about the same whether one task writes to it or thirty. So a slot has one producer, with the slot's
transactional id, and each task in the transaction writes its own marker. The rules for one task hold for all of them together:

* Nothing is committed before the records of *every* task are found where its logs ended (`transaction.Transaction`). This alone
  keeps a task's markers a chain: with whatever transactional ids two processes write, only one of them is at the expected offset.
* Fencing makes it quick: it ends what an older attempt has left open, and an older attempt itself. The id is the slot's, and the
  tasks of a slot change with the number of slots. So a session also fences the id that its task's last marker names, and a slot
  fences the ids of all slots that its tasks may have been in. Slots that run at the same time are not fenced: each fences its own
  id as it begins, and until then a session waits for open transactions in its task's logs.
* If the producer may not write another transaction, the new one fences, and the last markers of *all* tasks must still be their
  sessions' own.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from state.commit import guards
from state.commit.protocols import KafkaAccess, Producer, TopicPartition
from state.commit.transaction import Transaction


class Member(Protocol):
    """A session whose steps are in the transactions."""

    @property
    def places(self) -> Collection[TopicPartition]:
        """The logs that only this session's task writes."""

    def check_again(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Checks, after a fence, that the task's last marker is still the session's own.

        Args:
            ends: The last stable offset and the end of each log.

        Raises:
            CheckpointMismatchError: Another process has written a later marker.
            OpenTransactionError: A transaction is open in one of the task's logs.
        """


class SharedProducer:
    """The producer of several sessions, within a `with` block that encloses theirs.

    Args:
        kafka: The log.
        transactional_id: The id of its transactions.
        others: Ids under which other processes may have written for the same tasks; they are fenced at the beginning.
        running: Ids under which other processes work now, for other tasks; they are never fenced.
        kept: Whether it may write more than one transaction.

    Attributes:
        not_to_fence: The ids that a session need not, or must not, fence for its task.
    """

    def __init__(
        self,
        kafka: KafkaAccess,
        transactional_id: str,
        others: Sequence[str] = (),
        running: Sequence[str] = (),
        kept: bool = True,
    ) -> None:
        self.transactional_id = transactional_id
        self.not_to_fence = frozenset({transactional_id, *others, *running})
        self._kafka = kafka
        self._kept = kept
        self._others = others
        self._members: list[Member] = []
        self._producer: Producer | None = None
        self._transaction: Transaction | None = None
        # Sessions may be opened in several threads, while transactions are begun in one.
        self._fencing = threading.Lock()

    def __enter__(self) -> SharedProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fence(self) -> None:
        """Fences older attempts, unless that is done. A session reads its task's marker after this.

        Raises:
            ProduceError: Fencing failed.
        """
        with self._fencing:
            if self._producer is None:
                for other in self._others:
                    guards.fenced_producer(self._kafka, other).close()
                self._producer = guards.fenced_producer(self._kafka, self.transactional_id, kept=self._kept)

    def join(self, member: Member) -> None:
        """Adds a session that is at its task's last marker."""
        self._members.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)

    def transaction(self) -> Transaction:
        """The transaction of the next step: the open one, or else a new one.

        Raises:
            StreamsError: The producer had to be replaced, and that failed, or another process has committed steps in the meantime.
        """
        transaction = self._transaction
        if transaction is not None and not transaction.committed:
            return transaction
        assert self._producer is not None, "fenced when the first session began"
        if transaction is not None and not self._producer.again():
            self._replace()
        self._transaction = Transaction(self._producer, self.transactional_id)
        return self._transaction

    def _replace(self) -> None:
        with self._fencing:
            self.close()
            self._producer = guards.fenced_producer(self._kafka, self.transactional_id, kept=self._kept)
        # All tasks at once: with separate requests for each task, a slot with thirty tasks stood still for seconds.
        members = tuple(self._members)
        ends = self._kafka.log_ends([place for member in members for place in member.places])
        for member in members:
            member.check_again({place: ends[place] for place in member.places})

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
