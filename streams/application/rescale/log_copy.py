"""Copies changelog records to partitions of a topic that nothing else writes to, in transactions of bounded size.

Invariants: records of one source partition stay in their order; each transaction is committed only if its records are where the
last one ended, so two rescales at a time cannot mix their records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.commit.guards import fenced_producer
from state.commit.protocols import KafkaAccess, Producer
from state.kafka.columns import RecordColumns, one_piece
from state.kafka.topics import TopicPartition
from streams.errors import RescaleError

CHUNK_BYTES = 32 * 1024 * 1024
"""Keys and values in one transaction, about: large enough that its constant cost does not matter."""


@dataclass
class LogCopy:
    """Writes to the partitions of one topic.

    Args:
        kafka: The cluster.
        transactional_id: Of the rescale of this sub-topology.
        topic: The topic, which was created for this.
        partitions: The number of its partitions.

    Attributes:
        records: The number of records written so far.
    """

    kafka: KafkaAccess
    transactional_id: str
    topic: str
    partitions: int
    records: int = 0
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _waiting: list[tuple[RecordColumns, npt.NDArray[np.int32]]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, columns: RecordColumns, partitions: npt.NDArray[np.int32]) -> None:
        """Adds records, each with its partition; they are written once there are enough of them."""
        if not len(columns):
            return
        self._waiting.append((columns, partitions))
        self._bytes += columns.keys.nbytes + columns.values.nbytes
        if self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes all records that were added.

        Raises:
            RescaleError: Something else has written to the topic.
        """
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        keys = one_piece(pa.chunked_array([columns.keys for columns, _ in waiting]))
        values = one_piece(pa.chunked_array([columns.values for columns, _ in waiting]))
        stamps = np.concatenate([columns.timestamps for columns, _ in waiting])
        places = np.concatenate([partitions for _, partitions in waiting])
        producer = fenced_producer(self.kafka, self.transactional_id)
        try:
            self._write(producer, places, keys, values, stamps)
        finally:
            producer.close()
        self.records += len(keys)

    def _write(self, producer: Producer, places: npt.NDArray[np.int32], keys: Any, values: Any, stamps: Any) -> None:
        ends, counts = self.ends(), {}
        producer.begin()
        # One partition after the other: only then does the producer know where the last record of each has landed.
        for partition in np.unique(places).tolist():
            rows = np.flatnonzero(places == partition)
            taken = pa.array(rows)
            producer.send_columns(self.topic, partition, keys.take(taken), values.take(taken), stamps[rows])
            counts[self.topic, partition] = len(rows)
        producer.flush()
        for place, count in counts.items():
            if producer.delivered(*place) != ends[place] + count - 1:
                raise _another(self.topic)
            # The control record of the commit follows.
            self._ends[place] = ends[place] + count + 1
        producer.commit()

    def ends(self) -> dict[TopicPartition, int]:
        """Where the partitions end.

        Raises:
            RescaleError: Something else has written to the topic.
        """
        places = [(self.topic, partition) for partition in range(self.partitions)]
        found = {place: stable for place, (stable, _) in self.kafka.log_ends(places).items()}
        if any(end != self._ends.get(place, end) for place, end in found.items()):
            raise _another(self.topic)
        self._ends = found
        return dict(found)


def records_of(kafka: KafkaAccess, topic: str, partition: int, end: int | None = None) -> Iterator[RecordColumns]:
    """The committed records of a partition, up to an offset or all of them."""
    place = (topic, partition)
    yield from kafka.read(
        topic, partition, kafka.begin_offset(place), kafka.end_offsets([place])[place] if end is None else end
    )


def _another(topic: str) -> RescaleError:
    return RescaleError(
        f"something else writes to {topic}: another `streams rescale` is at work. Let one of them come to its end"
    )
