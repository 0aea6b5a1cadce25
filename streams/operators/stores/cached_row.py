"""Rows of a timestamped store in work: the step cache, and the updates that wait in it for the end of the step.

Timestamped stores can keep a step cache: decoded values that several records of a step share, serialised once at the
end (Kafka Streams' record cache, bounded here by the step). Reads always see it; a scan writes it through first.
Invariant: without the cache every read decodes anew, so a value that user code changes in place stays its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from streams.model.record import Headers, HeldRecord
from streams.operators.stores.codec import Codec


class CachedRow:
    """One row of a timestamped store in work: its value, and what was stored before.

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
        """Change it."""
        self.value, self.timestamp, self.dirty = value, timestamp, True

    def sent(self, written: bytes | None) -> None:
        """It is forwarded as it was written now."""
        self.stored, self.dirty = written, False

    @property
    def is_no_op(self) -> bool:
        """Whether there was no row before this step, and is none now: nobody need be told."""
        return self.stored is None and self.value is None


class _WritesRows(Protocol):
    def write(self, entry: CachedRow) -> bytes | None: ...


def drain_pending(
    store: _WritesRows, held: dict[Any, tuple[Any, Headers, CachedRow]]
) -> Iterator[tuple[Any, Headers, CachedRow]]:
    """Takes out the updates that were held back (key, headers, row) and are to be told, the oldest first, then as they came."""
    updates = sorted(held.values(), key=lambda one: one[2].timestamp)
    held.clear()
    for key, headers, entry in updates:
        if entry.is_no_op:
            store.write(entry)  # a scan may have found it meanwhile, and so have written it
        else:
            yield key, headers, entry


def result_of(entry: CachedRow, headers: Headers) -> HeldRecord:
    """What errors name where a result is emitted at the end of a step, and no single record is behind it: its key."""
    return HeldRecord(entry.key, None, entry.timestamp, headers)
