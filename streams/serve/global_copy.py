"""`GlobalCopy`: the global tables of an application, read from their topics by this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from state.columns import RecordColumns
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of
from state.stores.task_store import TaskStore
from streams.runtime.global_tables import GlobalTables
from streams.serve.copies import Clock, Copy, View
from streams.serve.position import Position


class TopicSource(Protocol):
    """Kafka, for reading whole topics."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def begin_offset(self, partition: TopicPartition) -> int: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


class GlobalCopy(Copy):
    """The global tables of an application.

    Args:
        source: Kafka; used by one thread at a time.
        tables: The tables, over a store that is empty.
        store: The store, which is closed with the copy.
        now_ms: The wall clock, for timestamp extractors.
        clock_s: Measures ages.
        on_close: Called when the copy is closed.
    """

    def __init__(
        self,
        source: TopicSource,
        tables: GlobalTables,
        store: TaskStore,
        now_ms: Callable[[], int],
        clock_s: Clock = time.monotonic,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("the copy of the global tables", clock_s)
        self._source = source
        self._tables = tables
        self._store = store
        self._now_ms = now_ms
        self._on_close = on_close
        self._following = threading.Lock()
        self._version = 0
        self._ends: Mapping[TopicPartition, int] = {}

    def bring_forward(self) -> bool:
        """Reads what the topics have got since the last call, and says whether that was anything.

        Raises:
            RecordFailedError: A record cannot be read, and the policy is `fail`.
            KafkaClientError: Reading failed; another call continues.
        """
        with self._following:
            asked_s = self.clock_s()
            ends = self._source.end_offsets(partitions_of(self._source.describe_topics(self._tables.topics)))
            changed = not self.ready or ends != self._ends
            if changed:
                for place, end in ends.items():
                    start = max(self._tables.position(*place), self._source.begin_offset(place))
                    for columns in self._source.read(*place, min(start, end), end):
                        self._tables.update(columns, self._now_ms())
                self._ends = ends
                self._version += 1
                self._show(View(self._version, Position(ends), self._store.snapshot()))
            self.known_until(asked_s)
        return changed

    def close(self) -> None:
        """Closes the copy."""
        with self._following:
            self._end_reading()
            self._store.close()
            self._on_close()
