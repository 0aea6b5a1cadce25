"""From a logged micro-batch to rows: partitions for the readers, rows for the tasks, and the input of a task's step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import orjson

from state.columns import RecordColumns
from state.commit.marker import NO_KEYS
from state.kafka.reader import shared_reader
from streams.engine.graph.rows import RowBatch, decode, encode
from streams.engine.graph.settings import Counters
from streams.engine.reader.pipeline import ReaderPipeline
from streams.engine.source.offsets import OffsetRange, SourceOffsets, batch_digest, topics_to_json
from streams.engine.step.job import QueryJob
from streams.errors import RangeTooLargeError

if TYPE_CHECKING:
    from streams.engine.source.planner import BatchPlanner


# --- Splits a logged micro-batch into partitions for readers: one for each offset range, and one that calls every task.
#
# Every task must be called, with or without records, at a tick, and in a micro-batch that an earlier run may have logged: a task
# that committed it then and is not called again would find, in its next step, a marker unknown to Spark.


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """One offset range to read.

    Attributes:
        time: The partition time so far, ms; None if no timestamp extractor needs it.
        global_topics: Offsets up to which the topics of global tables are read, as JSON; None if there are none.
        now_ms: When the micro-batch was planned, as logged; None: logged by a version without that time.
        repeated: Whether an earlier run may have logged the micro-batch, and committed some of its tasks.
    """

    batch: str
    topic_id: str
    offsets: OffsetRange
    time: int | None = None
    global_topics: str | None = None
    backlog: bool = False
    now_ms: int | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of every task, without records. The fields are as in `PlannedRange`."""

    batch: str
    global_topics: str | None = None
    backlog: bool = False


PlannedPartition: TypeAlias = PlannedRange | PlannedCall


SMALL_RECORDS = 20_000
"""Ranges with up to this many offsets in total are read one after the other, which costs less than another Spark task."""
MOST_TOGETHER = 8
"""The most ranges that are read one after the other, because each may have to wait for its broker."""
MOST_UNEVEN = 1.1
"""How much more than its share a reader of several large ranges may get. Above that, each free reader takes the next range."""


def together(planned: Sequence[PlannedPartition], readers: int | None = None) -> list[tuple[PlannedPartition, ...]]:
    """Groups partitions so that each group is worth a reader of its own. A large range is a group by itself."""
    groups: list[tuple[PlannedPartition, ...]] = []
    records = 0
    for one in planned:
        size = _records(one)
        if groups and records + size <= SMALL_RECORDS and len(groups[-1]) < MOST_TOGETHER:
            groups[-1] = (*groups[-1], one)
            records += size
        else:
            groups.append((one,))
            records = size
    if readers is None or len(groups) <= readers:
        return groups
    hands = [tuple(chain.from_iterable(groups[hand::readers])) for hand in range(readers)]
    sizes = [sum(map(_records, hand)) for hand in hands]
    return hands if max(sizes) * readers <= sum(sizes) * MOST_UNEVEN else groups


def _records(one: PlannedPartition) -> int:
    return one.offsets.end - one.offsets.start if isinstance(one, PlannedRange) else 0


class BatchPartitioner:
    """Splits the micro-batches of one run of a query."""

    def __init__(self, planner: BatchPlanner) -> None:
        self._planner = planner
        self._first_batch: str | None = None

    def partitions(self, start: SourceOffsets, end: SourceOffsets) -> list[PlannedPartition]:
        """The partitions of the micro-batch [start, end).

        Raises:
            KafkaClientError: A topic was deleted or recreated, or has lost records that are needed.
        """
        digest = batch_digest(start, end)
        # Only the first micro-batch of a run can be one that an earlier run has logged.
        self._first_batch = self._first_batch or digest
        repeated = digest == self._first_batch and self._planner.is_repeat(end)
        ranges = self._planner.ranges(start, end)
        times = self._planner.times_before(ranges)
        ends = json.dumps(topics_to_json(end.global_topics)) if end.global_topics else None
        backlog = self._planner.leaves_backlog(end)
        partitions: list[PlannedPartition] = [
            PlannedRange(
                digest,
                end.topics[offsets.topic].topic_id,
                offsets,
                times[offsets.topic, offsets.partition] if times else None,
                ends,
                backlog,
                end.now_ms,
                repeated,
            )
            for offsets in ranges
        ]
        if end.tick != start.tick or repeated:
            partitions.append(PlannedCall(digest, ends, backlog))
        return partitions


# --- Rows from the readers to the tasks of a micro-batch, and a task's input made from them.
#
# A row carries records for one task (`payload`), or facts about the range that it was read from. Every row names its
# range, so that a task can distinguish a repeated micro-batch from a new one.


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row for one task.

    Attributes:
        topic: Source topic; empty: the row only calls the task.
        partition_time: Largest timestamp of the partition at the end of the range, as text, ms.
        global_topics: Offsets up to which the topics of global tables are read, as JSON.
        payload: Records, one `streams.engine.graph.rows.RowBatch`.
        routing: Number of records in the range, a blank, and a digest of the keys that functions before the shuffle made for the
            records of this task.
        event_time: Largest event time of the records in the range, as text, ms; for metrics.
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
    """A `TaskRow` as a task receives it: without the task, and with fields by name (as in a row of a pandas frame)."""

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
class StepRows:
    """The input of one task in one micro-batch, made from its rows.

    Attributes:
        ranges: Topic -> partition (as text) -> [first, last) of the ranges that have rows for the task.
        topic_ids: Topic -> Kafka's id.
        counters: Counts of the readers whose partitions this task reports.
        partition_times: (topic, partition) -> (end of its range, partition time there).
        global_topics: Offsets up to which the topics of global tables are read.
        routing: Digests of the function-made keys that sent records to this task (`state.commit.marker.Routing`).
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
    def of(cls, rows: Iterable[Row]) -> StepRows:
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
        self.counters.add_all(orjson.loads(row.counters or "{}"))
        if row.partition_time is not None:
            self.partition_times[place] = (int(row.last), int(row.partition_time))
        if row.event_time is not None:
            self.event_times[place] = int(row.event_time)
        if row.routing is not None:
            records, _, digest = row.routing.partition(" ")
            self.routing.setdefault(row.topic, {})[str(row.partition)] = (int(records), digest)


# --- Reads a planned partition: records through the head of the sub-topology, as rows for the tasks.


def read_range(job: QueryJob, planned: PlannedRange, pieces: Iterable[RecordColumns]) -> Iterator[TaskRow]:
    """Yields the rows for one range.

    The last row has no payload. It carries the head's counters and event time (and the partition time, if an extractor needs it) to
    the task that reports this partition's progress, which therefore runs even without records. Rows without payload also go to
    tasks that must be called because an earlier attempt may have had rows for them (`ReaderPipeline.touched`).
    """
    offsets = planned.offsets
    head = ReaderPipeline(job.sub, job.tasks, job.settings)
    if planned.now_ms is not None:
        head.now_ms = planned.now_ms
    place = (offsets.topic, offsets.partition)
    if planned.time is not None:
        head.partition_times[place] = planned.time

    row = partial(
        TaskRow,
        batch=planned.batch,
        topic=offsets.topic,
        partition=offsets.partition,
        first=offsets.start,
        last=offsets.end,
        topic_id=planned.topic_id,
        global_topics=planned.global_topics,
        backlog=planned.backlog,
    )
    records = 0
    for columns in pieces:
        records += len(columns)
        for task, rows in head.run(columns):
            yield row(task, payload=encode(rows))
    for task in sorted(head.touched):
        yield row(task)
    routings = head.routings()
    for task in range(job.tasks) if planned.repeated and job.sub.keyed_by else routings:
        yield row(task, routing=f"{records} {routings.get(task, NO_KEYS)}")
    counters = orjson.dumps(head.counters).decode()
    time = None if planned.time is None else str(head.partition_times.get(place, planned.time))
    newest = head.event_time(*place)
    event_time = None if newest is None else str(newest)
    yield row(job.owner(offsets.partition), counters=counters, partition_time=time, event_time=event_time)


def call_every_task(job: QueryJob, call: PlannedCall) -> Iterator[TaskRow]:
    """Yields rows that cause every task to be called. They have no topic."""
    for task in range(job.tasks):
        yield TaskRow(task, call.batch, global_topics=call.global_topics, backlog=call.backlog)


# --- The check of a range's real size, because micro-batches are planned by the sizes of only a few records

FAR_ABOVE = 4
"""A range may have this many times the planned size of a whole micro-batch."""
NEVER_TOO_LARGE = 256 * 1024 * 1024
"""Bytes that every worker can hold, even if micro-batches are planned to be small."""


def bounded(pieces: Iterable[RecordColumns], offsets: OffsetRange, max_bytes: int) -> Iterator[RecordColumns]:
    """Yields the pieces of a range, unchanged, as long as their total is not far larger than a micro-batch may be.

    Tasks hold their share of a micro-batch in memory, and a worker that is killed for lack of memory gives no reason. An error here
    explains the problem before that.

    Raises:
        RangeTooLargeError: The range is too large; a single record never is.
    """
    allowed = max(FAR_ABOVE * max_bytes, NEVER_TOO_LARGE)
    records = size = 0
    for columns in pieces:
        records += len(columns)
        size += columns.keys.nbytes + columns.values.nbytes
        if size > allowed and records > 1:
            raise _too_large(offsets, max_bytes, records, size)
        yield columns


def _too_large(offsets: OffsetRange, max_bytes: int, records: int, size: int) -> RangeTooLargeError:
    fitting = max(1, max_bytes * records // size)
    needed = size * (offsets.end - offsets.start) // records
    return RangeTooLargeError(
        f"{offsets.topic}-{offsets.partition}: the first {records:,} records of offsets [{offsets.start}, {offsets.end}) have "
        f"{size:,} bytes of keys and values, but the whole micro-batch was planned for max_bytes_per_trigger = {max_bytes:,}: "
        f"they are far larger than the sampled ones. Nothing of this attempt is committed. Start again with "
        f"max_records_per_trigger = {fitting} or less: as long as no task has committed this micro-batch, it is planned again in "
        f"pieces of that size. Or let the workers take it as it is, with max_bytes_per_trigger = {needed} and as much memory"
    )


# --- The records of a planned range, as a Spark worker reads them from Kafka.


def range_records(
    client: Mapping[str, str],
    offsets: OffsetRange,
    chunk_records: int,
    *,
    max_bytes: int | None,
    bulk: bool,
    prefetch_bytes: int,
) -> Iterator[RecordColumns]:
    """Reads the records of a range in pieces. The process keeps the reader for the next range of the partition.

    Raises:
        RangeTooLargeError: The range is far larger than the micro-batch was planned.
    """
    reader = shared_reader(
        client, offsets.topic, offsets.partition, offsets.start, bulk=bulk, prefetch_bytes=prefetch_bytes
    )
    pieces = reader.read(offsets.end, chunk_records)
    return pieces if max_bytes is None else bounded(pieces, offsets, max_bytes)
