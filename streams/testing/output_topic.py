"""`TestOutputTopic`: reads the records of a sink's topic, with the method names of Kafka Streams."""

from __future__ import annotations

from typing import Any, Generic

from state.columns import decode_headers
from streams.migration_hints import AnswersUnknownNames
from streams.model.typing import K, V
from streams.serdes.base import Serde
from streams.testing.records import TestRecord
from streams.testing.simulation import Entry, SimulatedKafka


class TestOutputTopic(AnswersUnknownNames, Generic[K, V]):
    """Reads the records that a topology wrote to a topic: by partition, in order of offset, each record once."""

    __test__ = False

    def __init__(
        self, name: str, key_serde: Serde[K], value_serde: Serde[V], kafka: SimulatedKafka, positions: dict[int, int]
    ) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._kafka = kafka
        self._positions = positions  # next offset by partition, shared by all objects for the topic

    def __repr__(self) -> str:
        return f"TestOutputTopic({self.name!r}, {self._key_serde!r}, {self._value_serde!r})"

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Returns all records that were not read yet."""
        found = []
        for partition in self._partitions:
            found += [self._decoded(partition, record) for record in self._unread(partition)]
            self._positions[partition] = self._kafka.log(self.name, partition).stable_end
        return found

    def read_record(self) -> TestRecord[K, V]:
        """Returns the next record.

        Raises:
            LookupError: There is no further record.
        """
        for partition in self._partitions:
            for record in self._unread(partition):
                self._positions[partition] = record.offset + 1
                return self._decoded(partition, record)
        raise LookupError(f"topic {self.name!r} has no more records; is_empty and queue_size tell before")

    def read_key_value(self) -> tuple[K, V]:
        """Returns key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V:
        """Returns the value of the next record."""
        return self.read_record().value

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Returns keys and values of all records that were not read yet."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Returns the last value of each key among the records that were not read yet."""
        return dict(self.read_key_values_to_list())

    def read_values_to_list(self) -> list[V]:
        """Returns the values of all records that were not read yet."""
        return [record.value for record in self.read_records_to_list()]

    @property
    def queue_size(self) -> int:
        """The number of records that were not read yet."""
        return sum(len(self._unread(partition)) for partition in self._partitions)

    @property
    def is_empty(self) -> bool:
        """Whether all records were read."""
        return self.queue_size == 0

    @property
    def _partitions(self) -> range:
        return range(self._kafka.partition_count(self.name) if self.name in self._kafka.topics else 0)

    def _unread(self, partition: int) -> list[Entry]:
        """The records that the topology wrote, in transactions, without those that the test itself piped into the topic."""
        records = self._kafka.log(self.name, partition).readable(self._positions.get(partition, 0))
        return [record for record in records if record.span is not None]

    def _decoded(self, partition: int, record: Entry) -> TestRecord[Any, Any]:
        headers = tuple(decode_headers(record.headers))
        key = self._key_serde.deserialize(self.name, record.key, headers)
        value = self._value_serde.deserialize(self.name, record.value, headers)
        return TestRecord(key, value, record.timestamp, headers, topic=self.name, partition=partition)
