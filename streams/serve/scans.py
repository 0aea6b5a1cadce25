"""`Scan`: which rows; `Asked`: the rows of a scan, or those behind a cursor, which are merged out of the parts that tasks have.

A cursor names the commit of each task, so all pages are of the same commits, whichever process answers.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, TypeVar

import orjson

from state.stores.codec import MAX_TIME
from streams.errors import QueryError
from streams.serve.position import Commit

Order = tuple[Any, ...]
"""What rows are ordered by: the key's bytes; or start, then key; or end, start, then key."""
_T = TypeVar("_T")
PAGE_BYTES = 16 * 1024 * 1024
"""A page with so many bytes ends early, and its cursor continues it: limits of rows say nothing of how large those are."""
_MOST_SKIPPED = 100_000


@dataclass(frozen=True, slots=True)
class Scan:
    """Which rows.

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
    """The rows of a scan, or those behind a cursor.

    Attributes:
        store: The store.
        scan: The scan.
        after: The place in the order of the last row that was given; None: none was.
        skip: How many rows at that place were given.
        versions: Task -> the commit that its rows are of; empty: the present ones.
        most_bytes: The most bytes of the stored keys and values of a page; its last row may be larger.
        lives: Task -> which application made that commit, where a cursor says so: a reset one counts again from 1.
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
        """The rows of a scan; with a cursor, which has the scan except for its limit, those behind it.

        Raises:
            QueryError: The cursor is of another store, or none at all.
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
            raise QueryError("the cursor is none that this server has given: begin again without one") from error
        if of != store:
            raise QueryError(f"the cursor is of store {of!r}, not of {store!r}")
        return found

    def _check(self) -> None:
        """Raises `ValueError` or `TypeError` where a cursor has parts that none has which was given."""
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
        """The rows of one part that a page may need, and whether they were cut off because of their bytes.

        Args:
            rows: The rows from `after` on, in order.
            size: The bytes of a row.
        """
        found: list[_T] = []
        left = self.most_bytes
        for row in islice(rows, self.reach):
            found.append(row)
            # The first rows were given before, and are not in the page.
            if len(found) > self.skip:
                left -= size(row)
                if left < 0 and len(found) < self.reach:
                    return found, True
        return found, False

    @property
    def reach(self) -> int:
        """The most rows of one part that a page may need: one more shows that there are further ones."""
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
            cut: The places of the parts that were cut off: what comes behind their last rows is not known here.
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
        """The cursor behind a page.

        Args:
            last: The place in the order of its last row.
            same: How many rows of the page are at that place.
            commits: Task -> the commit of its rows.
        """
        same += self.skip if last == self.after else 0
        scan = {name: _text(value) for name, value in asdict(self.scan).items()}
        data = orjson.dumps(
            [self.store, scan, order_text(last), same, [[task, *commit] for task, commit in commits.items()]]
        )
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def order_text(order: Order) -> list[Any]:
    """A place in the order as JSON."""
    return [_text(part) for part in order]


def parse_order(data: Sequence[Any]) -> Order:
    """What `order_text` has written."""
    return tuple(map(_value, data))


def _text(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _value(data: Any) -> Any:
    return bytes.fromhex(data["hex"]) if isinstance(data, dict) else data
