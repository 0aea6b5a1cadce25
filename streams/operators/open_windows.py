"""Windows that are not closed yet, in order of their ends: what emit-on-close looks at instead of the windows themselves.

Why: a window store lies by key, so that finding what has closed would mean reading all of it with each record. This index
lies by end, start, key bytes, which is the order in which Kafka Streams emits (`RocksDBTimeOrderedWindowStore`). Its first
end is kept at hand, so that a record that closes nothing costs one comparison. Invariant: a window is in the index exactly
as long as it has not been emitted, over restarts too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from streams.operators.processor import ProcessorContext
from streams.operators.stores import KeyValueStore

_BOUNDS = struct.Struct(">qq")
_PRESENT = b"1"  # not empty: some tools take an empty value for none at all
NEXT_EMIT = "next_emit"


class OpenWindows:
    """The index of one operator, for one step.

    Args:
        ctx: The operator's context.
        store: Name of a key-value store of bytes.
    """

    def __init__(self, ctx: ProcessorContext, store: str) -> None:
        self._ctx = ctx
        self._rows: KeyValueStore = ctx.store(store)
        self._first_end = self._read_first_end()

    @property
    def first_end(self) -> int | None:
        """The smallest end of all open windows; None if there are none."""
        return self._first_end

    def add(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """A window was opened.

        Args:
            key: Key bytes.
            start: Start, ms.
            end: End, ms, exclusive or inclusive as the windows are.
            timestamp: Of the changelog record, ms.
        """
        self._rows.put(_BOUNDS.pack(end, start) + key, _PRESENT, timestamp)
        if self._first_end is None or end < self._first_end:
            self._first_end = end

    def remove(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """A window is gone without having been closed (sessions that were merged)."""
        self._rows.put(_BOUNDS.pack(end, start) + key, None, timestamp)
        if end == self._first_end:
            self._first_end = self._read_first_end()

    def close(self, last_end: int, timestamp: int) -> Iterator[tuple[bytes, int, int]]:
        """Takes out the windows with end <= last_end: (key bytes, start, end), by end, start, key bytes."""
        if not self._may_close(last_end):
            return
        for row, _ in self._rows.range(None, _BOUNDS.pack(last_end + 1, 0)):
            end, start = _BOUNDS.unpack_from(row)
            if end > last_end:
                break
            self._rows.put(row, None, timestamp)
            yield row[_BOUNDS.size :], start, end
        self._first_end = self._read_first_end()

    def _may_close(self, last_end: int) -> bool:
        """Whether any window is closed, and in compat mode the wall clock allows a look."""
        if self._ctx.mode == "compat":
            now, state = self._ctx.now_ms, self._ctx.state
            if now < state.get(NEXT_EMIT, now):
                return False
            state[NEXT_EMIT] = now + self._ctx.emit_interval_ms
        return self._first_end is not None and self._first_end <= last_end

    def _read_first_end(self) -> int | None:
        row = next(iter(self._rows.all()), None)
        if row is None:
            return None
        end: int = _BOUNDS.unpack_from(row[0])[0]
        return end
