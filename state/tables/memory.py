"""`MemoryTable`: an ordered table in memory, for tests, the test driver and non-persistent stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from state.tables.columns import RowByRow
from state.tables.sizes import FIRST_ROWS, RangeSize
from state.tables.table import KeyRange, Row, RowChange


class MemoryTable(RowByRow):
    """A sorted dictionary behind the interface `OrderedTable`."""

    location = "memory"

    def __init__(self) -> None:
        self._rows: SortedDict = SortedDict()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._rows.get(key)
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._rows.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        rows = self._rows
        return iter([(key, rows[key]) for key in rows.irange(lower, upper, (True, False), reverse)])

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        if halfway is not None:
            halfway()
        rows = self._rows
        for lower, upper in delete_ranges:
            for key in list(rows.irange(lower, upper, (True, False))):
                del rows[key]
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
        return [self._size(*one) for one in ranges]

    def _size(self, lower: bytes, upper: bytes) -> RangeSize:
        rows = self._rows
        count = rows.bisect_left(upper) - rows.bisect_left(lower)
        first = list(islice(rows.irange(lower, upper, (True, False)), FIRST_ROWS))
        size = sum(len(key) + len(rows[key]) for key in first)
        return RangeSize(count, size * count // max(1, len(first)))

    def close(self) -> None:
        """Has no effect: the rows stay, and the table may be used again."""
