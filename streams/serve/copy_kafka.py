"""`CopyKafka`: reads Kafka for one served copy. `state.restore.follower` brings the copies forward with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from state.columns import RecordColumns
from state.commit.live import LiveKafka
from state.errors import KafkaClientError
from state.kafka.reader import ReaderPool
from state.kafka.topics import TopicPartition

_BEGINS_S = 60.0
_PREFETCH_BYTES = 8 * 1024 * 1024
_STAYS = {"queued.min.messages": "100000", "fetch.wait.max.ms": "500"}
"""The reader of a micro-batch fetches nothing while records wait, which would delay a copy. And since brokers answer as soon as
something is committed, there is no need to ask them more often about partitions without commits."""


class CopyKafka(LiveKafka):
    """Kafka for one copy. Readers stay open between commits, and the beginnings of logs are looked up only now and then."""

    def __init__(self, client: Mapping[str, str], transaction_timeout_ms: int, bulk: bool, logs: int) -> None:
        super().__init__(client, transaction_timeout_ms, bulk)
        self._properties, self._native = {**_STAYS, **client}, bulk
        self._readers = ReaderPool(logs, _PREFETCH_BYTES)
        self._begins: dict[TopicPartition, tuple[int, float]] = {}

    def begin_offset(self, partition: TopicPartition) -> int:
        begin, until_s = self._begins.get(partition, (0, 0.0))
        if time.monotonic() >= until_s:
            begin = super().begin_offset(partition)
            self._begins[partition] = begin, time.monotonic() + _BEGINS_S
        return begin

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""
        if start < end:
            try:
                yield from self._readers.reader(self._properties, topic, partition, start, self._native).read(end)
            except KafkaClientError:
                # The log may begin later by now.
                self._begins.clear()
                raise

    def close(self) -> None:
        """Closes the readers."""
        self._readers.close()
