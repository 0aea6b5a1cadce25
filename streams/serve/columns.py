"""Rows of stores with a row per key as columns, in the order of the keys' bytes: the parts of several tasks become one.

A page of a thousand rows has no object for each of them until it is written, which is most of what it costs otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import cell_sizes
from state.sorting import is_identity, sorted_rows
from state.stores.byte_stores import KeyValueBytesStore
from state.stores.codec import prefix_end
from streams.application.store_rows import StoredRows
from streams.serve.scans import Asked

_FEWEST = 32
"""Rows that are read of each task at least: to begin costs as much."""
_CHUNK_BYTES = 1024 * 1024

_Part = tuple[pa.BinaryArray, pa.BinaryArray, npt.NDArray[np.int64]]
"""Keys, local values and the tasks that they come from."""


@dataclass(frozen=True, slots=True)
class ColumnsPart:
    """Rows of some tasks, in order.

    Attributes:
        keys: Their keys.
        values: Their local values.
        tasks: Their tasks.
        cut: Whether they were cut off because of their bytes (`Asked.within`).
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    tasks: npt.NDArray[np.int64]
    cut: bool

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, first: int, behind: int, timestamped: bool) -> StoredRows:
        """Some of the rows, by their number."""
        return StoredRows.of_local(self.keys[first:behind], self.values[first:behind], timestamped)


def first_rows(stores: Mapping[int, KeyValueBytesStore], asked: Asked) -> ColumnsPart:
    """The rows from `asked.after` on that a page may need, as `Asked.within` has them.

    Args:
        stores: Task -> the store.
        asked: What is asked for; forward.
    """
    scan = asked.scan
    upper = None if scan.upper is None else scan.upper + b"\x00"
    end = upper if scan.prefix is None else prefix_end(scan.prefix)
    start = scan.prefix or b"" if scan.lower is None else scan.lower
    if asked.after is not None:
        start = asked.after[0]
    found: list[_Part] = []
    rows = counted = 0
    while rows < asked.reach and counted <= asked.most_bytes:
        part = _next(stores, start, end, asked.reach - rows)
        if part is None:
            break
        found.append(part)
        counted += int(_sizes(part)[max(0, asked.skip - rows) :].sum())
        rows += len(part[0])
        start = part[0][-1].as_py() + b"\x00"
    return _cut(_joined(found), asked)


def _next(stores: Mapping[int, KeyValueBytesStore], start: bytes, end: bytes | None, rows: int) -> _Part | None:
    """Some of the next rows, all of them up to the last one; None: there are no more."""
    each = max(_FEWEST, -(-rows // len(stores)))
    parts = []
    for task, store in stores.items():
        keys, values = store.first_columns(start, end, each, _CHUNK_BYTES)
        if len(keys):
            parts.append((keys, values, np.full(len(keys), task)))
    if len(parts) < 2:
        return parts[0] if parts else None
    # What comes behind the last row that was read of a task is not known.
    known = pa.scalar(min(keys[-1].as_py() for keys, _, _ in parts), pa.binary())
    counts = [pc.sum(pc.less_equal(keys, known)).as_py() for keys, _, _ in parts]
    keys, values, tasks = _joined([(k[:n], v[:n], t[:n]) for (k, v, t), n in zip(parts, counts, strict=True)])
    order = sorted_rows(keys)
    if is_identity(order):
        return keys, values, tasks
    at = pa.array(order)
    return keys.take(at), values.take(at), tasks[order]


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    empty = pa.array([], pa.binary())
    keys, values = (pa.concat_arrays([part[which] for part in parts] or [empty]) for which in (0, 1))
    return keys, values, np.concatenate([part[2] for part in parts] or [np.empty(0, np.int64)])


def _cut(part: _Part, asked: Asked) -> ColumnsPart:
    """No more than a page may need; the row that is too large is the last one."""
    keys, values, tasks = (column[: asked.reach] for column in part)
    sizes = np.cumsum(_sizes((keys, values, tasks))[asked.skip :])
    large = asked.skip + int(np.searchsorted(sizes, asked.most_bytes, side="right"))
    if large >= len(keys) or large + 1 >= asked.reach:
        return ColumnsPart(keys, values, tasks, cut=False)
    return ColumnsPart(keys[: large + 1], values[: large + 1], tasks[: large + 1], cut=True)


def _sizes(part: _Part) -> npt.NDArray[np.int64]:
    return cell_sizes(part[0]) + cell_sizes(part[1])
