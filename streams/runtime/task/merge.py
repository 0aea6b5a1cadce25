"""The order of a step: rows of all partitions merged as in Kafka Streams, and rows with times too far ahead turned away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.numba_kernels import kernel
from streams.runtime.event_time import latest, too_far
from streams.runtime.rows import NOW, RowBatch
from streams.runtime.step_context import SourceRows, StepContext
from streams.topology.plan import SubTopology

# --- The order in which a task processes the rows of a step.
#
# Rule (Kafka Streams' `PartitionGroup`): each topic-partition in offset order; next comes the partition whose first
# remaining row has the smallest timestamp. Ties, unspecified there, are broken by topic, then partition, so that the same input
# always gives the same order. The kernel is a k-way merge over a binary heap; `merge_order_plain` is the reference.

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


def merge_order(parts: Int32s, offsets: Int64s, seqs: Int32s, timestamps: Int64s) -> Int64s:
    """Positions of the rows in processing order."""
    by_part = np.arange(len(parts), dtype=np.int64)
    if not _is_sorted(parts, offsets, seqs):
        by_part = np.lexsort((seqs, offsets, parts)).astype(np.int64, copy=False)
    sorted_parts = parts[by_part]
    bounds = np.flatnonzero(np.diff(sorted_parts)) + 1
    if not len(bounds):
        return by_part
    starts = np.concatenate(([0], bounds)).astype(np.int64)
    ends = np.concatenate((bounds, [len(parts)])).astype(np.int64)
    merged: Int64s = _merge(timestamps[by_part], starts, ends)
    return by_part[merged]


def merge_order_plain(
    parts: Sequence[int], offsets: Sequence[int], seqs: Sequence[int], timestamps: Sequence[int]
) -> list[int]:
    queues: dict[int, list[int]] = {}
    for row in sorted(range(len(parts)), key=lambda row: (parts[row], offsets[row], seqs[row]), reverse=True):
        queues.setdefault(parts[row], []).append(row)
    order = []
    while queues:
        part = min(queues, key=lambda part: (timestamps[queues[part][-1]], part))
        order.append(queues[part].pop())
        if not queues[part]:
            del queues[part]
    return order


@kernel
def _is_sorted(parts: Int32s, offsets: Int64s, seqs: Int32s) -> bool:  # pragma: no cover - compiled
    for i in range(1, len(parts)):
        if parts[i] != parts[i - 1]:
            if parts[i] < parts[i - 1]:
                return False
        elif offsets[i] < offsets[i - 1] or (offsets[i] == offsets[i - 1] and seqs[i] < seqs[i - 1]):
            return False
    return True


@kernel
def _sift_down(
    heap: Int64s, count: int, at: int, timestamps: Int64s, heads: Int64s
) -> None:  # pragma: no cover - compiled
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < count:
                a, b = timestamps[heads[heap[child]]], timestamps[heads[heap[best]]]
                if a < b or (a == b and heap[child] < heap[best]):
                    best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@kernel
def _merge(timestamps: Int64s, starts: Int64s, ends: Int64s) -> Int64s:  # pragma: no cover - compiled
    """K-way merge of runs [starts[p], ends[p]) by (head timestamp, p)."""
    count = len(starts)
    heads = starts.copy()
    heap = np.empty(count, np.int64)
    for i in range(count):
        heap[i] = i
    for i in range(count // 2 - 1, -1, -1):
        _sift_down(heap, count, i, timestamps, heads)
    order = np.empty(len(timestamps), np.int64)
    for n in range(len(timestamps)):
        part = heap[0]
        order[n] = heads[part]
        heads[part] += 1
        if heads[part] == ends[part]:
            count -= 1
            heap[0] = heap[count]
        _sift_down(heap, count, 0, timestamps, heads)
    return order


# --- From row batches to rows in order: sets the step's clock, turns away times too far ahead, merges partitions.


class TaskRows:
    """The rows of one batch as Python lists."""

    def __init__(self, batch: RowBatch) -> None:
        columns = {name: batch.rows.column(name) for name in batch.rows.schema.names}

        def cells(name: str) -> list[bytes | None] | None:
            return columns[name].to_pylist() if name in columns else None

        self.rows = SourceRows(
            batch.topic,
            batch.partition,
            columns["offset"].to_numpy().tolist(),
            columns["timestamp"].to_numpy().tolist(),
            cells("key") or [],
            cells("value") or [],
            cells("headers"),
            cells("source_key"),
            cells("source_value"),
        )


def admit(batch: RowBatch, sub: SubTopology, run: StepContext) -> RowBatch:
    """Set the step's clock where the reader could not, and turn away records too far in the future.

    The head has turned away such records of the source; results of head operators meet the same policy here.
    """
    rows = batch.rows
    timestamps = rows.column("timestamp").to_numpy()
    if len(timestamps) and timestamps.min() == NOW:
        timestamps = np.where(timestamps == NOW, run.now_ms, timestamps)
        at = rows.schema.get_field_index("timestamp")
        rows = rows.set_column(at, "timestamp", pa.array(timestamps))
    last = latest(run.settings, run.now_ms)
    if len(timestamps) and timestamps.max() > last:
        ahead = timestamps > last
        _turn_away(RowBatch(batch.topic, batch.partition, batch.entry, rows.filter(pa.array(ahead))), sub, run)
        rows = rows.filter(pa.array(~ahead))
    return RowBatch(batch.topic, batch.partition, batch.entry, rows)


def _turn_away(batch: RowBatch, sub: SubTopology, run: StepContext) -> None:
    entry = sub.entries[batch.entry]
    if entry.transport == "columns":
        rows = columns_as_raw(batch)
    else:
        rows = TaskRows(batch).rows
        rows.raw = entry.transport != "object"
    for row, timestamp in enumerate(rows.timestamps):
        error = too_far(timestamp, run.settings, run.now_ms)
        run.handlers.handle("future", entry.node, rows.origin(row), error)


def columns_as_raw(batch: RowBatch) -> SourceRows:
    """Rows of a columns entry as originally read, with the original key and value as far as they were sent along."""
    rows = batch.rows
    nothing = pa.nulls(rows.num_rows, pa.binary())
    names = rows.schema.names
    columns = {name: rows.column(name) for name in ("offset", "timestamp", "headers") if name in names}
    columns["key"] = rows.column("source_key" if "source_key" in names else "key").cast(pa.binary())
    columns["value"] = rows.column("source_value") if "source_value" in names else nothing
    return TaskRows(RowBatch(batch.topic, batch.partition, batch.entry, pa.RecordBatch.from_pydict(columns))).rows


def merged(batches: Sequence[RowBatch]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Merge order over the concatenated rows of the batches."""
    if not batches:
        return [], np.empty(0, np.int64)
    places = sorted({_place(batch) for batch in batches})
    ranks = {place: rank for rank, place in enumerate(places)}
    # Batches come in any order; sorted by partition and first offset, so that sorted rows need not be sorted again.
    sequence = sorted(range(len(batches)), key=lambda i: (ranks[_place(batches[i])], _first_offset(batches[i])))
    ordered = [batches[i] for i in sequence]
    counts = [batch.rows.num_rows for batch in ordered]
    parts = np.repeat(np.array([ranks[_place(batch)] for batch in ordered], np.int32), counts)
    order = merge_order(parts, _joined(ordered, "offset"), _joined(ordered, "seq"), _joined(ordered, "timestamp"))
    return sequence, order


def _place(batch: RowBatch) -> tuple[str, int]:
    return batch.topic, batch.partition


def _first_offset(batch: RowBatch) -> int:
    return int(batch.rows.column("offset")[0].as_py()) if batch.rows.num_rows else 0


def _joined(batches: Sequence[RowBatch], name: str) -> npt.NDArray[Any]:
    return np.concatenate([batch.rows.column(name).to_numpy() for batch in batches])
