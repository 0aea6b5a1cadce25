"""Rows of a timestamped store under modification: the step cache, and its pending updates.

Timestamped stores can have a step cache: decoded values shared by several records of a step, serialised once at the
end (Kafka Streams' record cache, bounded here by the step). Reads always see the cache; a scan writes it through first.
Invariant: without the cache every read decodes anew, so a value modified in place by user code is never shared. A step in which
a function has failed runs again with private rows, which keep that invariant with a cache, too (`StepContext.private_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from streams.model.record import Headers, HeldRecord
from streams.operators.stores.codec import Codec


class CachedRow:
    """One row of a timestamped store under modification: its value, and what was stored before.

    Attributes:
        key: Key bytes.
        start: Window start, ms; -1 in a key-value store.
        value: The value; None = no row.
        timestamp: Milliseconds; -1 = no row.
        stored: The local value that was forwarded last: before this step, or (without a cache) before this update.
        dirty: Set, and not forwarded since.
    """

    __slots__ = ("dirty", "key", "start", "stored", "timestamp", "value")

    def __init__(self, key: bytes, start: int, stored: bytes | None, codec: Codec) -> None:
        self.key = key
        self.start = start
        self.stored = stored
        found = codec.read_timestamped(stored)
        self.value: Any = None if found is None else found.value
        self.timestamp = -1 if found is None else found.timestamp
        self.dirty = False

    def set(self, value: Any, timestamp: int) -> None:
        self.value, self.timestamp, self.dirty = value, timestamp, True

    def sent(self, written: bytes | None) -> None:
        """Record that the row was forwarded with this local value."""
        self.stored, self.dirty = written, False

    @property
    def is_no_op(self) -> bool:
        """Whether the row did not exist before this step and does not exist now, so that nothing need be forwarded."""
        return self.stored is None and self.value is None


class PrivateRow(CachedRow):
    """A row whose value is kept as bytes: each reader gets an object of its own, so only `set` can change the row."""

    __slots__ = ("_cell", "_codec")

    def __init__(self, key: bytes, start: int, stored: bytes | None, codec: Codec) -> None:
        self._codec = codec
        super().__init__(key, start, stored, codec)

    @property  # type: ignore[override]
    def value(self) -> Any:
        return self._codec.read_value(self._cell)

    @value.setter
    def value(self, value: Any) -> None:
        self._cell = self._codec.value(value)


class _WritesRows(Protocol):
    def write(self, entry: CachedRow) -> bytes | None: ...


def drain_pending(
    store: _WritesRows, held: dict[Any, tuple[Any, Headers, CachedRow]]
) -> Iterator[tuple[Any, Headers, CachedRow]]:
    """Removes and returns the pending updates (key, headers, row) that must be forwarded, the oldest first, then by arrival."""
    updates = sorted(held.values(), key=lambda one: one[2].timestamp)
    held.clear()
    for key, headers, entry in updates:
        if entry.is_no_op:
            store.write(entry)  # a scan may have found and written it meanwhile
        else:
            yield key, headers, entry


def result_of(entry: CachedRow, headers: Headers) -> HeldRecord:
    """The record that errors name for a result emitted at the end of a step, which no single record caused: its key."""
    return HeldRecord(entry.key, None, entry.timestamp, headers)
