"""What drills do to topics and ask of them: settings, new partitions, records written, lost and counted."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.drills.failure import DrillFailed
from streams.drills.processes import wait_until

_TIMEOUT_S = 60.0


class ScratchTopics:
    """The topics of a scratch broker.

    Args:
        servers: The broker's address.
    """

    def __init__(self, servers: str) -> None:
        self._client = {"bootstrap.servers": servers, "log_level": "0"}

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; one that exists stays."""
        with KafkaAdmin(self._client) as admin:
            admin.create_topics([TopicSpec(name, partitions, config or {})])

    def delete(self, name: str) -> None:
        with KafkaAdmin(self._client) as admin:
            admin.delete_topics([name])

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Sets some settings of a topic, and leaves the others."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        # Held until the answer is there: a client that is collected meanwhile cancels its requests.
        client = AdminClient(self._client)
        client.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)

    def grow(self, name: str, partitions: int) -> None:
        """Adds partitions, and waits until all of them answer."""
        client = AdminClient(self._client)
        client.create_partitions([NewPartitions(name, partitions)])[name].result(_TIMEOUT_S)
        places = [(name, number) for number in range(partitions)]

        def there() -> bool:
            with KafkaAdmin(self._client) as admin:
                try:
                    return admin.end_offsets(places).keys() == set(places)
                except TopicNotFoundError:
                    return False

        wait_until(there, _TIMEOUT_S, f"{partitions} partitions of {name}")

    def lose_before(self, name: str, partition: int, offset: int) -> None:
        """Deletes the records below an offset, as retention does."""
        with KafkaAdmin(self._client) as admin:
            admin.delete_records({(name, partition): offset})

    def begin(self, name: str, partition: int = 0) -> int:
        """The first offset of a partition."""
        with KafkaAdmin(self._client) as admin:
            return admin.begin_offsets([(name, partition)])[name, partition]

    def end(self, name: str, partition: int = 0, *, committed: bool = False) -> int:
        """The end of a partition's log; `committed`: of what a read_committed consumer may read."""
        with KafkaAdmin(self._client) as admin:
            return admin.end_offsets([(name, partition)], committed=committed)[name, partition]

    def write(self, name: str, *records: tuple[bytes | None, bytes | None, int], partition: int = 0) -> None:
        """Writes records of key, value and timestamp, and waits for them."""
        producer = Producer({**self._client, "enable.idempotence": True})
        failures: list[object] = []
        for key, value, timestamp in records:
            producer.produce(
                name,
                value,
                key,
                partition,
                timestamp=timestamp,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        if producer.flush(_TIMEOUT_S) or failures:
            raise DrillFailed(f"records could not be written to {name}: {failures[:3]}")
