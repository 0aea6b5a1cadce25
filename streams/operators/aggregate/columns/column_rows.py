"""The rows of a step as columns: in the order of their keys, grouped, assigned to windows, and written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from state.columns import decode_headers
from state.numba_kernels import kernel
from streams.model.record import Headers
from streams.model.windows import TimeWindows

# --- Rows as columns: the input of a vectorised operator in place of records.

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
        texts: binary[n], JSON text where the kind is `TEXT`, else null; None if no cell is.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: pa.BinaryArray | None


def cell(column: FieldColumn, row: int) -> Any:
    kind = column.kinds[row]
    if kind == INT:
        return int(column.ints[row])
    if kind == FLOAT:
        return float(column.floats[row])
    if kind != TEXT or column.texts is None:
        return None
    text = column.texts[row].as_py()
    # A number is here only if it is an integer that exceeds 64 bits, which orjson would read as a double.
    return int(text) if text[0] in b"-0123456789" else orjson.loads(text)


def encoded(value: Any) -> tuple[int, int, float, bytes | None]:
    """Kind, integer, number and text of a cell for a Python value. An integer beyond 64 bits is stored as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return INT, value, 0.0, None
        return TEXT, 0, 0.0, str(value).encode()
    if isinstance(value, float):
        return FLOAT, 0, value, None
    return (
        (ABSENT, 0, 0.0, None)
        if value is None
        else (TEXT, 0, 0.0, orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[:-1])
    )


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """n records in the order in which they are to be processed.

    Attributes:
        keys: The distinct keys' bytes.
        key_codes: int32[n], index into `keys`; -1 = no key.
        timestamps: int64[n], milliseconds.
        null_values: bool[n], whether the record's value is null.
        fields: Columns by field path.
        without_fields: bool[n], whether the record's value is a text, a number or the like; None if no value is.
        headers: Encoded headers of each record (`state.columns`); None if no record has any.
        place: The argument of `OperatorContext.resume` that makes a row's record the current one.
    """

    keys: list[bytes]
    key_codes: npt.NDArray[np.int32]
    timestamps: npt.NDArray[np.int64]
    null_values: npt.NDArray[np.bool_]
    fields: dict[str, FieldColumn]
    without_fields: npt.NDArray[np.bool_] | None = None
    headers: list[bytes | None] | None = None
    place: Callable[[int], Any] = lambda row: None

    def __len__(self) -> int:
        return len(self.timestamps)

    def headers_of(self, row: int) -> Headers:
        return () if self.headers is None else tuple(decode_headers(self.headers[row]))


def stream_times(rows: ColumnRows, taken: npt.NDArray[np.bool_], before: int) -> npt.NDArray[np.int64]:
    """Stream time at each row, ms."""
    times = np.maximum.accumulate(np.where(taken, rows.timestamps, before))
    return np.maximum(times, before, out=times)


# --- Puts the rows of a step in the order of their keys; rows of one key stay in processing order (a counting sort).

Int64s = npt.NDArray[np.int64]


class KeyOrder(NamedTuple):
    """The rows of each key, one key after the other.

    Attributes:
        rows: int64[m], the rows that have a key.
        codes: int64[K], the key code of each key that has rows, ascending.
        bounds: int64[K + 1]: the rows of the k-th key are `rows[bounds[k]:bounds[k + 1]]`.
    """

    rows: Int64s
    codes: Int64s
    bounds: Int64s


def by_key(codes: npt.NDArray[np.int32], taken: npt.NDArray[np.bool_], keys: int) -> KeyOrder:
    """The order of the rows by key."""
    counts = np.bincount(codes[taken], minlength=keys)
    ends = np.cumsum(counts)
    rows = np.empty(int(ends[-1]) if keys else 0, np.int64)
    _place(codes, taken, ends - counts, rows)
    present = np.flatnonzero(counts)
    return KeyOrder(rows, present, np.append(0, ends[present]))


@kernel
def _place(codes: Any, taken: Any, places: Any, rows: Any) -> None:  # pragma: no cover - compiled
    for row in range(len(codes)):
        if taken[row]:
            code = codes[row]
            rows[places[code]] = row
            places[code] += 1


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

    def part(self, first: int, end: int) -> tuple[Int64s, Groups]:
        """The groups [first, end): the indices of their rows, and the groups renumbered."""
        rows = np.flatnonzero((self.of_rows >= first) & (self.of_rows < end))
        return rows, Groups(self.of_rows[rows] - first, self.codes[first:end], self.starts[first:end])


def group(codes: npt.NDArray[np.int32], starts: Int64s) -> Groups:
    """Number the distinct pairs."""
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
    """Pairs of row and window that are not late.

    Attributes:
        rows: int64[m], row of each pair, ascending.
        starts: int64[m], start of its window; ascending within a row.
        late: Number of late pairs.
        stream_time: Largest timestamp so far.
    """

    rows: Int64s
    starts: Int64s
    late: int
    stream_time: int


def assign(timestamps: Int64s, windows: TimeWindows, stream_time: int) -> Assigned:
    """Pair rows with their open windows."""
    most = len(timestamps) * -(-windows.size_ms // windows.advance_ms)
    rows, starts = np.empty(most, np.int64), np.empty(most, np.int64)
    count, late, stream_time = _assign(
        timestamps, windows.size_ms, windows.advance_ms, windows.grace_ms, stream_time, rows, starts
    )
    return Assigned(rows[:count], starts[:count], late, stream_time)


@kernel
def _assign(
    timestamps: Any, size: int, advance: int, grace: int, stream_time: int, rows: Any, starts: Any
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    count, late = 0, 0
    for row in range(len(timestamps)):
        timestamp = timestamps[row]
        stream_time = max(stream_time, timestamp)
        start = max(0, timestamp - size + advance) // advance * advance
        while start <= timestamp:
            if start + size > stream_time - grace:
                rows[count], starts[count] = row, start
                count += 1
            else:
                late += 1
            start += advance
    return count, late, stream_time


# --- The windows of one key while its rows are taken one after the other: their numbers, in the order of time.


@kernel
def first_live_from(times: Any, live: Any, alive: int, least: int) -> int:  # pragma: no cover - compiled
    """The index of the first window with a time of at least `least`, by binary search."""
    low, high = 0, alive
    while low < high:
        middle = (low + high) // 2
        if times[live[middle]] < least:
            low = middle + 1
        else:
            high = middle
    return low
