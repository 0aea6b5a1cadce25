"""Input and output topics of a test: typed ends of the driver's log, with Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from state.kafka.headers import decode_headers
from streams.model.record import Headers
from streams.serdes.base import Serde
from streams.testing.simulation import Entry, SimulatedKafka


class PipedRecord(NamedTuple):
    """A record that a test pipes in, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


Send = Callable[[str, PipedRecord, "int | None"], None]


class OutputRecord(NamedTuple):
    """A record that a topology wrote."""

    topic: str
    partition: int
    key: Any
    value: Any
    timestamp: int
    headers: Headers


class TestInputTopic:
    """Pipes records into a source topic; each is a step of its own, unless within `driver.batch()`."""

    __test__ = False

    def __init__(self, name: str, key_serde: Serde, value_serde: Serde, send: Send, now: Callable[[], int]) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._send = send
        self._now = now

    def pipe_input(
        self,
        key: Any,
        value: Any,
        timestamp: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Pipe one record; without a timestamp the driver's clock, without a partition the key's."""
        record = PipedRecord(
            self._key_serde.serialize(self.name, key, headers),
            self._value_serde.serialize(self.name, value, headers),
            self._now() if timestamp is None else timestamp,
            headers,
        )
        self._send(self.name, record, partition)

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[Any, Any]], start_ms: int | None = None, advance: timedelta | int = 0
    ) -> None:
        """Pipe records, the first at `start_ms`, each next one `advance` later."""
        timestamp = self._now() if start_ms is None else start_ms
        step = advance // timedelta(milliseconds=1) if isinstance(advance, timedelta) else advance
        for key, value in pairs:
            self.pipe_input(key, value, timestamp)
            timestamp += step

    def pipe_bytes(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Pipe a record as it would lie in Kafka, for instance one that no serde can read."""
        self._send(self.name, PipedRecord(key, value, timestamp, headers), partition)


class TestOutputTopic:
    """Reads what a topology wrote to a topic: by partition, in order of offset, each record once."""

    __test__ = False

    def __init__(self, name: str, key_serde: Serde, value_serde: Serde, kafka: SimulatedKafka) -> None:
        self.name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._kafka = kafka
        self._positions: dict[int, int] = {}

    def read_records_to_list(self) -> list[OutputRecord]:
        """All records that were not read yet."""
        found = []
        for partition in self._partitions:
            found += [self._decoded(partition, record) for record in self._unread(partition)]
            self._positions[partition] = self._kafka.log(self.name, partition).stable_end
        return found

    def read_record(self) -> OutputRecord:
        """The next record.

        Raises:
            LookupError: There is none.
        """
        for partition in self._partitions:
            for record in self._unread(partition):
                self._positions[partition] = record.offset + 1
                return self._decoded(partition, record)
        raise LookupError(f"topic {self.name!r} has no more records")

    def read_key_value(self) -> tuple[Any, Any]:
        """Key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Any:
        """Value of the next record."""
        return self.read_record().value

    def read_key_values_to_list(self) -> list[tuple[Any, Any]]:
        """Keys and values of all records that were not read yet."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """The last value of each key among the records that were not read yet."""
        return dict(self.read_key_values_to_list())

    def read_values_to_list(self) -> list[Any]:
        """Values of all records that were not read yet."""
        return [record.value for record in self.read_records_to_list()]

    @property
    def queue_size(self) -> int:
        """How many records were not read yet."""
        return sum(len(self._unread(partition)) for partition in self._partitions)

    @property
    def is_empty(self) -> bool:
        """Whether all records were read."""
        return self.queue_size == 0

    @property
    def _partitions(self) -> range:
        return range(self._kafka.partition_count(self.name) if self.name in self._kafka.topics else 0)

    def _unread(self, partition: int) -> list[Entry]:
        """What the topology wrote, in transactions; what the test itself piped into the topic is not shown."""
        records = self._kafka.log(self.name, partition).readable(self._positions.get(partition, 0))
        return [record for record in records if record.span is not None]

    def _decoded(self, partition: int, record: Entry) -> OutputRecord:
        headers = tuple(decode_headers(record.headers))
        key = self._key_serde.deserialize(self.name, record.key, headers)
        value = self._value_serde.deserialize(self.name, record.value, headers)
        return OutputRecord(self.name, partition, key, value, record.timestamp, headers)
