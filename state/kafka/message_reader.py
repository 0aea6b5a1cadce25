"""Range readers on confluent-kafka's Python API: records as objects, or as columns.

A command that needs a few markers reads them as objects (`MessageReader`), because importing the libraries of columns takes longer.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig, consumer_config
from state.kafka.error_mapping import failure_of, read_error
from state.kafka.range_reader import FetchedHead, R, RangeReader


@dataclass(frozen=True, slots=True)
class Messages:
    """A run of records in the form of the client."""

    run: list[Message]

    def __len__(self) -> int:
        return len(self.run)

    @property
    def last_offset(self) -> int:
        return int(self.run[-1].offset() or 0)

    @property
    def last_value(self) -> bytes | None:
        value: bytes | None = self.run[-1].value()
        return value

    def key_list(self) -> list[bytes | None]:
        return [message.key() for message in self.run]

    def cells(self) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of each record."""
        return [(message.key(), message.value()) for message in self.run]


class ClientReader(RangeReader[R]):
    """A range reader on the ordinary client; the arguments are as for `open_range_reader`."""

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        partition: int,
        start: int,
        *,
        timeout_s: float,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
    ) -> None:
        super().__init__(topic, partition, start, timeout_s)
        self._messages: list[Message] = []
        self._next = 0
        self._properties = consumer_config(config, prefetch_bytes)
        self._open()

    def _open(self) -> None:
        on_error = {"error_cb": lambda error: self._on_client_error(failure_of(error))}
        self._consumer = Consumer({**self._properties, **on_error})
        self._consumer.assign([TopicPartition(self.topic, self.partition, self._position)])

    def _fill(self, max_records: int, wait_ms: int) -> bool:
        # `consume` waits for as many as requested: so wait for one, then take what has arrived.
        messages = self._consumer.consume(max_records, 0)
        if not messages:
            messages = self._consumer.consume(1, wait_ms / 1000)
            if messages and max_records > 1:
                messages += self._consumer.consume(max_records - 1, 0)
        self._messages, self._next = messages, 0
        return bool(messages)

    def _take_records(self, end: int, max_records: int) -> R | None:
        messages = self._messages
        first = self._next
        last = first
        while last < len(messages) and last - first < max_records:
            message = messages[last]
            if message.error() is not None or message.offset() >= end:
                break
            last += 1
        if last == first:
            return None
        run = messages[first:last]
        self._next = last
        return self._of(run)

    @abc.abstractmethod
    def _of(self, run: list[Message]) -> R:
        """Converts records to the form that this reader returns."""

    def _head(self) -> FetchedHead | None:
        if self._next == len(self._messages):
            return None
        message = self._messages[self._next]
        error = message.error()
        return FetchedHead(message.offset() or 0, None if error is None else failure_of(error))

    def _drop_head(self) -> None:
        self._next += 1

    def _client_position(self) -> int:
        (position,) = self._consumer.position([TopicPartition(self.topic, self.partition)])
        return int(position.offset)

    def _fetched_end(self) -> int:
        place = TopicPartition(self.topic, self.partition)
        found = self._consumer.get_watermark_offsets(place, cached=True)
        return -1 if found is None else int(found[1])

    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.topic, self.partition), timeout_s)
        except KafkaException as exception:
            raise read_error(self.topic, self.partition, failure_of(exception.args[0])) from exception
        return int(low), int(high)

    def _close(self) -> None:
        self._messages = []
        self._next = 0
        self._consumer.close()


class MessageReader(ClientReader[Messages]):
    """Reads records as objects."""

    def _of(self, run: list[Message]) -> Messages:
        return Messages(run)


def read_messages(
    config: ClientConfig, topic: str, partition: int, start: int, end: int, timeout_s: float = 60.0
) -> Iterator[Messages]:
    """The committed records [start, end) of a partition."""
    if start < end:
        with closing(MessageReader(config, topic, partition, start, timeout_s=timeout_s)) as reader:
            yield from reader.read(end)
