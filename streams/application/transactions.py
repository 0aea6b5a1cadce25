"""Open transactions on topics: who began them, whether they hold up readers, and whether a coordinator will end them.

A partition's leader knows the producers with an open transaction there; a transaction's coordinator knows the partitions
that it will close. A transaction *hangs* if a leader has it open and no coordinator will close it (KIP-664): then the
partition's last stable offset stands still, and `read_committed` readers wait forever. Leaders are asked first, then the
coordinators, then the leaders again, so that a transaction that ends in the meantime does not seem to hang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from state.kafka.topics import LogEnds, TopicPartition

if TYPE_CHECKING:
    from streams.cluster.java_admin import CoordinatorView, OpenProducer

_CLOSING = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states in which a coordinator still closes a transaction's partitions."""


class TransactionsAdmin(Protocol):
    """The requests of KIP-664 (`streams.cluster.java_admin`)."""

    def open_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[OpenProducer]]: ...
    def coordinators(self, producer_ids: Collection[int]) -> Mapping[int, CoordinatorView]: ...
    def fence(self, transactional_id: str) -> None: ...
    def abort(self, place: TopicPartition, producer: OpenProducer) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open on a partition.

    Attributes:
        coordinator: The coordinator's view of the producer's transactional id; None: no coordinator knows the producer.
        blocks: Whether the partition's last stable offset waits for this transaction.
        hangs: Whether no coordinator will close it.
    """

    place: TopicPartition
    producer: OpenProducer
    coordinator: CoordinatorView | None
    blocks: bool
    hangs: bool

    @property
    def transactional_id(self) -> str | None:
        return self.coordinator.transactional_id if self.coordinator else None

    @property
    def committed_elsewhere(self) -> bool:
        """Whether the coordinator has committed this transaction already, so that aborting it here would split it."""
        view = self.coordinator
        return self.hangs and view is not None and view.state == "CompleteCommit" and view.epoch == self.producer.epoch

    def age_ms(self, now_ms: int) -> int | None:
        """How long the transaction has been open, ms; None: unknown."""
        started = self.coordinator.started_ms if self.coordinator and not self.hangs else None
        return None if started is None else max(0, now_ms - started)

    def overdue(self, now_ms: int) -> bool:
        """Whether the transaction has been open for longer than its own timeout allows."""
        age = self.age_ms(now_ms)
        return age is not None and self.coordinator is not None and age > self.coordinator.timeout_ms


def undecided(admin: LogEnds, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Partition with an open transaction -> (last stable offset, end of the log)."""
    # In this order, a transaction decided between the two requests does not look open.
    ends = admin.end_offsets(partitions, committed=False)
    stable = admin.end_offsets(ends)
    return {place: (stable[place], end) for place, end in sorted(ends.items()) if stable[place] < end}


def open_transactions(
    admin: LogEnds,
    transactions: TransactionsAdmin,
    partitions: Iterable[TopicPartition],
    pause: Callable[[], None],
) -> list[OpenTransaction]:
    waiting = undecided(admin, partitions)
    found = transactions.open_producers(list(waiting))
    views = transactions.coordinators({one.producer_id for of in found.values() for one in of})
    opened = [
        OpenTransaction(place, one, view, one.start_offset == waiting[place][0], not _will_close(view, place))
        for place, of in sorted(found.items())
        for one in of
        for view in [views.get(one.producer_id)]
    ]
    suspects = {each.place for each in opened if each.hangs}
    if not suspects:
        return opened
    pause()
    still = {(place, one) for place, of in transactions.open_producers(suspects).items() for one in of}
    return [each for each in opened if not each.hangs or (each.place, each.producer) in still]


def _will_close(view: CoordinatorView | None, place: TopicPartition) -> bool:
    return view is not None and view.state in _CLOSING and place in view.partitions


def end(transactions: TransactionsAdmin, opened: Sequence[OpenTransaction], report: Callable[[str], None]) -> None:
    """Ends transactions: by fencing the producer if a coordinator knows it; hanging ones partition by partition."""
    for name in sorted({each.transactional_id for each in opened if not each.hangs and each.transactional_id}):
        transactions.fence(name)
        report(f"fenced the producer of {name}: its coordinator aborts the transaction on all partitions")
    for each in opened:
        if each.hangs:
            transactions.abort(each.place, each.producer)
            topic, partition = each.place
            report(f"aborted the transaction on {topic}-{partition} from offset {each.producer.start_offset} on")
