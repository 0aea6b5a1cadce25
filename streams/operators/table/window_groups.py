"""Grouped tables whose groups are windows (`KTable.group_by_window`): a group is deleted when its window has closed.

An update is too late, and dropped, if its window's end plus grace is not after stream time, as in an aggregation in windows. With a
grace of 5, updates of the window `[0, 10)` are late once stream time is 15. The rows of a closed window never change again, and
are deleted, without an update for operators below. Stream time is the largest timestamp of the updates. The open windows are in an
index, by their ends.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from streams.model.record import Record, Windowed
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.columnar import NULL_KEY, ColumnarBatch
from streams.operators.operator import OperatorContext, drop_rows
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stream_time import StreamTime
from streams.operators.table.table_aggregate import TableAggregate, TableTop
from streams.operators.table.table_materializer import TableOperator


class _GroupsOfWindows(TableOperator):
    """The part before the operator of a grouped table.

    Attributes:
        open_name: Name of a key-value store of bytes for the index of open windows.
        grace_ms: How long after its end a window accepts updates, ms.
        keep_ms: How long after the window's end its rows are stored, ms; at least the grace.
    """

    open_name: str
    grace_ms: int
    keep_ms: int

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "the groups are kept"
        self._of_groups: TypedTimestampedKeyValueStore = ctx.store(self.store_name)
        self._time = StreamTime(ctx.state)
        self._open = OpenWindows(ctx, self.open_name)
        self._entered = set[bytes]()

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, which may close windows."""
        self._time.advance(elapsed_ms, limit)
        return super().advance(elapsed_ms, limit)

    def flush(self) -> None:
        """Forward pending updates, then delete the windows that have closed."""
        super().flush()
        now, codec = self._time.now, self._of_groups.codec
        for data, _, _ in self._open.close(now - self.keep_ms, now):
            self._forget(codec.read_key(data), now)
        self._entered.clear()

    def close(self) -> None:
        self._open.release()
        super().close()

    def _is_new(self, key: Windowed[Any]) -> bool:
        """Whether the window of a group may be missing in the index: it has no row, and no row was added in this step."""
        return self._of_groups.codec.key(key) not in self._entered and self._of_groups.get(key) is None

    def _enter(self, key: Windowed[Any], timestamp: int) -> None:
        """Adds the window of a group to the index."""
        data = self._of_groups.codec.key(key)
        self._entered.add(data)
        self._open.add(data, key.window.start, key.window.end, timestamp)

    @abstractmethod
    def _forget(self, key: Windowed[Any], timestamp: int) -> None:
        """Deletes all rows of a group."""


class WindowGroupAggregate(_GroupsOfWindows, TableAggregate):
    """`TableAggregate` of groups that are windows."""

    def __init__(self, store: str, open_store: str, grace_ms: int, keep_ms: int, *others: Any) -> None:
        super().__init__(store, *others)
        self.open_name, self.grace_ms, self.keep_ms = open_store, grace_ms, keep_ms

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Drops the late updates and aggregates the others. A call that raises has not had any effect."""
        keys, keyed = batch.keys, batch.keys.codes != NULL_KEY
        # The code of a null key, -1, is the index of the last end.
        ends = np.array([*(key.window.end for key in keys.objects), 0], np.int64)[keys.codes]
        times = np.maximum.accumulate(np.where(keyed, np.maximum(batch.timestamps, self._time.now), self._time.now))
        late = keyed & (ends + self.grace_ms <= times)
        timely = batch.take(np.flatnonzero(~late)) if late.any() else batch
        if len(timely):
            codes, firsts = np.unique(timely.keys.codes, return_index=True)
            new = [(code, at) for code, at in zip(codes.tolist(), firsts.tolist(), strict=True) if code != NULL_KEY]
            groups = [(keys.objects[code], int(timely.timestamps[at])) for code, at in new]
            unknown = [group for group in groups if self._is_new(group[0])]
            super().process_batch(timely)
            for key, timestamp in unknown:
                self._enter(key, timestamp)
        self._observe(batch)
        drop_rows(self.ctx, batch, {"late": late})

    def skip(self, batch: ColumnarBatch) -> None:
        super().skip(batch)
        self._observe(batch)

    def _observe(self, batch: ColumnarBatch) -> None:
        keyed = batch.timestamps[batch.keys.codes != NULL_KEY]
        if len(keyed):
            self._time.observe(int(keyed.max()))

    def _forget(self, key: Windowed[Any], timestamp: int) -> None:
        self._of_groups.put(key, None, timestamp)


class WindowGroupTop(_GroupsOfWindows, TableTop):
    """`TableTop` of groups that are windows."""

    # Whether a window is new is read from the store for each record.
    lists_together = False

    def __init__(self, store: str, rows: str, open_store: str, grace_ms: int, keep_ms: int, *others: Any) -> None:
        super().__init__(store, rows, *others)
        self.open_name, self.grace_ms, self.keep_ms = open_store, grace_ms, keep_ms

    def process(self, record: Record) -> None:
        if record.key is not None:
            if record.key.window.end + self.grace_ms <= self._time.observe(record.timestamp):
                self.ctx.drop(record, "late")
                return
            if self._is_new(record.key):
                self._enter(record.key, record.timestamp)
        super().process(record)

    def _forget(self, key: Windowed[Any], timestamp: int) -> None:
        for row in self.rows_of(key):
            self._rows.put(row, None, timestamp)
        self._of_groups.put(key, None, timestamp)
