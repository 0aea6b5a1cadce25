"""The loader of input topics: whole columns at once, several hundred thousand records a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from benchmarks.generators.records import Batch
from state.errors import KafkaClientError
from state.kafka.partitioner import partition_for_keys
from state.kafka.transport import SendColumns
from topologies.devices_load import transport_of
from topologies.records import TIMEOUT_S


class Loader:
    """Writes batches to the topics of a workload, each record to the partition of its key.

    Args:
        client: Kafka client properties.
        topics: The topics' names by role.
        partitions: The number of partitions of each.
    """

    def __init__(self, client: Mapping[str, str], topics: Mapping[str, str], partitions: int) -> None:
        self._topics = topics
        self._partitions = partitions
        self._transport = transport_of(client)

    def send(self, batch: Batch) -> None:
        """Hands a batch over; it is written by the next `flush` at the latest."""
        where = batch.partitions
        if where is None:
            where = partition_for_keys(batch.keys, self._partitions)
        topic = self._topics[batch.role]
        columns = SendColumns.of_columns(topic, where, batch.keys, batch.values, batch.timestamps, None)
        self._transport.send(columns, TIMEOUT_S)

    def flush(self) -> None:
        """Waits until everything is acknowledged.

        Raises:
            KafkaClientError: Not all records were delivered.
        """
        left = self._transport.flush(TIMEOUT_S)
        self._transport.raise_delivery_failure()
        if left:
            raise KafkaClientError(f"{left:,} input records were not acknowledged within {TIMEOUT_S:.0f} s")

    def close(self) -> None:
        """Closes the client."""
        self._transport.close()


def load(
    client: Mapping[str, str],
    topics: Mapping[str, str],
    partitions: int,
    batches: Iterable[Batch],
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, int]:
    """Writes all batches.

    Args:
        client: Kafka client properties.
        topics: The topics' names by role.
        partitions: The number of partitions of each.
        batches: The records.
        advance: Called with the number of further records that were handed over.

    Returns:
        The number of records by role.

    Raises:
        KafkaClientError: Not all records were delivered.
    """
    counts: dict[str, int] = {}
    loader = Loader(client, topics, partitions)
    try:
        for batch in batches:
            loader.send(batch)
            counts[batch.role] = counts.get(batch.role, 0) + len(batch)
            advance(len(batch))
        loader.flush()
    finally:
        loader.close()
    return counts
