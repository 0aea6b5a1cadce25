"""Windowed aggregation that emits each window once, when the window closes (KIP-825, `KStreamWindowAggregate`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streams.model.record import Headers, Record
from streams.operators.aggregate.open_windows import ClosedWindow, Closing
from streams.operators.aggregate.window_aggregate import WindowAggregate
from streams.operators.aggregate.window_pairs import WindowPairs
from streams.operators.columnar import NULL_KEY, ColumnarBatch, OneByOne
from streams.operators.operator_context import OperatorContext
from streams.operators.pending import write_together
from streams.operators.result_columns import Changes, WindowedKeys
from streams.operators.stores.cached_row import CachedRow


class WindowAggregateOnClose(WindowAggregate):
    """Aggregates per key and window, and emits a window's result when the window's end + grace <= stream time.

    Records are assigned to windows as in `WindowAggregate`. Results are ordered by window start (end, where lengths differ),
    then by the bytes of the key. Each has the largest timestamp of its records and the headers of the record that closed it.
    Kafka Streams loses results when time jumps, because its store expires a window before the window is emitted; here a
    window stays until it was emitted.

    With caching, a window is written to the store once, at the end of the step; results are the same.
    """

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._unwritten: dict[tuple[bytes, int], CachedRow] = {}

    def process(self, record: Record) -> None:
        """Add one record to each of its open windows, then emit the windows that the record closes."""
        super().process(record)
        if record.key is not None:
            self._emit_closed(record.timestamp, record.headers)

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        assert self._open is not None, "results come on close"
        is_new = row.value is None
        row.value, row.timestamp = value, timestamp
        if is_new:
            self._open.add(row.key, row.start, self.windows.end_of(row.start), record.timestamp)
        if self.caching:
            self._unwritten[(row.key, row.start)] = row
        else:
            self.store.write(row)

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        """The records of a batch with each of their open windows; in compat mode, windows are closed by the wall clock, too."""
        if self.ctx.mode == "compat":
            raise OneByOne
        return super().pairs(batch)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Drop late records and those without a key, and move stream time."""
        self._before = self._time.now
        super().begin(batch, pairs)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        """Write the window at the end of the step."""
        self._unwritten[(row.key, row.start)] = row

    def end(self, batch: ColumnarBatch, opened: Sequence[tuple[int, CachedRow]], failed: Collection[int]) -> None:
        """Emit the windows that the records have closed. A window that is closed gets no more records, so this can be done last."""
        assert self._open is not None, "results come on close"
        rows = np.flatnonzero(batch.keys.codes != NULL_KEY)
        ends = np.maximum.accumulate(np.maximum(batch.timestamps[rows], self._before)) - self._close_delay_ms
        done = ~np.isin(rows, list(failed))
        closing = Closing(rows[done], ends[done])
        closed = self._open.close_in_turn(opened, self.windows.end_of, batch, closing)
        found = zip(closed, self.store.entries([(one.key, one.start) for one in closed]), strict=True)
        results = [(one, row) for one, row in found if row.value is not None]
        if results:
            self.ctx.forward_batch(self._results(batch, *zip(*results, strict=True)))

    def _results(
        self, batch: ColumnarBatch, closed: Sequence[ClosedWindow], rows: Sequence[CachedRow]
    ) -> ColumnarBatch:
        """The results of windows, with the headers of the records that have closed them."""
        codec = self.store.codec
        inner = codec.key_column([codec.read_key(one.key) for one in closed], [one.key for one in closed])
        starts, ends = (
            np.array(bounds, np.int64) for bounds in zip(*((one.start, one.end) for one in closed), strict=True)
        )
        return replace(
            batch.take(np.array([one.row for one in closed])),
            keys=WindowedKeys(inner, starts, ends),
            values=Changes(self.functions.viewed_column([row.value for row in rows]), None),
            timestamps=np.array([row.timestamp for row in rows], np.int64),
        )

    def _flush_pending(self) -> None:
        if self.emits_together and write_together(self.store, list(self._unwritten.values())):
            self._unwritten.clear()
        for row in self._unwritten.values():
            self.store.write(row)
        self._unwritten.clear()
