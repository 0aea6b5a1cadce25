"""Rows from the readers to the tasks of a micro-batch, and a task's input made from them.

A row carries records for one task (`payload`), or facts about the range that it was read from. Every row names its
range, so that a task can distinguish a repeated micro-batch from a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from streams.runtime.counters import Counters
from streams.runtime.rows import RowBatch, decode


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One row.

    Attributes:
        task: The target task.
        batch: Digest of the micro-batch.
        topic: Source topic; empty: the row only calls the task.
        partition: Source partition.
        first: Start of the range that was read.
        last: End of the range, exclusive.
        topic_id: Kafka's id of the topic.
        counters: The reader's counts, as JSON.
        partition_time: Largest timestamp of the partition at the end of the range, as text, ms.
        global_topics: Offsets up to which the topics of global tables are read, as JSON.
        payload: Records, one `streams.runtime.rows.RowBatch`.
        backlog: Records are left for a later micro-batch.
        routing: Number of records in the range, a blank, and the digest of the keys that functions before the shuffle made for the
            records of this task.
        event_time: Largest event time of the records in the range, as text, ms; for figures.
    """

    task: int
    batch: str
    topic: str = ""
    partition: int = 0
    first: int = 0
    last: int = 0
    topic_id: str | None = None
    counters: str | None = None
    partition_time: str | None = None
    global_topics: str | None = None
    payload: bytes | None = None
    backlog: bool = False
    routing: str | None = None
    event_time: str | None = None


class Row(Protocol):
    """A `TaskRow` as received by a task: without the task, with fields by name (as in a row of a pandas frame)."""

    @property
    def batch(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def counters(self) -> str | None: ...
    @property
    def partition_time(self) -> str | None: ...
    @property
    def global_topics(self) -> str | None: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def backlog(self) -> bool: ...
    @property
    def routing(self) -> str | None: ...
    @property
    def event_time(self) -> str | None: ...


@dataclass
class TaskInput:
    """The input of one task in one micro-batch, from its rows.

    Attributes:
        batch: Digest of the micro-batch.
        ranges: Topic -> partition (as text) -> [first, last) of the ranges that have rows for the task.
        topic_ids: Topic -> Kafka's id.
        counters: Counts of the readers, for the task that reports their partitions.
        partition_times: (topic, partition) -> (end of its range, partition time there).
        global_topics: Offsets up to which the topics of global tables are read.
        batches: The records.
        backlog: Records are left for a later micro-batch.
        routing: The function-made keys by which records came to this task (`state.commit.marker.Routing`).
        event_times: (topic, partition) -> largest event time of the records in its range, ms.
    """

    batch: str = ""
    ranges: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    partition_times: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    global_topics: dict[str, Any] = field(default_factory=dict)
    batches: list[RowBatch] = field(default_factory=list)
    backlog: bool = False
    routing: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    event_times: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> TaskInput:
        found = cls()
        for row in rows:
            found.batch = row.batch
            found.backlog |= bool(row.backlog)
            if row.global_topics is not None and not found.global_topics:
                found.global_topics = orjson.loads(row.global_topics)
            if row.topic:
                found._add(row)
        return found

    def _add(self, row: Row) -> None:
        place = row.topic, int(row.partition)
        if row.topic_id is not None:
            self.topic_ids[row.topic] = row.topic_id
        self.ranges.setdefault(row.topic, {})[str(row.partition)] = (int(row.first), int(row.last))
        if row.payload is not None:
            self.batches.append(decode(row.payload))
        for name, count in orjson.loads(row.counters or "{}").items():
            self.counters.add(name, count)
        if row.partition_time is not None:
            self.partition_times[place] = (int(row.last), int(row.partition_time))
        if row.event_time is not None:
            self.event_times[place] = int(row.event_time)
        if row.routing is not None:
            records, _, digest = row.routing.partition(" ")
            self.routing.setdefault(row.topic, {})[str(row.partition)] = (int(records), digest)
