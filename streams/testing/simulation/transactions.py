"""The transaction coordinator of the simulated Kafka, with the old EndTxn that librdkafka speaks.

The old protocol names a transaction by producer id and epoch only, and both stay the same from one transaction of a producer
to the next: so a request to commit one transaction, when it is delayed, commits whatever the same producer has written of
its next one by then. The simulation has this flaw, because the engine must not step into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state.errors import FencedError
from state.kafka.topics import TopicPartition
from streams.testing.simulation.log import PartitionLog, Span


@dataclass(slots=True)
class Transactional:
    """What the coordinator knows of one transactional id.

    Attributes:
        name: The transactional id.
        epoch: Of the producer that is alive; all others are fenced.
        open: Partition -> what the present transaction has written there.
        offsets: Group -> source offsets of the present transaction.
        decided: What still lacks its control record: readers do not see it yet.
    """

    name: str
    epoch: int = -1
    open: dict[TopicPartition, tuple[PartitionLog, Span]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    decided: list[tuple[PartitionLog, Span]] = field(default_factory=list)

    def check(self, epoch: int) -> None:
        """Refuses a producer that is not the newest.

        Raises:
            FencedError: It is not.
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
        """Writes a record within the transaction; gives its offset."""
        self.check(epoch)
        place = (log.topic, log.partition)
        if place not in self.open:
            self.open[place] = (log, log.open_span())
        return log.append(key, value, timestamp, headers, self.open[place][1])

    def end(self, committed: bool) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Decides the transaction; its control records are then to be written. Gives the offsets that it commits."""
        for _, span in self.open.values():
            span.decided = committed
        self.decided += self.open.values()
        offsets = self.offsets if committed else {}
        self.open, self.offsets = {}, {}
        return offsets
