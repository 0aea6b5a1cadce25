"""`WriteBuffer`: the uncommitted writes of one store, laid over the committed table.

Nothing may reach the table before Kafka has committed the step, yet reads must see the step's writes. Single writes are in a
dictionary, writes by columns in blocks, and beyond a memory bound all buffers of a task move to a scratch database next to the
store, never into the committed one. Invariant: the dictionary hides the blocks, a newer block hides an older one, blocks hide
scratch, and scratch hides the table.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sortedcontainers import SortedList

from state import sorting
from state.columns import (
    FEW_ROWS,
    MEMCMP,
    NOTHING,
    BinaryCells,
    Int64s,
    binary_column,
    data_bytes,
    joined,
    numbers_at,
    packed,
    sliced,
)
from state.errors import StateError
from state.tables.open_tables import open_table
from state.tables.rocks_common import DEFAULT_SETTINGS, SCRATCH, RocksSettings
from state.tables.table import (
    Columns,
    OrderedTable,
    RangeRows,
    Row,
    RowChange,
    columns_of,
    get_in_order,
    scan_in_order,
)

_END: RowChange = (b"", None)


def overlay(newer: Iterator[RowChange], older: Iterator[RowChange], reverse: bool = False) -> Iterator[RowChange]:
    """Merges two iterators in key order (or reverse order); for equal keys the newer row wins.

    Rows with value None (deleted) are passed on, because they may hide rows of a third, still older iterator.
    """
    top, bottom = next(newer, _END), next(older, _END)
    while top is not _END and bottom is not _END:
        if top[0] == bottom[0]:
            yield top
            top, bottom = next(newer, _END), next(older, _END)
        elif (top[0] < bottom[0]) != reverse:
            yield top
            top = next(newer, _END)
        else:
            yield bottom
            bottom = next(older, _END)
    if top is not _END:
        yield top
        yield from newer
    if bottom is not _END:
        yield bottom
        yield from older


# Rows that become Python objects at a time.
_OBJECT_ROWS = 1_000


class WriteColumns(NamedTuple):
    """Writes of a step, columns of equal length.

    Attributes:
        keys: Binary, none null.
        values: Binary, null = deleted.
        timestamps: int64, for the changelog, ms.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps: Int64s


class Block:
    """The last write of every key, in the order of the first writes. Never changed.

    Args:
        columns: Keys occur once.
        order: The rows in key order.

    Attributes:
        columns: The rows.
        order: The rows in key order.
    """

    def __init__(self, columns: WriteColumns, order: Int64s) -> None:
        self.columns = columns
        self.order = order
        self._found_cells: BinaryCells | None = None

    @property
    def _cells(self) -> BinaryCells:
        if self._found_cells is None:
            self._found_cells = BinaryCells(self.columns.keys)
        return self._found_cells

    @classmethod
    def of_writes(cls, columns: WriteColumns) -> Block:
        """The block of writes in their order, where keys may occur several times."""
        cells = BinaryCells(columns.keys)
        return cls._of_ordered(columns, cells, sorting.sort_rows(cells.addresses, len(columns.keys), MEMCMP))

    @classmethod
    def _of_ordered(cls, columns: WriteColumns, cells: BinaryCells, order: Int64s) -> Block:
        lasts, firsts = sorting.distinct(cells.addresses, order, MEMCMP)
        if len(lasts) == len(order):
            return cls(columns, order)
        # The place of each key among the first writes, and the row of its last write there.
        is_first = np.zeros(len(order), np.bool_)
        is_first[firsts] = True
        places = (np.cumsum(is_first) - 1)[firsts]
        rows = np.empty_like(places)
        rows[places] = lasts
        taken = pa.array(rows)
        kept = WriteColumns(columns.keys.take(taken), columns.values.take(taken), columns.timestamps[rows])
        return cls(kept, places)

    def followed_by(self, newer: Block) -> Block:
        """This block with the writes of a newer one."""
        both = WriteColumns(
            pa.concat_arrays([self.columns.keys, newer.columns.keys]),
            pa.concat_arrays([self.columns.values, newer.columns.values]),
            np.concatenate([self.columns.timestamps, newer.columns.timestamps]),
        )
        cells = BinaryCells(both.keys)
        order = sorting.merge_orders(cells.addresses, self.order, newer.order + len(self), MEMCMP)
        return self._of_ordered(both, cells, order)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        keys, values, timestamps = self.columns
        # The kernels' ends of the keys are as many as the timestamps; Arrow's own of both columns are half of that.
        return int(data_bytes(keys) + data_bytes(values) + 3 * timestamps.nbytes + self.order.nbytes)

    def sorted(self) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        return self.sorted_by(self.columns.values)

    def sorted_by(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys in key order, with other values that are given in the order of the rows."""
        if sorting.is_identity(self.order):
            return self.columns.keys, values
        order = pa.array(self.order)
        return self.columns.keys.take(order), values.take(order)

    def find(self, keys: pa.BinaryArray) -> Int64s:
        """int64[n], the row of each key; -1 if the key was not written."""
        asked = BinaryCells(keys)
        found: Int64s = sorting.find_rows(self._cells.addresses, self.order, asked.addresses, len(keys), MEMCMP)
        return found

    def rows_in(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> tuple[Int64s, Int64s]:
        """The rows with lower <= key < upper of each range: number of the range, row."""
        begins, ends = (self._rows_below(bounds) for bounds in (lowers, uppers))
        ranges, places = sorting.expand(begins, ends)
        return ranges, self.order[places]

    def _rows_below(self, bounds: pa.BinaryArray) -> Int64s:
        asked = BinaryCells(bounds)
        found: Int64s = sorting.lower_bounds(self._cells.addresses, self.order, asked.addresses, len(bounds), MEMCMP)
        return found

    def changes_in(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        ranges, rows = self.rows_in(lowers, uppers)
        taken = pa.array(rows)
        return RangeRows(ranges.astype(np.int32), self.columns.keys.take(taken), self.columns.values.take(taken))

    def changes_between(self, lower: bytes, upper: bytes, reverse: bool) -> Iterator[RowChange] | None:
        """The rows of one range as Python objects, None if there are none."""
        _, rows = self.rows_in(pa.array([lower], pa.binary()), pa.array([upper], pa.binary()))
        if not len(rows):
            return None
        return self._rows(rows[::-1] if reverse else rows)

    def _rows(self, rows: Int64s) -> Iterator[RowChange]:
        for first in range(0, len(rows), _OBJECT_ROWS):
            taken = pa.array(np.ascontiguousarray(rows[first : first + _OBJECT_ROWS]))
            keys, values = self.columns.keys.take(taken), self.columns.values.take(taken)
            yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def overlay_columns(newer: RangeRows, older: RangeRows) -> RangeRows:
    """The rows of both. If both have a key of a range, the newer row hides the older one. Nulls (deleted) are rows, too."""
    if not len(newer.ranges) or not len(older.ranges):
        return newer if len(newer.ranges) else older
    ours, theirs = BinaryCells(newer.keys), BinaryCells(older.keys)
    rows = sorting.overlay_rows(ours.addresses, newer.ranges, theirs.addresses, older.ranges, MEMCMP)
    taken = pa.array(rows)
    return RangeRows(
        np.concatenate([newer.ranges, older.ranges])[rows],
        pa.concat_arrays([newer.keys, older.keys]).take(taken),
        pa.concat_arrays([newer.values, older.values]).take(taken),
    )


def without_deleted(rows: RangeRows) -> RangeRows:
    if not rows.values.null_count:
        return rows
    kept = rows.values.is_valid()
    return RangeRows(rows.ranges[kept.to_numpy(zero_copy_only=False)], rows.keys.filter(kept), rows.values.filter(kept))


def encode_entries(columns: WriteColumns) -> pa.BinaryArray:
    """Timestamp(8), and for a value 0x01 ∥ value: how a scratch database stores writes."""
    marked = joined(pa.scalar(b"\x01", pa.binary()), columns.values)
    return joined(packed(columns.timestamps), pc.fill_null(marked, NOTHING))


def decode_values(encoded: pa.BinaryArray) -> pa.BinaryArray:
    """The values of encoded entries, null = deleted."""
    written = pc.greater(pc.binary_length(encoded), 8)
    return sliced(pc.if_else(written, encoded, pa.scalar(None, pa.binary())), 9)


def decode_value(encoded: bytes) -> bytes | None:
    """The value of one encoded entry, None = deleted."""
    return None if len(encoded) == 8 else encoded[9:]


DEFAULT_SPILL_BYTES = 64 * 1024 * 1024


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
        self.scratch: OrderedTable | None = None
        self._directory = directory
        self._settings = settings
        self._buffers: list[WriteBuffer] = []
        self._folder: Path | None = None

    def register(self, buffer: WriteBuffer) -> None:
        """Adds a buffer to the ones that share this memory."""
        self._buffers.append(buffer)

    def spill(self) -> None:
        """Moves every buffer's writes to the scratch database."""
        try:
            if self.scratch is None:
                self.scratch = self._open_scratch()
            for buffer in self._buffers:
                buffer.move_to(self.scratch)
        except OSError as error:
            raise StateError(
                f"the writes of a step do not fit into memory (spill_bytes), and cannot be moved to {self._directory}: {error}. "
                f"Nothing of the step was written. Make room there, or give the application another state_dir"
            ) from error
        self.used = 0

    def _open_scratch(self) -> OrderedTable:
        self._folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self._directory))
        return open_table(self._folder / "db", self._settings)

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
    for folder in directory.glob(f"{SCRATCH}*"):
        shutil.rmtree(folder, ignore_errors=True)


Entry = tuple["bytes | None", int]
"""Local value (None = deleted) and the timestamp for the changelog, ms."""

# Memory of Python's objects around one entry: two bytes objects, a tuple, an int, a dictionary's slot.
_ENTRY_OVERHEAD = 250
# Up to this many blocks, searching each costs less than merging them.
_FEW_BLOCKS = 4
# Bounds of a part of a step that has spilled.
_PART_ROWS = 100_000
_PART_BYTES = 16 * 1024 * 1024


def are_few(rows: pa.BinaryArray) -> bool:
    """Whether rows cost less one by one than as a column."""
    return len(rows) <= FEW_ROWS


class WriteBuffer:
    """Uncommitted writes over a table. Keys are local keys, store prefix included."""

    def __init__(self, table: OrderedTable, memory: BufferMemory, prefix: bytes) -> None:
        self._table = table
        self._memory = memory
        self._prefix = prefix
        self._end = _end_of(prefix)
        self._entries: dict[bytes, Entry] = {}
        # Sorted only for stores that are scanned, so that point lookups never pay for it.
        self._sorted: SortedList | None = None
        self._unsorted: list[bytes] = []
        # Oldest first.
        self._blocks: list[Block] = []
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
        """Writes like `put`, but the changelog record comes after all other records of the step so far."""
        self._unpack()
        old = self._entries.pop(key, None)
        self.put(key, value, timestamp)
        if old is not None and self._sorted is not None:
            self._unsorted.remove(key)

    def put_columns(self, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: npt.NDArray[np.int64]) -> None:
        """Writes a column of rows, as `put` row by row would."""
        if are_few(keys):
            for row in zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), strict=True):
                self.put(*row)
            return
        self._pack()
        block = Block.of_writes(WriteColumns(keys, values, timestamps))
        self._memory.used += block.nbytes
        self._add(block)
        if self._memory.used > self._memory.limit:
            self._memory.spill()

    def get(self, key: bytes) -> bytes | None:
        """The value as this step sees it."""
        entry = self._entries.get(key)
        if entry is not None:
            return entry[0]
        if self._blocks or self._spilled:
            found, value = self._get_packed(key)
            if found:
                return value
        return self._table.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, with one table lookup for all keys that were not written in this step."""
        entries = self._entries
        if not entries and not self._blocks and not self._spilled:
            return self._table.multi_get(keys)
        values: list[bytes | None] = [None] * len(keys)
        missing: list[int] = []
        for index, key in enumerate(keys):
            entry = entries.get(key)
            if entry is not None:
                values[index] = entry[0]
                continue
            found, value = self._get_packed(key)
            if found:
                values[index] = value
            else:
                missing.append(index)
        if missing:
            for index, value in zip(missing, self._table.multi_get([keys[i] for i in missing]), strict=True):
                values[index] = value
        return values

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The values of a column of keys as this step sees them, in the form of `OrderedTable.get_columns`."""
        if are_few(keys):
            return binary_column(self.multi_get(keys.to_pylist()))
        self._pack()
        return get_in_order(self._get_sorted, keys) if self.dirty else self._table.get_columns(keys)

    def _get_sorted(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        found: list[pa.BinaryArray] = []
        places: npt.NDArray[np.int64] = np.empty(len(keys), np.int64)
        missing = np.arange(len(keys))

        def take(values: pa.BinaryArray, hit: npt.NDArray[np.bool_]) -> None:
            nonlocal missing
            first = sum(map(len, found))
            places[missing[hit]] = np.arange(first, first + len(values))
            found.append(values)
            missing = missing[~hit]

        for block in reversed(self._blocks):
            rows = block.find(_at(keys, missing))
            take(block.columns.values.take(pa.array(rows[rows >= 0])), rows >= 0)
        if self._spilled and len(missing):
            entries = self._scratch().get_columns(_at(keys, missing))
            take(decode_values(entries.drop_null()), entries.is_valid().to_numpy(zero_copy_only=False))
        if len(missing) == len(keys):
            return self._table.get_columns(keys)
        if len(missing):
            take(self._table.get_columns(_at(keys, missing)), np.ones(len(missing), np.bool_))
        return pa.concat_arrays(found).take(pa.array(places))

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key < upper as of now; the scan does not see later writes of the step."""
        base = self._table.scan(lower, upper, reverse)
        if not self.dirty:
            return base
        changes = self.changes(lower, upper, reverse)
        if changes is None:
            return base
        return ((key, value) for key, value in overlay(changes, base, reverse) if value is not None)

    def changes(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[RowChange] | None:
        """This step's writes of a range in key order, None if memory and scratch have none."""
        entries = self._entries
        layers: list[Iterator[RowChange]] = []
        if entries:
            own = [(key, entries[key][0]) for key in self._index().irange(lower, upper, (True, False), reverse)]
            layers += [iter(own)] if own else []
        for block in reversed(self._blocks):
            rows = block.changes_between(lower, self._end if upper is None else upper, reverse)
            layers += [] if rows is None else [rows]
        if self._spilled:
            stored = self._scratch().scan(lower, upper, reverse)
            layers.append((key, decode_value(data)) for key, data in stored)
        if not layers:
            return None
        newest = layers[0]
        for older in layers[1:]:
            newest = overlay(newest, older, reverse)
        return newest

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        """Rows of several ranges as this step sees them, in the form of `OrderedTable.scan_ranges`."""
        if are_few(lowers):
            return self._scan_few(lowers, uppers)
        self._pack()
        return (
            scan_in_order(self._scan_sorted, lowers, uppers) if self.dirty else self._table.scan_ranges(lowers, uppers)
        )

    def first_columns(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        """The first rows of a range as this step sees them, in the form of `OrderedTable.scan_part`."""
        if self.dirty:
            return columns_of(list(islice(self.scan(lower, upper), rows)))
        return self._table.scan_part(lower, upper, rows, size)

    def _scan_few(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        bounds = enumerate(zip(lowers.to_pylist(), uppers.to_pylist(), strict=True))
        written = [(number, *row) for number, one in bounds for row in self.changes(*one) or ()] if self.dirty else []
        rows = self._table.scan_ranges(lowers, uppers)
        if not written:
            return rows
        ranges, keys, values = zip(*written, strict=True)
        newer = RangeRows(np.array(ranges, np.int32), pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        return without_deleted(overlay_columns(newer, rows))

    def _scan_sorted(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        layers = [block.changes_in(lowers, uppers) for block in reversed(self._blocks)]
        if self._spilled:
            stored = self._scratch().scan_ranges(lowers, uppers)
            layers.append(stored._replace(values=decode_values(stored.values)))
        rows = self._table.scan_ranges(lowers, uppers)
        for newer in reversed(layers):
            rows = overlay_columns(newer, rows)
        return without_deleted(rows)

    def written(self) -> Iterator[WriteColumns]:
        """The last write of every key: in the order of the first writes; in key order and in parts once the step has spilled."""
        if self._spilled:
            yield from self._spilled_parts()
        elif (block := self._only_block()) is not None:
            yield block.columns

    def sorted_changes(self) -> Iterator[tuple[pa.BinaryArray, pa.BinaryArray]]:
        """The last write of every key in key order: keys and values, in parts once the step has spilled."""
        if self._spilled:
            for part in self._spilled_parts():
                yield part.keys, part.values
        elif (block := self._only_block()) is not None:
            yield block.sorted()

    @property
    def dirty(self) -> bool:
        """Whether the step has written anything."""
        return bool(self._entries) or bool(self._blocks) or self._spilled

    @property
    def spilled(self) -> bool:
        """Whether the scratch database holds writes of the step."""
        return self._spilled

    def move_to(self, scratch: OrderedTable) -> None:
        """Moves the writes to the scratch database."""
        block = self._only_block()
        if block is not None:
            keys, encoded = block.sorted_by(encode_entries(block.columns))
            scratch.write_columns(keys, encoded, durable=False)
            self._forget()
            self._spilled = True

    def clear(self) -> None:
        self._forget()
        self._spilled = False

    def _forget(self) -> None:
        self._entries = {}
        self._sorted = None
        self._unsorted = []
        self._blocks = []

    def _index(self) -> SortedList:
        if self._sorted is None:
            self._sorted = SortedList(self._entries)
        elif self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted = []
        return self._sorted

    def _pack(self) -> None:
        """Turns the single writes into a block."""
        entries = self._entries
        if entries:
            columns = WriteColumns(
                binary_column(list(entries)),
                binary_column([value for value, _ in entries.values()]),
                np.array([timestamp for _, timestamp in entries.values()], np.int64),
            )
            self._entries, self._sorted, self._unsorted = {}, None, []
            self._add(Block(columns, sorting.sorted_rows(columns.keys)))

    def _unpack(self) -> None:
        """Turns the blocks into single writes."""
        if self._blocks:
            keys, values, timestamps = self._merged().columns
            rows = zip(values.to_pylist(), timestamps.tolist(), strict=True)
            self._entries = dict(zip(keys.to_pylist(), rows, strict=True)) | self._entries
            self._blocks, self._sorted, self._unsorted = [], None, []

    def _add(self, block: Block) -> None:
        """Adds a block as the newest one, after merging it with the newest blocks that are not much larger."""
        self._blocks.append(block)
        while len(self._blocks) > _FEW_BLOCKS and len(self._blocks[-2]) <= 2 * len(self._blocks[-1]):
            self._merge_last()

    def _merge_last(self) -> None:
        newer = self._blocks.pop()
        self._blocks[-1] = self._blocks[-1].followed_by(newer)

    def _merged(self) -> Block:
        while len(self._blocks) > 1:
            self._merge_last()
        return self._blocks[0]

    def _only_block(self) -> Block | None:
        """All writes that are in memory, as one block."""
        self._pack()
        return self._merged() if self._blocks else None

    def _get_packed(self, key: bytes) -> tuple[bool, bytes | None]:
        """Whether the key is in a block or in the scratch database, and its value."""
        for block in reversed(self._blocks):
            row = int(block.find(pa.array([key], pa.binary()))[0])
            if row >= 0:
                return True, block.columns.values[row].as_py()
        data = self._scratch().get(key) if self._spilled else None
        return (False, None) if data is None else (True, decode_value(data))

    def _spilled_parts(self) -> Iterator[WriteColumns]:
        """All writes in key order, in parts of bounded size."""
        scratch = self._scratch()
        self.move_to(scratch)
        keys, entries = scratch.scan_part(self._prefix, self._end, _PART_ROWS, _PART_BYTES)
        while len(keys):
            yield WriteColumns(keys, decode_values(entries), numbers_at(entries, 0))
            keys, entries = scratch.scan_part(keys[-1].as_py() + b"\x00", self._end, _PART_ROWS, _PART_BYTES)

    def _scratch(self) -> OrderedTable:
        assert self._memory.scratch is not None
        return self._memory.scratch


def _at(keys: pa.BinaryArray, rows: npt.NDArray[np.int64]) -> pa.BinaryArray:
    return keys if len(rows) == len(keys) else keys.take(pa.array(rows))


def _end_of(prefix: bytes) -> bytes:
    """Exclusive end of a store's keys. A store's prefix is never all 0xff."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
