"""`ReadStore`: reads one store over the copies of its tasks, by key, range, window and time, and returns their commits.

All rows of an answer that come from one task come from one commit. So do all pages of a scan: the cursor names the commit of each
task, which the copies keep for a while. Rows of several tasks are merged in the order of their keys, or of their times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from state.columns import FEW_CELLS
from state.kafka.key_hash import NO_KEY, partition_for_key
from state.kafka.partitioner import partition_for_keys
from state.kafka.placement import Placement
from state.stores.byte_stores import KeyValueBytesStore, SessionBytesStore, VersionedRecord, WindowBytesStore
from state.stores.codec import MAX_TIME, split_timestamped
from state.stores.dump import DumpRow
from state.stores.spec import StoreKind
from state.tables.table import Row
from streams.application.store_rows import StoredRows, StoreReader
from streams.errors import ConfigError, CursorExpiredError, KeyOrderError, QueryError, StoreNotReadyError
from streams.serdes.base import Serde
from streams.serdes.json_shown import schema_of
from streams.serdes.order import KeyOrder, check_bound, key_order
from streams.serve.copies import Copy, View
from streams.serve.position import Commit, Position, common
from streams.serve.scans import Asked, Order, Scan, first_rows

_AT_A_TIME = 200
"""This many keys of a batch are looked up at a time, so that the bytes of their values can be counted early."""
_MOST_AT_A_TIME = 3200
_SMALL_BYTES = 1024 * 1024
"""If the values have at most this many bytes, twice as many keys are looked up next."""
HELD_S = 60.0
"""How long the rows of a commit are kept for the next page of a cursor."""

_Row = tuple[Order, tuple[DumpRow, int]]
"""A row of a task, and the place in the order that it is sorted by."""

Decode = Callable[[DumpRow, int], Any]
"""Makes a row of one that a task has: `StoreReader.decoded`, or `StoreReader.text` for answers in JSON."""


class Point(NamedTuple):
    """The commit that a task's answer is from.

    Attributes:
        sub: The sub-topology; empty: the global tables.
        task: The task.
        version: The number of the commit.
        position: The position of the sources.
        age_ms: How old the answer may be: the time for which a later commit may have existed, in ms.
        life: The application's life that made the commit (`View.life`).
    """

    sub: str
    task: int
    version: int
    position: Position
    age_ms: int
    life: str = ""

    @property
    def commit(self) -> Commit:
        """The commit."""
        return Commit(self.version, self.life)


@dataclass(frozen=True)
class Answer:
    """Rows, and the commits that they are from.

    Attributes:
        rows: The rows, made as the caller wants (`Decode`); empty: there is no such row.
        points: One for each task that was asked.
        cursor: Continues after the last row; None: there are no more.
    """

    rows: tuple[Any, ...]
    points: tuple[Point, ...]
    cursor: str | None = None

    @property
    def position(self) -> Position:
        """The position that all of the asked tasks cover."""
        if len(self.points) == 1:
            return self.points[0].position
        return common(point.position for point in self.points)

    @property
    def commits(self) -> dict[tuple[str, int], Commit]:
        """Sub-topology and task -> the commit. Global tables are left out: other processes would not know their commits."""
        return {(point.sub, point.task): point.commit for point in self.points if point.sub}

    @property
    def age_ms(self) -> int:
        """The age of the oldest part of the answer, in ms."""
        return max((point.age_ms for point in self.points), default=0)


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Rows of some tasks, each with its place in the order and its task; their commits; whether they were cut (`Asked.within`)."""

    rows: list[_Row]
    points: tuple[Point, ...]
    cut: bool = False


CopyOf = Callable[[int], Copy | None]
"""Task -> its copy, if it is here."""


class ReadStore:
    """One store.

    Args:
        name: Its name.
        kind: Its kind.
        reader: Its serdes.
        sub: Its sub-topology; empty: it is a global table.
        tasks: The number of tasks that have a part of it.
        copy_of: Finds the copies.
        placement: Returns the rule that assigns keys to tasks.
    """

    def __init__(
        self,
        name: str,
        kind: StoreKind,
        reader: StoreReader,
        sub: str,
        tasks: int,
        copy_of: CopyOf,
        placement: Callable[[], Placement] = lambda: Placement.MURMUR2,
    ) -> None:
        self.name = name
        self.kind = kind
        self.reader = reader
        self.sub = sub
        self.tasks = tasks
        self._copy_of = copy_of
        self._placement = placement
        self._timestamped = kind.timestamped
        self._at_a_time = _AT_A_TIME

    @property
    def value_schema(self) -> dict[str, Any]:
        """The JSON Schema of the values in answers; empty, which allows anything, if it is not known."""
        return {} if self.reader.computes else schema_of(self.reader.value_serde)

    def task_of(self, key: bytes) -> int | None:
        """The task that has the rows of a key; None: it may be any of them, since each task has the records of its partitions."""
        if not self.sub or self.tasks == 1:
            return 0
        task = partition_for_key(key, self.tasks, self._placement())
        return None if task == NO_KEY else task

    def tasks_with(self, key: bytes) -> Sequence[int]:
        """The tasks that may have rows of a key."""
        task = self.task_of(key)
        return range(self.tasks) if task is None else [task]

    def by_task(self, keys: Sequence[bytes]) -> dict[int, list[int]]:
        """Task -> the indexes, in the list, of the keys that it may have."""
        if not self.sub or self.tasks == 1:
            return {0: list(range(len(keys)))}
        placement = self._placement()
        if placement is Placement.PARTITION:
            return {task: list(range(len(keys))) for task in range(self.tasks)}
        found: dict[int, list[int]] = {}
        # Compiled, since the hash of a key in Python takes as long as reading its row.
        for place, task in enumerate(partition_for_keys(pa.array(keys, pa.binary()), self.tasks, placement).tolist()):
            found.setdefault(task, []).append(place)
        return found

    def copy(self, task: int) -> Copy:
        """The copy of a task.

        Raises:
            StoreNotReadyError: The copy is not in this process.
        """
        found = self.find(task)
        if found is None:
            raise StoreNotReadyError(
                f"task {task} of {self.sub}, which has these rows of {self.name!r}, is not served here"
            )
        return found

    def find(self, task: int) -> Copy | None:
        """The copy of a task, or None if it is not in this process."""
        return self._copy_of(task)

    def here(self) -> list[Copy]:
        """The copies that are in this process."""
        return [copy for task in range(self.tasks) if (copy := self.find(task)) is not None]

    def get(
        self,
        keys: Iterable[bytes],
        as_of_ms: int | None = None,
        in_task: int | None = None,
        decode: Decode | None = None,
    ) -> Answer:
        """The row of the first of these keys that has one. The keys are different ways to write the same key.

        Args:
            keys: The keys.
            as_of_ms: The time of a version; None: the newest one.
            in_task: The task to look into; default: that of the key. A processor's store may have rows under other keys.
            decode: Makes the row from its bytes; default: `StoreReader.decoded`.

        Raises:
            QueryError: The store has windows or sessions, or a time is given and it has no versions.
            StoreNotReadyError: The copy of the key's task cannot be read here.
        """
        tasks = [(key, task) for key in keys for task in (self.tasks_with(key) if in_task is None else [in_task])]
        return self.look_up(tasks, as_of_ms, decode)

    def look_up(
        self, keys: Iterable[tuple[bytes, int]], as_of_ms: int | None = None, decode: Decode | None = None
    ) -> Answer:
        """Looks up each key in the task that is given with it, and otherwise works as `get`."""
        if self.kind.segmented:
            raise QueryError(f"{self.name!r} has {self._sort}: ask for the {self._sort} of a key")
        if as_of_ms is not None and self.kind is not StoreKind.VERSIONED:
            raise QueryError(f"{self.name!r} has no versions, so a row as of a time cannot be read")
        points: dict[int, Point] = {}
        for key, task in keys:
            copy = self.copy(task)
            with copy.reading() as view:
                points[task] = self.point(task, copy, view)
                row = self._found(view, key, as_of_ms)
                if row is not None:
                    return Answer(((decode or self.reader.decoded)(row, task),), (points[task],))
        return Answer((), tuple(points.values()))

    def get_all(self, keys: Sequence[bytes]) -> Answer:
        """The rows of many keys, in the order of the keys; keys without a row are left out.

        Raises:
            QueryError: The store has windows, sessions or versions.
            StoreNotReadyError: The copy of a key's task cannot be read here.
        """
        values, tasks, points = self.get_each(keys)
        there = [task for task, value in zip(tasks, values, strict=True) if value is not None]
        return Answer(tuple(self.reader.all_decoded(self.stored(keys, values), there)), points)

    def get_each(
        self,
        keys: Sequence[bytes],
        versions: Mapping[int, int] | None = None,
        most_bytes: int | None = None,
        by_task: Mapping[int, Sequence[int]] | None = None,
    ) -> tuple[list[bytes | None], list[int], tuple[Point, ...]]:
        """The stored value of each key, or None; the task that has it; and the commits. The errors are as for `get_all`.

        Args:
            keys: The keys.
            versions: Task -> the commit to read; default: the current one.
            most_bytes: The most bytes of all values; None: any number.
            by_task: The result of `by_task` for the keys, if it is known.
        """
        if self.kind.segmented or self.kind is StoreKind.VERSIONED:
            raise QueryError(
                f"{self.name!r} has {self._sort}: a batch of keys can be read only from stores with one row per key"
            )
        found: list[bytes | None] = [None] * len(keys)
        of, points = [0] * len(keys), []
        left = most_bytes
        for task, places in (self.by_task(keys) if by_task is None else by_task).items():
            copy = self.copy(task)
            with copy.reading((versions or {}).get(task)) as view:
                points.append(self.point(task, copy, view))
                begin = 0
                while some := places[begin : begin + self._at_a_time]:
                    begin += len(some)
                    values = _of(view, self.name).multi_get([keys[place] for place in some])
                    size = sum(map(len, filter(None, values)))
                    self._note_size(size, len(some))
                    if left is not None:
                        left -= size
                        if left < 0:
                            raise QueryError(
                                f"the values of these keys have more than {most_bytes} bytes: ask for fewer"
                            )
                    for place, value in zip(some, values, strict=True):
                        # If a key may be in any task, only one task has the row.
                        if value is not None:
                            found[place], of[place] = value, task
        return found, of, tuple(points)

    def _note_size(self, size: int, keys: int) -> None:
        """Adapts the number of keys to look up at once. More keys are faster, but their values together must not be too large."""
        if size > _SMALL_BYTES:
            self._at_a_time = _AT_A_TIME
        elif keys == self._at_a_time:
            self._at_a_time = min(2 * keys, _MOST_AT_A_TIME)

    def value(self, key: bytes, value: bytes) -> Any:
        """Decodes the stored value of a key."""
        return self.reader.decoded(self._row(key, value), 0).value

    def stored(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> StoredRows:
        """The existing rows, made from the keys and the stored values (`get_each`)."""
        there = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        keys_of, values_of = (pa.array([row[place] for row in there], pa.binary()) for place in range(2))
        return StoredRows.of_local(keys_of, values_of, self._timestamped)

    def texts(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[bytes | None]:
        """The rows as JSON (`StoreReader.text`), made from the keys and the stored values; None where a key has no row."""
        if len(keys) > FEW_CELLS:
            rows = iter(self.reader.texts(self.stored(keys, values)))
            return [None if value is None else next(rows) for value in values]
        made, timed = self.reader.plain_text, self._timestamped
        return [
            None if value is None else made(key, *(split_timestamped(value) if timed else (value, None)))
            for key, value in zip(keys, values, strict=True)
        ]

    def scan(self, scan: Scan, cursor: str | None = None) -> Answer:
        """A page of rows, decoded.

        Args:
            scan: Which rows. With a cursor, which has its own scan, only the limit counts.
            cursor: The place where the last page ended.

        Raises:
            QueryError: The store has no such order, or the cursor belongs to another store.
            StoreNotReadyError: A copy cannot be read here.
            CursorExpiredError: The commits of the last page are not kept any more.
        """
        stored, tasks, answer = self.page(self.asked(scan, cursor))
        return replace(answer, rows=tuple(self.reader.all_decoded(stored, tasks)))

    def page(self, asked: Asked, tasks: Sequence[int] | None = None) -> tuple[StoredRows, Sequence[int], Answer]:
        """A page of the rows that are asked for, the task of each, and the answer without the rows.

        Args:
            asked: What is asked for.
            tasks: The tasks to read; default: all.

        Raises:
            StoreNotReadyError: A copy cannot be read here.
            CursorExpiredError: The commits that are asked for are not kept any more.
        """
        tasks = self.tasks_of(asked.scan) if tasks is None else tasks
        if self._in_columns(asked):
            return self._columns(asked, tasks)
        part = self.part(asked, tasks)
        page, following = asked.page([part.rows], _commits(part.points), [0] if part.cut else ())
        return (
            self.reader.stored([row for row, _ in page]),
            [task for _, task in page],
            Answer((), part.points, following),
        )

    def _in_columns(self, asked: Asked) -> bool:
        """Whether to read columns instead of rows: for many rows, forward, in the order of the keys' bytes."""
        scan = asked.scan
        in_order = not self.kind.segmented and not scan.reverse and not _order(self.reader.key_serde, scan).size
        return in_order and asked.reach > FEW_CELLS

    def _columns(self, asked: Asked, tasks: Iterable[int]) -> tuple[StoredRows, list[int], Answer]:
        """A page that is read in columns, with the results of `page`."""
        with ExitStack() as reading:
            views = self._views(asked, tasks, reading)
            points = tuple(self.point(task, copy, view) for task, (copy, view) in views.items())
            part = first_rows({task: _of(view, self.name) for task, (_, view) in views.items()}, asked)
            first, behind = asked.skip, min(asked.skip + asked.scan.limit, len(part))
            page = part.rows(first, behind, self._timestamped)
            cursor = None
            if behind > first and (part.cut or behind < len(part)):
                last = part.keys[behind - 1].as_py()
                same = pc.sum(pc.equal(page.keys, pa.scalar(last, pa.binary()))).as_py()
                cursor = asked.behind((last,), same, _commits(points))
                _hold(views.values())
            return page, part.tasks[first:behind].tolist(), Answer((), points, cursor)

    def asked(self, scan: Scan, cursor: str | None) -> Asked:
        """What a request asks for: the rows of a scan, or the rows after a cursor.

        Raises:
            QueryError: The store has no such order, or the cursor belongs to another store.
        """
        found = Asked.of(self.name, scan, cursor)
        self.check(found.scan)
        if found.after is not None:
            self._check_place(found.scan, found.after)
        return found

    def _check_place(self, scan: Scan, after: Order) -> None:
        """Refuses a cursor at a place where this store cannot have a row."""
        if self.kind is StoreKind.SESSION:
            fits = tuple(map(type, after)) == (int, int, bytes)
        elif self.kind.windowed:
            fits = tuple(map(type, after)) == (int, bytes)
        else:
            fits = tuple(map(type, after)) == (bytes,) and len(after[0]) >= _order(self.reader.key_serde, scan).size
        if not fits:
            raise QueryError("this server has not issued this cursor: begin again without one")

    def tasks_of(self, scan: Scan) -> Sequence[int]:
        """The tasks that have the rows of a scan."""
        return range(self.tasks) if scan.key is None else self.tasks_with(scan.key)

    def part(self, asked: Asked, tasks: Iterable[int], hold: bool = False) -> RowsPart:
        """The rows of some tasks that a page may need, in order.

        Args:
            asked: What is asked for.
            tasks: The tasks.
            hold: Whether to keep the commits for the next page, even if this process has no further rows.

        Raises:
            StoreNotReadyError: A copy cannot be read here.
            CursorExpiredError: The commits of the last page are not kept any more.
        """
        scan = asked.scan
        with ExitStack() as reading:
            views = self._views(asked, tasks, reading)
            points = tuple(self.point(task, copy, view) for task, (copy, view) in views.items())
            rest = self._behind(scan, asked.after)
            parts = [self._part(task, view, rest) for task, (_, view) in views.items()]
            merged = heapq.merge(*parts, key=lambda part: part[0], reverse=scan.reverse)
            rows, cut = asked.within(_after(merged, asked.after, scan.reverse), _bytes_of)
            if hold or cut or len(rows) == asked.reach:
                _hold(views.values())
            return RowsPart(rows, points, cut)

    def _views(self, asked: Asked, tasks: Iterable[int], reading: ExitStack) -> dict[int, tuple[Copy, View]]:
        """Task -> its copy, and the view that is asked for. The views stay open until the stack is closed."""
        views = {}
        for task in tasks:
            copy = self.copy(task)
            view = reading.enter_context(copy.reading(asked.versions.get(task)))
            if asked.lives.get(task, view.life) != view.life:
                raise CursorExpiredError(
                    "the application was reset after this cursor was created: start again without it"
                )
            views[task] = copy, view
        return views

    def _behind(self, scan: Scan, after: Order | None) -> Scan:
        """The scan, narrowed to the rows from the cursor on, as far as the store can skip the others."""
        if after is None:
            return scan
        if self.kind.segmented:
            return replace(scan, to_ms=after[0]) if scan.reverse else replace(scan, from_ms=after[0])
        key = _order(self.reader.key_serde, scan).key_of(after[0])
        return replace(scan, upper=key) if scan.reverse else replace(scan, lower=key)

    def _part(self, task: int, view: View, scan: Scan) -> Iterator[_Row]:
        return ((order, (row, task)) for order, row in self._rows(view, scan))

    def points(self, tasks: Iterable[int] | None = None) -> tuple[Point, ...]:
        """The commits at which the tasks can be read now.

        Raises:
            StoreNotReadyError: A copy cannot be read here.
        """
        found = []
        for task in range(self.tasks) if tasks is None else tasks:
            copy = self.copy(task)
            with copy.reading() as view:
                found.append(self.point(task, copy, view))
        return tuple(found)

    @property
    def _sort(self) -> str:
        if self.kind is StoreKind.SESSION:
            return "sessions"
        return "windows" if self.kind.windowed else "versions"

    def check(self, scan: Scan) -> None:
        """Checks that the store has the order of a scan.

        Raises:
            QueryError: The store does not have this order.
        """
        if self.kind is StoreKind.VERSIONED:
            raise QueryError(f"{self.name!r} has versions: its rows can be read by key and time only")
        if scan.prefix is not None and (scan.lower is not None or scan.upper is not None):
            raise QueryError("a scan has a prefix or bounds of the keys, not both")
        timed = (scan.from_ms, scan.to_ms) != (0, MAX_TIME)
        if not self.kind.segmented and (scan.key is not None or timed):
            raise QueryError(f"{self.name!r} has neither windows nor sessions, so its rows have no times to ask for")
        if self.kind.segmented and (scan.prefix, scan.lower, scan.upper) != (None, None, None):
            raise QueryError(f"{self.name!r} has {self._sort}: they are read by key and time, not by ranges of keys")
        if scan.limit < 1:
            raise QueryError(f"a page has at least one row, not {scan.limit}")

    def prefix_bytes(self, prefix: str | bytes) -> bytes:
        """The first bytes of the keys with a prefix (`StoreReader.prefix_bytes`).

        Raises:
            QueryError: The keys have no prefixes.
        """
        try:
            return self.reader.prefix_bytes(prefix)
        except ConfigError as error:
            raise QueryError(str(error)) from error

    def check_bound(self, key: Any) -> None:
        """Checks that a key can be the bound of a range.

        Raises:
            QueryError: The bytes of such keys do not sort as the keys do.
        """
        try:
            check_bound(self.reader.key_serde, key, f"store {self.name!r}")
        except KeyOrderError as error:
            raise QueryError(str(error)) from error

    def point(self, task: int, copy: Copy, view: View) -> Point:
        """The commit, position and age of a view of a task."""
        return Point(self.sub, task, view.version, view.position, copy.age_ms_of(view), view.life)

    def _found(self, view: View, key: bytes, as_of_ms: int | None) -> DumpRow | None:
        found: Any = view.stores.store(self.name)
        if self.kind is StoreKind.VERSIONED:
            version: VersionedRecord | None = found.get(key, as_of_ms)
            return None if version is None else DumpRow(key, None, None, version.timestamp, version.value)
        value: bytes | None = found.get(key)
        return None if value is None else self._row(key, value)

    def _row(self, key: bytes, value: bytes, start: int | None = None, end: int | None = None) -> DumpRow:
        timestamp = None
        if self._timestamped:
            value, timestamp = split_timestamped(value)
        return DumpRow(key, start, end, timestamp, value)

    def _rows(self, view: View, scan: Scan) -> Iterator[tuple[Order, DumpRow]]:
        """The rows of a task, each with its place in the order."""
        found: Any = view.stores.store(self.name)
        if self.kind is StoreKind.SESSION:
            return (
                ((end, start, key), self._row(key, value, start, end))
                for key, start, end, value in _sessions(found, scan)
            )
        if self.kind.windowed:
            return (((start, key), self._row(key, value, start)) for key, start, value in _windows(found, scan))
        order = _order(self.reader.key_serde, scan)
        return (((order.rank(key),), self._row(key, value)) for key, value in _keys(found, scan, order))


def _commits(points: Iterable[Point]) -> dict[int, Commit]:
    return {point.task: point.commit for point in points}


def _hold(views: Iterable[tuple[Copy, View]]) -> None:
    """Keeps the commits for the next page."""
    for copy, view in views:
        copy.hold(view, HELD_S)


def _bytes_of(row: _Row) -> int:
    found = row[1][0]
    return len(found.key) + len(found.value or b"")


def _of(view: View, name: str) -> KeyValueBytesStore:
    """A store that has one row for each key."""
    return view.stores.store(name)  # type: ignore[return-value]


def _sessions(store: SessionBytesStore, scan: Scan) -> Iterator[tuple[bytes, int, int, bytes]]:
    if scan.key is None:
        return store.fetch_all(scan.from_ms, scan.to_ms, scan.reverse)
    key = scan.key
    found = store.find_sessions(key, scan.from_ms, MAX_TIME, scan.reverse)
    return ((key, start, end, value) for start, end, value in found if end <= scan.to_ms)


def _windows(store: WindowBytesStore, scan: Scan) -> Iterator[tuple[bytes, int, bytes]]:
    if scan.key is None:
        return store.fetch_all(scan.from_ms, scan.to_ms, scan.reverse)
    key = scan.key
    return ((key, start, value) for start, value in store.fetch_range(key, scan.from_ms, scan.to_ms, scan.reverse))


def _order(serde: Serde, scan: Scan) -> KeyOrder:
    """The order of a scan: a range is in the order of the keys; rows with a prefix are in the order of the bytes."""
    return key_order(serde) if scan.prefix is None else KeyOrder()


def _keys(store: KeyValueBytesStore, scan: Scan, order: KeyOrder) -> Iterator[Row]:
    prefix = scan.prefix
    if prefix is None:
        spans = order.spans(scan.lower, scan.upper, scan.reverse)
        return chain.from_iterable([store.range(*span) for span in spans])
    if scan.lower is None and scan.upper is None:
        return store.prefix(prefix, scan.reverse)
    # After a cursor, which is at a row with the prefix.
    rows = store.range(scan.lower or prefix, scan.upper, scan.reverse)
    return takewhile(lambda row: row[0].startswith(prefix), rows)


def _after(rows: Iterator[_Row], after: Order | None, reverse: bool) -> Iterator[_Row]:
    """The rows from a place in the order on, including the place itself."""
    return (row for row in rows if after is None or row[0] == after or (row[0] > after) != reverse)
