"""The transaction coordinator of the simulated Kafka, with the old EndTxn that librdkafka speaks.

The old protocol identifies a transaction by producer id and epoch only, and both stay the same from one transaction of a producer
to the next. So a delayed request to commit one transaction commits whatever the same producer has written of the next one by
then. The simulation has this flaw, because the engine must not be affected by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state.errors import FencedError
from state.kafka.topics import TopicPartition
from streams.testing.simulation.log import PartitionLog, Span


@dataclass(slots=True)
class Transactional:
    """The coordinator's state of one transactional id.

    Attributes:
        name: The transactional id.
        epoch: The epoch of the current producer; all others are fenced.
        open: Partition -> the current transaction's records there.
        offsets: Group -> the source offsets of the current transaction.
        decided: The parts that still need their control record, without which readers do not see them.
    """

    name: str
    epoch: int = -1
    open: dict[TopicPartition, tuple[PartitionLog, Span]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    decided: list[tuple[PartitionLog, Span]] = field(default_factory=list)

    def check(self, epoch: int) -> None:
        """Checks that a producer is the newest.

        Raises:
            FencedError: There is a newer producer.
        """
        if epoch != self.epoch:
            raise FencedError(
                f"transactional id {self.name!r}: the producer of epoch {epoch} is fenced, epoch {self.epoch} is alive; the "
                f"next attempt decides by the marker"
            )

    def append(
        self,
        epoch: int,
        log: PartitionLog,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None = None,
    ) -> int:
        """Writes a record within the transaction and returns its offset."""
        self.check(epoch)
        place = (log.topic, log.partition)
        if place not in self.open:
            self.open[place] = (log, log.open_span())
        return log.append(key, value, timestamp, headers, self.open[place][1])

    def end(self, committed: bool) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Decides the transaction, whose control records must then be written; returns the offsets to commit."""
        for _, span in self.open.values():
            span.decided = committed
        self.decided += self.open.values()
        offsets = self.offsets if committed else {}
        self.open, self.offsets = {}, {}
        return offsets
