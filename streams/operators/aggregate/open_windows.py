"""The index of open windows in order of their ends. Emission on close reads it instead of the windows themselves.

A window store is ordered by key, so finding closed windows there would mean reading the whole store for each record. This
index is ordered by end, start and key bytes, the order in which Kafka Streams emits (`RocksDBTimeOrderedWindowStore`). Its
first end is cached, so that a record that closes nothing costs one comparison. Invariant: a window is in the index exactly
until it is emitted, even across restarts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from state.columns import BinaryColumn, joined, packed, rows_where
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.operator import OperatorContext
from streams.operators.stores.time_ordered_buffer import ExpiryIndex
from streams.operators.stream_time import NO_LIMIT

_BOUNDS: Final = struct.Struct(">qq")
PRESENT: Final = b"1"  # not empty: some tools treat an empty value as missing
NEXT_EMIT: Final = "next_emit"


def open_row(key: bytes, start: int, end: int) -> bytes:
    """The row of a window in the index."""
    return _BOUNDS.pack(end, start) + key


class Closing(NamedTuple):
    """The records of a batch that may close windows.

    Attributes:
        rows: int64[n], their rows, ascending.
        ends: int64[n], the largest end of the windows that each record closes, ms; it never decreases.
    """

    rows: Int64s
    ends: Int64s


class ClosedWindow(NamedTuple):
    """A window that the record in a row of a batch closes: key bytes, start and end, ms."""

    row: int
    key: bytes
    start: int
    end: int


NO_ROW: Final = np.iinfo(np.int64).max
"""A number after every row of a batch."""


class StepWindows(NamedTuple):
    """The windows that the records of a batch have met, by number.

    Attributes:
        keys: The bytes of each window's key.
        starts: int64[N], ms.
        ends: int64[N], ms.
        begun: int64[N], the row that has made the window; -1 for a window that existed before.
        gone: int64[N], the row that has merged the window into another one; `NO_ROW`: none.
    """

    keys: BinaryColumn
    starts: Int64s
    ends: Int64s
    begun: Int64s
    gone: Int64s


class OpenWindows:
    """The index of one operator, for one step.

    Args:
        ctx: The operator's context.
        store: Name of a key-value store of bytes.
    """

    def __init__(self, ctx: OperatorContext, store: str) -> None:
        self._ctx = ctx
        self._rows = ExpiryIndex(ctx.store(store))

    @property
    def first_end(self) -> int | None:
        """The smallest end of all open windows, or a lower bound; None if no window is open."""
        row = self._rows.first
        return None if row is None else int(_BOUNDS.unpack_from(row)[0])

    @property
    def first_start(self) -> int:
        """The start of the window that closes first, ms; no later result is earlier. `NO_LIMIT` if no window is open."""
        row = self._rows.first
        return NO_LIMIT if row is None else int(_BOUNDS.unpack_from(row)[1])

    def add(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """Adds a window."""
        self._rows.put(open_row(key, start, end), PRESENT, timestamp)

    def remove(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """Removes a window that was deleted without being closed (a session that was merged)."""
        self._rows.remove(open_row(key, start, end), timestamp)

    def close(self, last_end: int, timestamp: int) -> Iterator[tuple[bytes, int, int]]:
        """Removes and returns the windows with end <= last_end: (key bytes, start, end), by end, start, key bytes."""
        if self._may_close(last_end):
            for row, _ in self._rows.up_to(_BOUNDS.pack(last_end + 1, 0)):
                self._rows.remove(row, timestamp)
                end, start = _BOUNDS.unpack_from(row)
                yield row[_BOUNDS.size :], start, end

    def close_in_turn(
        self,
        opened: Iterable[tuple[int, bytes, int]],
        end_of: Mapping[int, int],
        batch: ColumnarBatch,
        closing: Closing,
    ) -> list[ClosedWindow]:
        """Adds windows and closes others, as `add` and `close` would record by record.

        Args:
            opened: For each record that has begun an aggregate: its row, the bytes of its key, and the start of its window.
            end_of: Start -> end of these windows, ms.
            batch: The records.
            closing: The records that may close windows.
        """
        closed: list[ClosedWindow] = []

        def close(before: int) -> None:
            """Closes the windows that the first `before` closing records close."""
            if before and self.first_end is not None and self.first_end <= (last_end := int(closing.ends[before - 1])):
                for found, _ in self._rows.up_to(_BOUNDS.pack(last_end + 1, 0)):
                    end, start = _BOUNDS.unpack_from(found)
                    row = int(closing.rows[np.searchsorted(closing.ends, end)])
                    self._rows.remove(found, int(batch.timestamps[row]))
                    closed.append(ClosedWindow(row, found[_BOUNDS.size :], start, end))

        for row, key, start in opened:
            close(int(np.searchsorted(closing.rows, row)))
            self.add(key, start, end_of[start], int(batch.timestamps[row]))
        close(len(closing.rows))
        return closed

    def close_together(
        self, windows: StepWindows, timestamps: Int64s, closing: Closing
    ) -> list[tuple[ClosedWindow, int | None]]:
        """Adds, removes and closes windows, as `add`, `remove` and `close` would record by record.

        Args:
            windows: The windows that the records have met.
            timestamps: The timestamps of the records, ms.
            closing: The records that may close windows.

        Returns:
            The closed windows in order, each with its number if the records have met it.
        """
        rows, gone = joined(packed(windows.ends), packed(windows.starts), windows.keys), windows.gone
        closing_rows, made = np.append(closing.rows, NO_ROW), windows.begun >= 0
        ends_at = np.searchsorted(closing.ends, windows.ends)
        closed_by = closing_rows[np.maximum(ends_at, np.searchsorted(closing.rows, windows.begun))]
        found = self._close_stored(rows, windows, timestamps, closing)
        own = rows_where(made & (closed_by < gone))
        found += zip(closed_by[own].tolist(), rows.take(pa.array(own)).to_pylist(), own.tolist(), strict=True)
        changed = rows_where(made | (gone != NO_ROW))
        stays = (gone == NO_ROW) & (closed_by == NO_ROW)
        closed = changed[~stays[changed] & (gone[changed] == NO_ROW)]
        times = windows.ends.copy()
        times[closed] = timestamps[closed_by[closed]]
        present = pa.array(np.full(len(changed), PRESENT), pa.binary(), mask=~stays[changed])
        self._rows.put_columns(rows.take(pa.array(changed)), present, times[changed])
        results = []
        for row, data, number in sorted(found, key=itemgetter(0, 1)):
            end, start = _BOUNDS.unpack_from(data)
            results.append((ClosedWindow(row, data[_BOUNDS.size :], start, end), number))
        return results

    def _close_stored(
        self, rows: BinaryColumn, windows: StepWindows, timestamps: Int64s, closing: Closing
    ) -> list[tuple[int, bytes, int | None]]:
        """Closes windows that existed before. Returns the row that closes each one, its row in the index, and its number."""
        found: list[tuple[int, bytes, int | None]] = []
        first_end = self.first_end
        if first_end is None or not len(closing.ends) or first_end > (last_end := int(closing.ends[-1])):
            return found
        stored = rows_where(windows.begun < 0)
        number_of = dict(zip(rows.take(pa.array(stored)).to_pylist(), stored.tolist(), strict=True))
        for data, _ in self._rows.up_to(_BOUNDS.pack(last_end + 1, 0)):
            end, _ = _BOUNDS.unpack_from(data)
            row, number = int(closing.rows[np.searchsorted(closing.ends, end)]), number_of.get(data)
            self._rows.remove(data, int(timestamps[row]))
            if number is None or row < windows.gone[number]:
                found.append((row, data, number))
        return found

    def release(self) -> None:
        """Releases the store at the end of the step."""
        self._rows.close()

    def due(self, closing: Closing) -> Closing:
        """The records that check for closed windows: in compat mode, only the first one after the emit interval."""
        if len(closing.rows) and not self._looks():
            return Closing(closing.rows[:0], closing.ends[:0])
        if self._ctx.mode == "compat" and self._ctx.emit_interval_ms:
            return Closing(closing.rows[:1], closing.ends[:1])
        return closing

    def _may_close(self, last_end: int) -> bool:
        """Whether any window may be closed."""
        if not self._looks():
            return False
        first_end = self.first_end
        return first_end is not None and first_end <= last_end

    def _looks(self) -> bool:
        """Whether to check for closed windows: in compat mode, only if the emit interval has passed."""
        if self._ctx.mode == "compat":
            now, state = self._ctx.now_ms, self._ctx.state
            if now < state.get(NEXT_EMIT, now):
                return False
            state[NEXT_EMIT] = now + self._ctx.emit_interval_ms
        return True
