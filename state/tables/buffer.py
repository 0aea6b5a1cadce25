"""`WriteBuffer`: the uncommitted writes of one store, laid over the committed table.

Nothing may reach the table before Kafka has committed the step, yet reads must see the step's writes. Beyond a memory bound,
all buffers of a task move to a scratch database beside the store, never into the committed one. Invariant: memory
hides scratch, and scratch hides the table.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sortedcontainers import SortedList

from state.tables.columns import scan_each
from state.tables.merge import overlay
from state.tables.open import DiskTable, open_table
from state.tables.rocks_options import DEFAULT_SETTINGS, RocksSettings
from state.tables.table import OrderedTable, RangeRows, Row, RowChange

Entry = tuple["bytes | None", int]
"""Local value (None = deleted) and the timestamp for the changelog, ms."""

DEFAULT_SPILL_BYTES = 64 * 1024 * 1024
# Memory of Python's objects around one entry: two bytes objects, a tuple, an int, a dictionary's slot.
_ENTRY_OVERHEAD = 250
_SPILL_PREFIX = "spill-"


class BufferMemory:
    """The memory that the buffers of one task share, and the scratch database for their entries when the memory is full.

    Args:
        limit: Bound in bytes, Python's own overhead included; None = no bound.
        directory: Where the scratch database's folder is created; required with a limit.
        settings: RocksDB's memory, shared with the committed tables.
    """

    def __init__(
        self, limit: int | None = None, directory: Path | None = None, settings: RocksSettings = DEFAULT_SETTINGS
    ) -> None:
        if limit is not None and directory is None:
            raise ValueError("a bound on the write buffer needs a directory to spill to")
        self.used = 0
        self.limit = limit if limit is not None else 2**63
        self.scratch: DiskTable | None = None
        self._directory = directory
        self._settings = settings
        self._buffers: list[WriteBuffer] = []
        self._folder: Path | None = None

    def register(self, buffer: WriteBuffer) -> None:
        """Adds a buffer to those that share this memory."""
        self._buffers.append(buffer)

    def spill(self) -> None:
        """Moves every buffer's entries to the scratch database."""
        if self.scratch is None:
            self._folder = Path(tempfile.mkdtemp(prefix=_SPILL_PREFIX, dir=self._directory))
            self.scratch = open_table(self._folder / "db", self._settings)
        for buffer in self._buffers:
            buffer.move_to(self.scratch)
        self.used = 0

    def clear(self) -> None:
        """Deletes the scratch database. The buffers must be empty or about to be emptied."""
        self.used = 0
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def delete_left_scratch(directory: Path) -> None:
    """Deletes the scratch databases of killed processes. The caller must hold the committed table's lock."""
    for folder in directory.glob(f"{_SPILL_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


class WriteBuffer:
    """Uncommitted writes over a table. Keys are local keys, store prefix included.

    Args:
        table: The committed rows.
        memory: Shared by all buffers of the task.
        prefix: Common prefix of all keys of this buffer.
    """

    def __init__(self, table: OrderedTable, memory: BufferMemory, prefix: bytes) -> None:
        self._table = table
        self._memory = memory
        self._prefix = prefix
        self._entries: dict[bytes, Entry] = {}
        # Sorted only for stores that are scanned, so that point lookups never pay for it.
        self._sorted: SortedList | None = None
        self._unsorted: list[bytes] = []
        self._spilled = False
        memory.register(self)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Writes a value (None deletes); `timestamp` goes to the changelog record."""
        entries = self._entries
        if key not in entries:
            self._memory.used += len(key) + _ENTRY_OVERHEAD
            if self._sorted is not None:
                self._unsorted.append(key)
        entries[key] = (value, timestamp)
        if value is not None:
            # An overwritten value is counted again: the bound may be reached early, never late.
            self._memory.used += len(value)
        if self._memory.used > self._memory.limit:
            self._memory.spill()

    def put_last(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """As `put`, but the changelog record comes after all others of the step so far."""
        old = self._entries.pop(key, None)
        self.put(key, value, timestamp)
        if old is not None and self._sorted is not None:
            self._unsorted.remove(key)

    def get(self, key: bytes) -> bytes | None:
        """The value as this step sees it."""
        entry = self._entries.get(key)
        if entry is not None:
            return entry[0]
        if self._spilled:
            found, value = self._get_spilled(key)
            if found:
                return value
        return self._table.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, with one table lookup for all keys that were not written in this step."""
        entries = self._entries
        if not entries and not self._spilled:
            return self._table.multi_get(keys)
        values: list[bytes | None] = [None] * len(keys)
        missing: list[int] = []
        for index, key in enumerate(keys):
            entry = entries.get(key)
            if entry is not None:
                values[index] = entry[0]
                continue
            found, value = self._get_spilled(key) if self._spilled else (False, None)
            if found:
                values[index] = value
            else:
                missing.append(index)
        if missing:
            for index, value in zip(missing, self._table.multi_get([keys[i] for i in missing]), strict=True):
                values[index] = value
        return values

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key < upper as of now; the scan does not see later writes of the step."""
        base = self._table.scan(lower, upper, reverse)
        if not self._entries and not self._spilled:
            return base
        changes = self.changes(lower, upper, reverse)
        if changes is None:
            return base
        return _without_deleted(overlay(changes, base, reverse))

    def put_columns(self, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: npt.NDArray[np.int64]) -> None:
        """Writes a column of rows, as `put` row by row would.

        Args:
            keys: Local keys, none null; a later row of the same key wins.
            values: Local values, null deletes.
            timestamps: Of the changelog records, ms.
        """
        for row in zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), strict=True):
            self.put(*row)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The values of a column of keys as this step sees them; see `OrderedTable.get_columns`."""
        return pa.array(self.multi_get(keys.to_pylist()), pa.binary())

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        """Rows of several ranges as this step sees them; see `OrderedTable.scan_ranges`."""
        return scan_each(self.scan, lowers, uppers)

    def changes(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[RowChange] | None:
        """This step's writes of a range in key order, None if memory and scratch have none."""
        entries = self._entries
        own: list[RowChange] = [
            (key, entries[key][0]) for key in self._index().irange(lower, upper, (True, False), reverse)
        ]
        if not self._spilled:
            return iter(own) if own else None
        spilled = ((key, _decode(data)[0]) for key, data in self._scratch().scan(lower, upper, reverse))
        return overlay(iter(own), spilled, reverse)

    def entries(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """The last write of every key, in the order of the first writes; in key order once the step has spilled."""
        if not self._spilled:
            return ((key, value, timestamp) for key, (value, timestamp) in self._entries.items())
        entries = self._entries
        own = ((key, _encode(entries[key])) for key in sorted(entries))
        stored = self._scratch().scan(self._prefix, _end_of(self._prefix))
        return ((key, *_decode(data)) for key, data in overlay(own, stored) if data is not None)

    def __len__(self) -> int:
        """The number of keys written in this step and still in memory."""
        return len(self._entries)

    @property
    def dirty(self) -> bool:
        """Whether the step has written anything."""
        return bool(self._entries) or self._spilled

    @property
    def spilled(self) -> bool:
        """Whether the scratch database holds writes of the step."""
        return self._spilled

    def move_to(self, scratch: DiskTable) -> None:
        """Moves the entries to the scratch database."""
        if self._entries:
            scratch.write_unsafe((key, _encode(entry)) for key, entry in self._entries.items())
            self._forget()
            self._spilled = True

    def clear(self) -> None:
        """Forgets this step's writes."""
        self._forget()
        self._spilled = False

    def _forget(self) -> None:
        self._entries = {}
        self._sorted = None
        self._unsorted = []

    def _index(self) -> SortedList:
        if self._sorted is None:
            self._sorted = SortedList(self._entries)
        elif self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted = []
        return self._sorted

    def _get_spilled(self, key: bytes) -> tuple[bool, bytes | None]:
        data = self._scratch().get(key)
        return (False, None) if data is None else (True, _decode(data)[0])

    def _scratch(self) -> DiskTable:
        assert self._memory.scratch is not None
        return self._memory.scratch


def _encode(entry: Entry) -> bytes:
    value, timestamp = entry
    stamp = timestamp.to_bytes(8, "big", signed=True)
    return stamp if value is None else stamp + b"\x01" + value


def _decode(data: bytes) -> Entry:
    timestamp = int.from_bytes(data[:8], "big", signed=True)
    return (None if len(data) == 8 else data[9:]), timestamp


def _without_deleted(changes: Iterator[RowChange]) -> Iterator[Row]:
    return ((key, value) for key, value in changes if value is not None)


def _end_of(prefix: bytes) -> bytes:
    """Exclusive end of a store's keys. A store's prefix is never all 0xff."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
