"""The rows of a step as columns: the fields of their values, and kernels that sort rows by key, group them and assign windows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import rows_where
from state.numba_kernels import allocating_kernel, kernel
from streams.model.windows import CalendarWindows, TimeWindows
from streams.operators.columnar import ValueColumn
from streams.serdes.json_text import dumps, loads

Int64s = npt.NDArray[np.int64]

# --- Columns of the fields that operators have declared, instead of whole values.

ABSENT: Final = 0
INT: Final = 1
FLOAT: Final = 2
TEXT: Final = 3
"""Kinds of a cell: missing or null; integer; number with a fraction or exponent; anything else, as JSON text."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """One declared field of the values.

    Attributes:
        kinds: uint8[n], one of `ABSENT`, `INT`, `FLOAT`, `TEXT`.
        ints: int64[n], where the kind is `INT`; else 0.
        floats: float64[n], where the kind is `FLOAT`; else 0.
        texts: binary[n], JSON text where the kind is `TEXT`, else null; None if no cell has this kind.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: pa.BinaryArray | None

    def take(self, rows: npt.NDArray[np.int64]) -> FieldColumn:
        texts = None if self.texts is None else self.texts.take(pa.array(rows))
        return FieldColumn(self.kinds[rows], self.ints[rows], self.floats[rows], texts)

    def spread(self, rows: npt.NDArray[np.int64], count: int) -> FieldColumn:
        """A column of `count` cells: these cells in `rows`, and missing ones in the other rows."""
        kinds, ints, floats = np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count)
        kinds[rows], ints[rows], floats[rows] = self.kinds, self.ints, self.floats
        if self.texts is None:
            return FieldColumn(kinds, ints, floats, None)
        at = np.full(count, -1, np.int64)
        at[rows] = np.arange(len(rows))
        return FieldColumn(kinds, ints, floats, self.texts.take(pa.array(at, mask=at < 0)))

    def without(self, rows: npt.NDArray[np.bool_]) -> FieldColumn:
        """This column, with missing cells where bool[n] `rows` is true."""
        kinds, floats = self.kinds.copy(), self.floats.copy()
        kinds[rows], floats[rows] = ABSENT, 0.0
        return FieldColumn(kinds, self.ints, floats, self.texts)

    @classmethod
    def joined(cls, parts: Sequence[FieldColumn]) -> FieldColumn:
        """The cells of several columns, one after the other."""
        texts = None
        if any(part.texts is not None for part in parts):
            nothing = [pa.nulls(len(part.kinds), pa.binary()) for part in parts]
            texts = pa.concat_arrays(
                [none if part.texts is None else part.texts for part, none in zip(parts, nothing, strict=True)]
            )
        kinds, ints, floats = (
            np.concatenate(cells) for cells in zip(*((p.kinds, p.ints, p.floats) for p in parts), strict=True)
        )
        return cls(kinds, ints, floats, texts)


@dataclass(frozen=True, slots=True)
class RankedColumn(FieldColumn):
    """The field by which `agg.max_by` and its like compare records, and the values that they keep.

    Attributes:
        values: The kept fields by name; a single one has the name None. Their cells are read only for records that are chosen.
    """

    values: Mapping[str | None, FieldColumn]

    @property
    def by(self) -> FieldColumn:
        """What the records are compared by, without what is kept."""
        return FieldColumn(self.kinds, self.ints, self.floats, self.texts)

    def take(self, rows: npt.NDArray[np.int64]) -> RankedColumn:
        by = self.by.take(rows)
        values = {name: part.take(rows) for name, part in self.values.items()}
        return RankedColumn(by.kinds, by.ints, by.floats, by.texts, values)

    def pair(self, row: int) -> list[Any] | None:
        """The part of a row to compare, and its kept value; None if there is nothing to compare, so the row is never chosen."""
        by = _plain_cell(self, row)
        if by is None:
            return None
        return [by, self.kept([_plain_cell(part, row) for part in self.values.values()])]

    def kept(self, parts: Sequence[Any]) -> Any:
        """Makes the kept value from its parts: the single part, or an object of all parts."""
        return parts[0] if None in self.values else dict(zip(self.values, parts, strict=True))


def cell(column: FieldColumn, row: int) -> Any:
    return column.pair(row) if isinstance(column, RankedColumn) else _plain_cell(column, row)


def _plain_cell(column: FieldColumn, row: int) -> Any:
    kind = column.kinds[row]
    if kind == INT:
        return int(column.ints[row])
    if kind == FLOAT:
        return float(column.floats[row])
    return None if kind != TEXT or column.texts is None else _read(column.texts[row].as_py())


def _read(text: bytes | None) -> Any:
    if text is None:
        return None
    # An object that an expression has made may contain infinity or NaN, as Python's `json` writes them.
    return json.loads(text) if b"Infinity" in text or b"NaN" in text else loads(text)


def cells(column: FieldColumn, rows: Int64s) -> list[Any]:
    """`cell` for each of these rows."""
    if not isinstance(column, RankedColumn):
        return _plain_cells(column, rows)
    parts = zip(*(_plain_cells(part, rows) for part in column.values.values()), strict=True)
    pairs = zip(_plain_cells(column, rows), parts, strict=True)
    return [None if by is None else [by, column.kept(values)] for by, values in pairs]


def _plain_cells(column: FieldColumn, rows: Int64s) -> list[Any]:
    kinds = column.kinds[rows].tolist()
    numbers = zip(kinds, column.ints[rows].tolist(), column.floats[rows].tolist(), strict=True)
    found = [whole if kind == INT else number if kind == FLOAT else None for kind, whole, number in numbers]
    if TEXT not in kinds or column.texts is None:
        return found
    texts = zip(kinds, found, column.texts.take(pa.array(rows)).to_pylist(), strict=True)
    return [_read(text) if kind == TEXT else number for kind, number, text in texts]


def encoded(value: Any) -> tuple[int, int, float, bytes | None]:
    """Kind, integer, number and text of a cell for a Python value. An integer beyond 64 bits is stored as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return INT, value, 0.0, None
        return TEXT, 0, 0.0, str(value).encode()
    if isinstance(value, float):
        return FLOAT, 0, value, None
    return (ABSENT, 0, 0.0, None) if value is None else (TEXT, 0, 0.0, dumps(value))


@dataclass(frozen=True, eq=False, slots=True)
class FieldValues(ValueColumn):
    """The declared fields of n values. The values themselves are not read; as objects, all of them are None.

    Attributes:
        fields: Columns by field path.
        nulls: bool[n], whether the value is null.
        without_fields: bool[n], whether the value is a text, a number or the like.
    """

    fields: Mapping[str, FieldColumn]
    nulls: npt.NDArray[np.bool_]
    without_fields: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.nulls)

    def __getitem__(self, row: Any) -> Any:
        rows = range(len(self))[row]
        return None if isinstance(rows, int) else [None] * len(rows)

    def take(self, rows: npt.NDArray[np.int64]) -> FieldValues:
        fields = {path: column.take(rows) for path, column in self.fields.items()}
        return FieldValues(fields, self.nulls[rows], self.without_fields[rows])

    def fresh(self) -> FieldValues:
        """This column itself, because it has no objects that could be shared."""
        return self

    def joined(self, parts: Sequence[FieldValues]) -> FieldValues:
        """The values of several columns with the same fields, one after the other."""
        fields = {path: FieldColumn.joined([part.fields[path] for part in parts]) for path in self.fields}
        nulls, without = (
            np.concatenate(flags) for flags in zip(*((p.nulls, p.without_fields) for p in parts), strict=True)
        )
        return FieldValues(fields, nulls, without)


# --- Sorts the rows of a step by key (a counting sort). Rows of one key stay in processing order.


class RowsByKey(NamedTuple):
    """The rows of each key, one key after the other.

    Attributes:
        rows: int64[m], the rows that have a key.
        codes: int64[K], the key code of each key that has rows, ascending.
        bounds: int64[K + 1]: the rows of the k-th key are `rows[bounds[k]:bounds[k + 1]]`.
    """

    rows: Int64s
    codes: Int64s
    bounds: Int64s


def by_key(codes: npt.NDArray[np.int32], taken: npt.NDArray[np.bool_], keys: int) -> RowsByKey:
    """Sorts the `taken` rows by their key codes, which are less than `keys`."""
    rows, starts = grouped(codes, rows_where(taken), keys)
    present = np.flatnonzero(np.diff(starts))
    return RowsByKey(rows, present, np.append(0, starts[present + 1]))


@allocating_kernel
def grouped(groups: Any, rows: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Sorts rows by group (stable). Returns them, and int64[count + 1]: the index at which each group begins."""
    starts = np.zeros(count + 1, np.int64)
    for row in rows:
        starts[groups[row] + 1] += 1
    for group in range(count):
        starts[group + 1] += starts[group]
    at = starts.copy()
    found = np.empty(len(rows), np.int64)
    for row in rows:
        found[at[groups[row]]] = row
        at[groups[row]] += 1
    return found, starts


@kernel
def first_from(times: Int64s, low: int, high: int, time: int) -> int:
    """The first index in [low, high) at which the ascending `times` are at least `time`; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


# --- Groups rows by (key code, window start) with a hash table; groups are numbered in order of their first row.


class Groups(NamedTuple):
    """The groups of n rows.

    Attributes:
        of_rows: int64[n], group of each row.
        codes: int64[G], key code of each group.
        starts: int64[G], window start of each group.
    """

    of_rows: Int64s
    codes: Int64s
    starts: Int64s


def group(codes: npt.NDArray[np.int32], starts: Int64s) -> Groups:
    """Numbers the distinct pairs of a key code and a window start."""
    slots = np.full(1 << max(4, int(2 * len(codes)).bit_length()), -1, np.int64)
    of_rows = np.empty(len(codes), np.int64)
    group_codes, group_starts = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    count = _group(codes, starts, slots, of_rows, group_codes, group_starts)
    return Groups(of_rows, group_codes[:count], group_starts[:count])


@kernel
def _group(
    codes: Any, starts: Any, slots: Any, of_rows: Any, group_codes: Any, group_starts: Any
) -> int:  # pragma: no cover - compiled
    mask = np.uint64(len(slots) - 1)
    count = 0
    for row in range(len(codes)):
        code, start = codes[row], starts[row]
        mixed = np.uint64(start) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(code) * np.uint64(0xC2B2AE3D27D4EB4F)
        slot = (mixed ^ (mixed >> np.uint64(29))) & mask
        while True:
            found = slots[slot]
            if found == -1:
                slots[slot] = count
                group_codes[count], group_starts[count] = code, start
                of_rows[row] = count
                count += 1
                break
            if group_codes[found] == code and group_starts[found] == start:
                of_rows[row] = found
                break
            slot = (slot + np.uint64(1)) & mask
    return count


# --- Assigns the rows of a step to windows and finds late ones: the vectorised form of `WindowAggregate`'s rule.
#
# Rows are in processing order, so stream time at a row is a running maximum.


class Assigned(NamedTuple):
    """Pairs of a row and a window, in the order in which they are aggregated.

    Attributes:
        rows: int64[m], row of each pair, ascending.
        starts: int64[m], start of its window, ms; ascending within a row; -1 without windows.
        late: int64[k], the row of each pair whose window is closed.
        stream_time: Largest timestamp so far, ms; `NO_TIME` without windows.
        failed: Row -> the error, if the row's timestamp has no window.
    """

    rows: Int64s
    starts: Int64s
    late: Int64s
    stream_time: int
    failed: Mapping[int, Exception] = MappingProxyType({})

    def part(self, first: int, end: int) -> Assigned:
        """The pairs of the rows [first, end), with row numbers from 0 on."""
        mine = (self.rows >= first) & (self.rows < end)
        late = self.late[(self.late >= first) & (self.late < end)]
        failed = {row - first: error for row, error in self.failed.items() if first <= row < end}
        return Assigned(self.rows[mine] - first, self.starts[mine], late - first, self.stream_time, failed)

    def within(self, rows: Int64s) -> Assigned:
        """These pairs with the row numbers of a larger batch, in which row i of these is row `rows[i]`."""
        failed = {int(rows[row]): error for row, error in self.failed.items()}
        return Assigned(rows[self.rows], self.starts, rows[self.late], self.stream_time, failed)


def assign(timestamps: Int64s, windows: TimeWindows, stream_time: int) -> Assigned:
    """Pairs rows with their open windows.

    Example: hopping windows of 10 ms that advance by 5 ms, and no grace period. A row at 8, when stream time is 12, is late for
    [0, 10), which closed at 10, and is paired with [5, 15).
    """
    most = len(timestamps) * -(-windows.size_ms // windows.advance_ms)
    rows, starts, late = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    count, late_count, stream_time = _assign(
        timestamps, windows.size_ms, windows.advance_ms, windows.grace_ms, stream_time, rows, starts, late
    )
    return Assigned(rows[:count], starts[:count], late[:late_count], stream_time)


@kernel
def _assign(
    timestamps: Any, size: int, advance: int, grace: int, stream_time: int, rows: Any, starts: Any, late: Any
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    count, late_count = 0, 0
    for row in range(len(timestamps)):
        timestamp = timestamps[row]
        stream_time = max(stream_time, timestamp)
        start = max(0, timestamp - size + advance) // advance * advance
        while start <= timestamp:
            if start + size > stream_time - grace:
                rows[count], starts[count] = row, start
                count += 1
            else:
                late[late_count] = row
                late_count += 1
            start += advance
    return count, late_count, stream_time


def assign_to_calendar(timestamps: Int64s, windows: CalendarWindows, stream_time: int) -> Assigned:
    """`assign` for windows of a calendar. A step has few windows, so each is computed once, and rows are compared with their ends.

    A row after the year 9999 fails, because Python's calendar ends there.
    """
    ends_by_start = _windows_of(timestamps, windows)
    starts, ends = (np.array(bounds, np.int64) for bounds in (list(ends_by_start), list(ends_by_start.values())))
    at = np.searchsorted(ends, timestamps, "right")
    known = at < len(ends)
    times = np.maximum(np.maximum.accumulate(timestamps), stream_time)
    is_open = known.copy()
    is_open[known] = ends[at[known]] > times[known] - windows.grace_ms
    rows = rows_where(is_open)
    failed = {row: _error_of(windows, int(timestamps[row])) for row in rows_where(~known).tolist()}
    last = int(times[-1]) if len(times) else stream_time
    return Assigned(rows, starts[at[rows]], rows_where(known & ~is_open), last, failed)


def _windows_of(timestamps: Int64s, windows: CalendarWindows) -> dict[int, int]:
    """Start -> end of the windows of these times, ascending, up to the first time that has no window."""
    found: dict[int, int] = {}
    rising, at = np.unique(timestamps), 0
    while at < len(rising):
        try:
            (start,) = windows.starts(int(rising[at]))
        except (ValueError, OverflowError):
            break
        found[start] = windows.end_of(start)
        at = int(np.searchsorted(rising, found[start]))
    return found


def _error_of(windows: CalendarWindows, timestamp: int) -> Exception:
    """The error for a time that has no window."""
    try:
        windows.starts(timestamp)
    except (ValueError, OverflowError) as error:
        return error
    raise AssertionError(f"{windows!r} has no window of {timestamp}")
