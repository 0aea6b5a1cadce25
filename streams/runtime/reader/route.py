"""The routing of rows to tasks by Kafka's own partitioner, so that with tasks = partitions the layout is that of a JVM app."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.partitioner import partition_for_keys


def tasks_of(keys: pa.BinaryArray, partition: int, tasks: int) -> npt.NDArray[np.int32]:
    """The task of each row: murmur2(key) mod tasks; for a null key, its source partition mod tasks."""
    if tasks == 1:
        return np.zeros(len(keys), np.int32)
    found: npt.NDArray[np.int32] = partition_for_keys(keys, tasks)
    return np.where(found < 0, np.int32(partition % tasks), found)


def split_by_task(rows: pa.RecordBatch, tasks_of_rows: npt.NDArray[np.int32]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows into one batch per task, preserving their order."""
    if not len(tasks_of_rows):
        return
    if (tasks_of_rows == tasks_of_rows[0]).all():
        yield int(tasks_of_rows[0]), rows
        return
    # 16-bit keys make numpy use a radix sort.
    narrow = tasks_of_rows.astype(np.int16) if tasks_of_rows.max() < 2**15 else tasks_of_rows
    order = np.argsort(narrow, kind="stable")
    ordered = tasks_of_rows[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))
    ends = np.append(starts[1:], len(ordered))
    taken = rows.take(pa.array(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[start]), taken.slice(start, end - start)
