"""Copies one task's changelog to a staging topic, each row to the partition of its record key."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.changelog.log_end import check_end
from state.commit.marker import CommitMarker
from state.kafka.columns import RecordColumns
from state.kafka.partitioner import partition_for_keys
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.spec import StoreKind, StoreSpec
from state.tables.binary_columns import numbers_at
from streams.application.rescale.log_copy import LogCopy, records_of
from streams.application.rescale.row_keys import RowKey
from streams.errors import RescaleError


class Listener(Protocol):
    """Is told of the progress of a copy."""

    def on_start(self, store: str, partition: int, offsets: int) -> None: ...
    def on_batch(self, store: str, partition: int, records: int, offset: int) -> None: ...
    def on_end(self, store: str, partition: int) -> None: ...


class NobodyListens:
    """A listener that does nothing."""

    def on_start(self, store: str, partition: int, offsets: int) -> None: ...
    def on_batch(self, store: str, partition: int, records: int, offset: int) -> None: ...
    def on_end(self, store: str, partition: int) -> None: ...


def stage_partition(
    copy: LogCopy,
    topic: str,
    spec: StoreSpec,
    key: RowKey,
    task_of: tuple[int, int],
    marker: CommitMarker | None,
    listener: Listener,
) -> None:
    """Copies the rows of a store of one task.

    Raises:
        RescaleError: A row is not in the task of its key.
        RestoreError: The changelog has lost records that the last commit promises.
    """
    task, tasks = task_of
    place = (topic, task)
    end = copy.kafka.end_offsets([place])[place]
    if marker is not None:
        # As for a restore, the state is what the last commit says, and nothing after it.
        promised = marker.changelog_ends.get(spec.name, end)
        check_end(spec.name, end, marker.version, promised)
        end = promised
    listener.on_start(spec.name, task, end)
    for columns in records_of(copy.kafka, topic, task, end):
        if marker is None:
            raise RescaleError(
                f"the changelog {topic}-{task} has records, but task {task} has no commit that says which step they belong to. "
                f"`streams run` refuses this, too, and says what to do"
            )
        alive = _alive(columns, spec, marker.expired_before.get(spec.name, 0))
        keys = key.of(alive.keys)
        _check_place(keys, alive, spec, task, tasks)
        copy.add(alive, partition_for_keys(keys, copy.partitions))
        listener.on_batch(spec.name, task, len(columns), int(columns.offsets[-1]))
    listener.on_end(spec.name, task)


def _alive(columns: RecordColumns, spec: StoreSpec, before_ms: int) -> RecordColumns:
    """The records of segments that have not expired: in another task, with an earlier stream time, they would come back."""
    if not spec.kind.segmented or before_ms <= 0:
        return columns
    width = spec.segment_width_ms
    times = numbers_at(columns.keys, -(SESSION_SUFFIX if spec.kind is StoreKind.SESSION else WINDOW_SUFFIX))
    alive = times // width >= before_ms // width
    if alive.all():
        return columns
    mask = pa.array(alive)
    return RecordColumns(
        columns.topic,
        columns.partition,
        columns.offsets[alive],
        columns.timestamps[alive],
        columns.keys.filter(mask),
        columns.values.filter(mask),
    )


def _check_place(keys: pa.BinaryArray, columns: RecordColumns, spec: StoreSpec, task: int, tasks: int) -> None:
    """Checks that each row is in the task of its key, which proves the rule for keys before anything is replaced."""
    found: npt.NDArray[np.int32] = partition_for_keys(keys, tasks)
    wrong = np.flatnonzero(found != task)
    if len(wrong):
        at = int(wrong[0])
        raise RescaleError(
            f"the store {spec.name!r} of task {task} has a row (offset {columns.offsets[at]}) for the record key "
            f"{keys[at].as_py()!r}, whose records come to task {found[at]}: its rows are not stored under the keys of their "
            f"records, so they cannot be moved. Nothing was replaced: `streams rescale --abort` removes the copies"
        )
