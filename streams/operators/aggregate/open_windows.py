"""Windows that are not closed yet, in order of their ends: what emit-on-close looks at instead of the windows themselves.

Why: a window store lies by key, so that finding what has closed would mean reading all of it with each record. This index
lies by end, start, key bytes, which is the order in which Kafka Streams emits (`RocksDBTimeOrderedWindowStore`). Its first
end is kept at hand, so that a record that closes nothing costs one comparison. Invariant: a window is in the index exactly
as long as it has not been emitted, over restarts too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from streams.operators.operator_context import OperatorContext
from streams.operators.stores.expiry_index import ExpiryIndex
from streams.operators.stream_time import NO_LIMIT

_BOUNDS = struct.Struct(">qq")
_PRESENT = b"1"  # not empty: some tools take an empty value for none at all
NEXT_EMIT = "next_emit"


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
        """The smallest end of all open windows, or a smaller one; None if there are none."""
        row = self._rows.first
        return None if row is None else int(_BOUNDS.unpack_from(row)[0])

    @property
    def first_start(self) -> int:
        """The start of the window that closes first, ms: results to come are not older; `NO_LIMIT` if none is open."""
        row = self._rows.first
        return NO_LIMIT if row is None else int(_BOUNDS.unpack_from(row)[1])

    def add(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """A window was opened.

        Args:
            key: Key bytes.
            start: Start, ms.
            end: End, ms, exclusive or inclusive as the windows are.
            timestamp: Of the changelog record, ms.
        """
        self._rows.put(_BOUNDS.pack(end, start) + key, _PRESENT, timestamp)

    def remove(self, key: bytes, start: int, end: int, timestamp: int) -> None:
        """A window is gone without having been closed (sessions that were merged)."""
        self._rows.remove(_BOUNDS.pack(end, start) + key, timestamp)

    def close(self, last_end: int, timestamp: int) -> Iterator[tuple[bytes, int, int]]:
        """Takes out the windows with end <= last_end: (key bytes, start, end), by end, start, key bytes."""
        if self._may_close(last_end):
            for row, _ in self._rows.up_to(_BOUNDS.pack(last_end + 1, 0)):
                self._rows.remove(row, timestamp)
                end, start = _BOUNDS.unpack_from(row)
                yield row[_BOUNDS.size :], start, end

    def let_go(self) -> None:
        """End of the step."""
        self._rows.close()

    def _may_close(self, last_end: int) -> bool:
        """Whether any window may be closed, and in compat mode the wall clock allows a look."""
        if self._ctx.mode == "compat":
            now, state = self._ctx.now_ms, self._ctx.state
            if now < state.get(NEXT_EMIT, now):
                return False
            state[NEXT_EMIT] = now + self._ctx.emit_interval_ms
        first_end = self.first_end
        return first_end is not None and first_end <= last_end
