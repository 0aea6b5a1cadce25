"""Writes the readings of many devices to Kafka: whole columns at once, several hundred thousand a second.

Without transactions: their control records would bring the broker's clock into topics with old event times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from state.errors import KafkaClientError
from state.kafka.config import producer_config
from state.kafka.librdkafka import bulk_available
from state.kafka.partitioner import partition_for_keys
from state.kafka.transport import ProducerTransport, SendColumns
from topologies.devices_data import Devices, device_names
from topologies.records import PARTITIONS, TIMEOUT_S, Advance

_WHO = "devices-load"


def partitions_of(devices: Devices, partitions: int = PARTITIONS) -> npt.NDArray[np.int32]:
    """Partition of each device's key, by Kafka's default partitioner: int32[devices]."""
    found: npt.NDArray[np.int32] = partition_for_keys(device_names(np.arange(devices.devices)), partitions)
    return found


def load(
    client: Mapping[str, str],
    devices: Devices,
    topic: str,
    partitions: int = PARTITIONS,
    advance: Advance = lambda count: None,
) -> int:
    """Writes all readings, in sending order.

    Args:
        client: Kafka client properties.
        devices: The workload to generate.
        topic: An existing topic.
        partitions: The number of its partitions.
        advance: Called with the number of further readings that were handed over.

    Returns:
        Number of readings.

    Raises:
        KafkaClientError: Not all readings were delivered.
    """
    transport = transport_of(client)
    partition_of = partitions_of(devices, partitions)
    count = 0
    try:
        for block in devices.blocks():
            where = partition_of[block.devices]
            columns = SendColumns.of_columns(topic, where, block.keys(), block.values(), block.timestamps, None)
            transport.send(columns, TIMEOUT_S)
            count += len(block)
            advance(len(block))
        left = transport.flush(TIMEOUT_S)
        transport.raise_delivery_failure()
        if left:
            raise KafkaClientError(f"{left:,} readings for '{topic}' were not acknowledged within {TIMEOUT_S:.0f} s")
    finally:
        transport.close()
    return count


def transport_of(client: Mapping[str, str]) -> ProducerTransport:
    """The fastest producer that there is here, without transactions."""
    made = producer_config(client, _WHO, int(TIMEOUT_S * 1000))
    properties = {key: value for key, value in made.items() if not key.startswith("transaction")}
    if bulk_available():
        from state.kafka.native_producer import BulkTransport

        return BulkTransport(properties, _WHO)
    from state.kafka.transport import OrdinaryTransport

    return OrdinaryTransport(client, properties, _WHO)
