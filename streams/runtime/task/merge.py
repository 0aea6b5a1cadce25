"""The order in which a task processes the rows of a step.

Rule (Kafka Streams' `PartitionGroup`): each topic-partition in offset order; next comes the partition whose first
remaining row has the smallest timestamp. Ties, unspecified there, are broken by topic, then partition, so that the same input
always gives the same order. The kernel is a k-way merge over a binary heap; `merge_order_plain` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


def merge_order(parts: Int32s, offsets: Int64s, seqs: Int32s, timestamps: Int64s) -> Int64s:
    """Positions of the rows in processing order.

    Args:
        parts: For each row the rank of its (topic, partition) among those of the step, sorted by topic, partition.
        offsets: Offsets.
        seqs: Position among the rows made from the same record.
        timestamps: Milliseconds.

    Returns:
        A permutation of 0..n-1; all arrays have length n.
    """
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
    """The same as `merge_order`, in plain Python, straight from the rule."""
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
