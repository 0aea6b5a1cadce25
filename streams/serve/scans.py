"""`Scan` describes rows. `Asked`: the rows of a scan, or those after a cursor, merged from the parts that tasks have.

A cursor names the commit of each task, so all pages come from the same commits, whichever process answers.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import cell_sizes
from state.sorting import is_identity, sorted_rows
from state.stores.byte_stores import KeyValueBytesStore
from state.stores.codec import MAX_TIME, prefix_end
from streams.application.store_rows import StoredRows
from streams.errors import QueryError
from streams.serve.position import Commit

Order = tuple[Any, ...]
"""The place of a row in the order: the key's bytes; or start, then key; or end, start, then key."""
_T = TypeVar("_T")
PAGE_BYTES = 16 * 1024 * 1024
"""A page with this many bytes ends early, and its cursor continues it. A limit of rows alone would not limit bytes."""
_MOST_SKIPPED = 100_000


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows that a request asks for.

    Attributes:
        lower: The smallest key, inclusive; None: no bound. Keys are bytes.
        upper: The largest key, inclusive.
        prefix: The first bytes of the keys; not together with the bounds.
        key: The only key, in a store of windows or sessions.
        from_ms: The smallest start of a window, or end of a session; inclusive.
        to_ms: The largest one, inclusive.
        reverse: Whether the largest come first.
        limit: The most rows of a page.
    """

    lower: bytes | None = None
    upper: bytes | None = None
    prefix: bytes | None = None
    key: bytes | None = None
    from_ms: int = 0
    to_ms: int = MAX_TIME
    reverse: bool = False
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of a scan, or the rows after a cursor.

    Attributes:
        store: The store.
        scan: The scan.
        after: The place in the order of the last row that was given; None: no row was.
        skip: The number of rows at that place that were given already.
        versions: Task -> the commit to read; empty: the current commits.
        most_bytes: The most bytes of the stored keys and values of a page; its last row may be larger.
        lives: Task -> the application's life that made the commit, if a cursor has it: after a reset, commits count from 1 again.
    """

    store: str
    scan: Scan
    after: Order | None = None
    skip: int = 0
    versions: Mapping[int, int] = field(default_factory=dict)
    most_bytes: int = PAGE_BYTES
    lives: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: str, scan: Scan, cursor: str | None) -> Asked:
        """The rows of a scan, or the rows after a cursor. A cursor includes its scan, without the limit.

        Raises:
            QueryError: The cursor belongs to another store, or is not a cursor.
        """
        if cursor is None:
            return cls(store, scan)
        try:
            data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            of, parts, after, skip, commits = orjson.loads(data)
            given = Scan(**{name: _value(part) for name, part in parts.items()})
            found = cls(store, replace(given, limit=scan.limit), parse_order(after), skip)
            versions = {task: version for task, version, _ in commits}
            found = replace(found, versions=versions, lives={task: life for task, _, life in commits})
            found._check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise QueryError("this server has not issued this cursor: begin again without one") from error
        if of != store:
            raise QueryError(f"the cursor is of store {of!r}, not of {store!r}")
        return found

    def _check(self) -> None:
        """Raises `ValueError` or `TypeError` if the cursor has a part that this server never puts into a cursor."""
        scan = self.scan
        bytes_ = (scan.lower, scan.upper, scan.prefix, scan.key)
        numbers = (self.skip, scan.from_ms, scan.to_ms, *self.versions, *self.versions.values())
        if not all(isinstance(one, bytes | None) for one in bytes_) or not isinstance(scan.reverse, bool):
            raise TypeError
        if not all(isinstance(life, str) for life in self.lives.values()):
            raise TypeError
        if not all(type(one) is int and 0 <= one <= MAX_TIME for one in numbers) or self.skip > _MOST_SKIPPED:
            raise ValueError
        if not self.after or not all(type(one) in (int, bytes, str, float) for one in self.after):
            raise ValueError

    def within(self, rows: Iterable[_T], size: Callable[[_T], int]) -> tuple[list[_T], bool]:
        """The rows of one task's part that a page may need, and whether the page's limit of bytes has cut them off.

        Args:
            rows: The rows from `after` on, in order.
            size: The bytes of a row.
        """
        found: list[_T] = []
        left = self.most_bytes
        for row in islice(rows, self.reach):
            found.append(row)
            # The first `skip` rows were on earlier pages, so they do not count.
            if len(found) > self.skip:
                left -= size(row)
                if left < 0 and len(found) < self.reach:
                    return found, True
        return found, False

    @property
    def reach(self) -> int:
        """The most rows that a page may need of one part. It includes one more row, which shows that there are further ones."""
        return self.skip + self.scan.limit + 1

    def page(
        self,
        parts: Sequence[Sequence[tuple[Order, _T]]],
        commits: Mapping[int, Commit],
        cut: Collection[int] = (),
    ) -> tuple[list[_T], str | None]:
        """A page, and the cursor that continues it; None: there are no further rows.

        Args:
            parts: The rows that the tasks have from `after` on, each in order, up to `reach`.
            commits: Task -> the commit of its rows.
            cut: The indexes of the parts that were cut off: the rows after their last ones are not known here.
        """
        rest: Iterator[tuple[Order, _T]] = heapq.merge(*parts, key=lambda row: row[0], reverse=self.scan.reverse)
        if cut:
            last_known = (max if self.scan.reverse else min)(parts[place][-1][0] for place in cut)
            rest = takewhile(lambda row: row[0] == last_known or (row[0] < last_known) != self.scan.reverse, rest)
        page = list(islice(rest, self.skip, self.skip + self.scan.limit))
        if not page or (next(rest, None) is None and not cut):
            return [row for _, row in page], None
        last = page[-1][0]
        return [row for _, row in page], self.behind(last, sum(order == last for order, _ in page), commits)

    def behind(self, last: Order, same: int, commits: Mapping[int, Commit]) -> str:
        """The cursor that continues after a page.

        Args:
            last: The place in the order of its last row.
            same: The number of rows of the page at that place.
            commits: Task -> the commit of its rows.
        """
        same += self.skip if last == self.after else 0
        scan = {name: _text(value) for name, value in asdict(self.scan).items()}
        data = orjson.dumps(
            [self.store, scan, order_text(last), same, [[task, *commit] for task, commit in commits.items()]]
        )
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def order_text(order: Order) -> list[Any]:
    """Writes a place in the order as JSON."""
    return [_text(part) for part in order]


def parse_order(data: Sequence[Any]) -> Order:
    """Reads a place in the order that `order_text` has written."""
    return tuple(map(_value, data))


def _text(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _value(data: Any) -> Any:
    return bytes.fromhex(data["hex"]) if isinstance(data, dict) else data


# --- Rows as columns, in the order of the keys' bytes: the parts of several tasks become one.
#
# A page of a thousand rows has no object for each of them until it is written, which is most of what it costs otherwise.

_FEWEST = 32
"""The smallest number of rows to read from a task at a time. Starting a read takes as long as reading this many."""
_CHUNK_BYTES = 1024 * 1024

_Part = tuple[pa.BinaryArray, pa.BinaryArray, npt.NDArray[np.int64]]
"""Keys, local values and the tasks that they come from, as columns."""


@dataclass(frozen=True, slots=True)
class ColumnsPart:
    """Rows of some tasks, in order.

    Attributes:
        keys: Their keys.
        values: Their local values.
        tasks: Their tasks.
        cut: Whether they were cut off because of their size in bytes (`Asked.within`).
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
    """The rows from `asked.after` on that a page may need, cut off as by `Asked.within`.

    Args:
        stores: Task -> the store.
        asked: What is asked for; a scan that runs forward.
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
    """The next rows of all tasks in order, without gaps up to the last returned row; None: there are no more."""
    each = max(_FEWEST, -(-rows // len(stores)))
    parts = []
    for task, store in stores.items():
        keys, values = store.first_columns(start, end, each, _CHUNK_BYTES)
        if len(keys):
            parts.append((keys, values, np.full(len(keys), task)))
    if len(parts) < 2:
        return parts[0] if parts else None
    # The rows after the last one that was read of a task are not known.
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
    """Cuts the rows to what a page may need; the row that exceeds the bytes is the last one."""
    keys, values, tasks = (column[: asked.reach] for column in part)
    sizes = np.cumsum(_sizes((keys, values, tasks))[asked.skip :])
    large = asked.skip + int(np.searchsorted(sizes, asked.most_bytes, side="right"))
    if large >= len(keys) or large + 1 >= asked.reach:
        return ColumnsPart(keys, values, tasks, cut=False)
    return ColumnsPart(keys[: large + 1], values[: large + 1], tasks[: large + 1], cut=True)


def _sizes(part: _Part) -> npt.NDArray[np.int64]:
    return cell_sizes(part[0]) + cell_sizes(part[1])
