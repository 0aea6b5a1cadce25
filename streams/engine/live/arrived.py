"""The records that have arrived for a live task, as rows that the reader's part of its sub-topology has made of them.

Each record has its place in the order. It is read when it arrives, because only reading shows its event time and whether it is
rejected. A rejected record is gone, and does not advance any time. A record that stops the task does so when its turn comes, so the
records before it are processed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import RecordColumns
from state.kafka.partitioner import functions_of
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition
from streams.engine.graph.rows import DEAD_LETTER_ENTRY, NOW, RowBatch
from streams.engine.graph.settings import Counters
from streams.engine.reader.pipeline import ReaderPipeline
from streams.engine.reader.timestamps import DROPPED
from streams.engine.step.job import QueryJob
from streams.errors import KeyPlacementError, RecordFailedError
from streams.model.record import NO_TIME

Int64s = npt.NDArray[np.int64]

_OF_A_RECORD = 100
"""Bytes counted for a record in addition to its rows' columns: an upper bound for small records."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records that have arrived together.

    Attributes:
        first: The offset of the first one.
        end: The next offset after all of them, rejected ones included.
        offsets: The offsets of the records that have a place in the order, int64[n], rising.
        times: Their event times, ms; `NOW`: the step's clock.
        order: The times by which they are ordered: their event times, or in a retry topic the times when they were written.
        batches: Rows, in the order of their offsets, and dead letters.
        counters: Counts made while they were read.
        size: Their size, bytes.
    """

    first: int
    end: int
    offsets: Int64s
    times: Int64s
    order: Int64s
    batches: tuple[RowBatch, ...]
    counters: Mapping[str, int]
    size: int

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def newest_ms(self) -> int:
        """The largest event time; `NO_TIME` if there is none."""
        return max(NO_TIME, int(self.times.max(initial=NO_TIME)))

    def joined(self, behind: Arrived) -> Arrived:
        """These records and later ones as one."""
        offsets, times, order = (
            np.concatenate(both)
            for both in ((self.offsets, behind.offsets), (self.times, behind.times), (self.order, behind.order))
        )
        counters = Counters(self.counters)
        counters.add_all(behind.counters)
        batches, size = self.batches + behind.batches, self.size + behind.size
        return Arrived(self.first, behind.end, offsets, times, order, batches, counters, size)

    def cut(self, count: int) -> tuple[Arrived, Arrived]:
        """Splits off the first `count` >= 1 records; at least one must remain.

        The counters stay with the others, which come second.
        """
        at = int(self.offsets[count])
        halves = [_cut(batch, at) for batch in self.batches]
        size = self.size * count // len(self)
        before, behind = (tuple(half for half in side if half.rows.num_rows) for side in zip(*halves, strict=True))
        return (
            Arrived(
                self.first, at, self.offsets[:count], self.times[:count], self.order[:count], before, {}, size
            ),
            replace(
                self, first=at, offsets=self.offsets[count:], times=self.times[count:], order=self.order[count:],
                batches=behind, size=self.size - size,
            ),
        )  # fmt: skip

    def placed(self, order: Int64s) -> Arrived:
        """The same records, where rows also have their places in the order. Rows need them if some of the records have no rows.

        Args:
            order: The place of each record.
        """
        count = len(self)
        for batch in self.batches:
            if batch.entry != DEAD_LETTER_ENTRY and batch.rows.num_rows == count:
                return self  # the rows' timestamps give the same order
        if (order == self.order).all():
            return self
        return replace(self, batches=tuple(map(partial(_placed, offsets=self.offsets, order=order), self.batches)))


def _placed(batch: RowBatch, offsets: Int64s, order: Int64s) -> RowBatch:
    if batch.entry == DEAD_LETTER_ENTRY:
        return batch
    return replace(batch, order=order[np.searchsorted(offsets, batch.rows.column("offset").to_numpy())])


def _cut(batch: RowBatch, offset: int) -> tuple[RowBatch, RowBatch]:
    at = int(np.searchsorted(batch.rows.column("offset").to_numpy(), offset))
    return replace(batch, rows=batch.rows.slice(0, at)), replace(batch, rows=batch.rows.slice(at))


class Arrivals:
    """Reads what arrives for one task; a `LiveTask` closes it at the end of its `with` block.

    Args:
        times: The partition time at the first position of each partition that has a timestamp extractor which uses it.
    """

    def __init__(self, job: QueryJob, task: int, times: Mapping[TopicPartition, int]) -> None:
        self._job = job
        self._task = task
        self._pipeline = ReaderPipeline(job.sub, job.tasks, job.settings, self._note_times)
        self._pipeline.partition_times.update(times)
        self._noted: list[tuple[Int64s, Int64s, Int64s]] = []

    def close(self) -> None:
        self._pipeline.close()

    def begin_step(self) -> None:
        """Makes the first error of each kind in the next step be logged again."""
        self._pipeline.begin_step()

    def read(self, columns: RecordColumns, now_ms: int) -> tuple[Arrived | None, RecordFailedError | None]:
        """Makes rows of the records. If one of the records stops the task, returns the rows before it, and its error.

        Raises:
            KeyPlacementError: A record is not in the partition that its key belongs to.
            RecordFailedError: A record failed, and it is not known which one.
        """
        self._pipeline.now_ms = now_ms
        counted, times = Counters(self._pipeline.counters), dict(self._pipeline.partition_times)
        try:
            return self._arrived(columns, counted), None
        except RecordFailedError as error:
            at = None if error.offset is None else int(np.searchsorted(columns.offsets, error.offset))
            if at is None or at == len(columns) or columns.offsets[at] != error.offset:
                raise
            self._pipeline.rewind(counted, times)
            if not at:
                return None, error
            # If several records fail, only the first one counts.
            before, earlier = self.read(columns.part(0, at), now_ms)
            return before, earlier or error

    def _arrived(self, columns: RecordColumns, counted: Counters) -> Arrived:
        self._noted = []
        batches = []
        for task, rows in self._pipeline.run(columns):
            if task != self._task and rows.entry in self._job.sub.placed_entries:
                placement, offset = self._job.settings.placement, rows.rows["offset"][0].as_py()
                raise KeyPlacementError(
                    self._job.settings.application_id, self._job.sub.name, columns.topic, columns.partition,
                    offset=offset, key=columns.keys[int(np.searchsorted(columns.offsets, offset))].as_py(),
                    task=task, placement=placement.value,
                    why=why_elsewhere(columns, rows.rows, self._job.tasks, placement),
                )  # fmt: skip
            batches.append(rows)
        self._pipeline.touched.clear()
        noted = self._noted
        offsets, times, written = (
            noted[0] if len(noted) == 1 else (np.concatenate(parts) for parts in zip(*noted, strict=True))
        )
        return Arrived(
            first=int(columns.offsets[0]),
            end=int(columns.offsets[-1]) + 1,
            offsets=offsets,
            times=times,
            order=written if columns.topic in self._job.source.delays else times,
            batches=tuple(batches),
            counters=self._pipeline.counters.since(counted),
            size=sum(batch.rows.nbytes for batch in batches) + _OF_A_RECORD * len(offsets),
        )

    def _note_times(self, columns: RecordColumns, times: Int64s) -> None:
        """Keeps the times of the records that were not rejected. It is called once for each part in which the records are read."""
        kept = times != DROPPED
        part = (columns.offsets, times, columns.timestamps)
        offsets, times, written = part if kept.all() else tuple(one[kept] for one in part)
        self._noted.append((offsets, times, written))


def why_elsewhere(columns: RecordColumns, rows: pa.RecordBatch, partitions: int, placement: Placement) -> str:
    """Explains why records are not in the partition of their task, as far as their keys show.

    Args:
        columns: The records as they are in the topic.
        rows: The rows that some of the records gave for another task.
        partitions: The number of the topic's partitions.
        placement: The placement that the sub-topology uses.
    """
    written = columns.keys.take(pa.array(np.searchsorted(columns.offsets, rows["offset"].to_numpy())))
    if written[0].as_py() != rows["key"][0].as_py():
        return (
            f"its producer writes the key in another notation, {written[0].as_py()!r}, than the key's serde does, "
            f"{rows['key'][0].as_py()!r}, and the producer's bytes have put it here"
        )
    functions = functions_of(written, columns.partition, partitions)
    if functions:
        return (
            f"{functions[0].value} would put it here ({functions[0].used_by}; {placement.value} is {placement.used_by}). If that "
            f"is what its producers use, `streams rescale` with --placement {functions[0].value} moves the state there"
        )
    return "its producer chooses partitions in its own way, or the topic had another number of partitions"


def resolved(order: Int64s, now_ms: int) -> Int64s:
    """The times, with the step's time in place of `NOW`."""
    return np.where(order == NOW, now_ms, order) if len(order) and order.min() == NOW else order
