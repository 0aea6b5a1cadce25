"""The lists of `top` within a step, as bytes: a list's JSON is made of the JSON of its values, which are in the rows' keys.

The definition (`TableTop`) decodes a group's values for each update, compares them with the list in the store, and writes that
again. Here a list is known by the keys of its rows. Two lists are compared by these keys, and only values whose keys differ are
decoded. Each changed list is written once, at the end of the step. Results, rows and their order are those of the definition.

If the stored list has other bytes than its rows, or another operator reads or changes single rows, the lists of the step become
rows in the store's cache, and the definition continues with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from state.columns import binary_column
from state.headers import encode_headers
from streams.model.record import Headers, Record
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.operators.stores.codec import timestamp_of, value_of
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.table.table_materializer import TableMaterializer


class _List:
    """The list of a group: the keys of its rows, its timestamp (ms; -1 without a list), and key and headers of its last update."""

    __slots__ = ("headers", "key", "rows", "timestamp")

    def __init__(self, key: Any, rows: list[bytes], timestamp: int) -> None:
        self.key, self.rows, self.timestamp = key, rows, timestamp
        self.headers: Headers = ()


class TopLists:
    """The lists of a step's groups, for a table with a cache whose lists are stored as plain JSON.

    Args:
        store: The store of the lists.
        table: The table over this store.
        data: Returns the JSON of the value in a row's key.
        value: Returns that value.
    """

    def __init__(
        self,
        store: TypedTimestampedKeyValueStore,
        table: TableMaterializer,
        data: Callable[[bytes], bytes],
        value: Callable[[bytes], Any],
    ) -> None:
        self._store, self._table = store, table
        self._data, self._value = data, value
        self._lists: dict[bytes, _List] = {}
        self._changed: dict[bytes, _List] = {}
        """The lists to write, in the order of their first changes."""

    def knows(self, group: bytes, key: Any, first: Callable[[bytes], list[bytes]]) -> bool:
        """Whether the group's list is known by the keys of its rows, before a record changes these.

        Args:
            group: The prefix of the keys of the group's rows.
            key: The group's key.
            first: Returns the keys of the rows that are in the list of a group.
        """
        if group in self._lists:
            return True
        if self._store.has_cached_rows:
            return False
        rows, stored = first(group), self._store.rows.get(self._store.codec.key(key))
        if value_of(stored) != self._text(rows):
            self._settle()
            return False
        self._lists[group] = _List(key, rows, -1 if stored is None else timestamp_of(stored))
        self._store.unsettled = self._settle
        return True

    def update(self, group: bytes, rows: list[bytes], record: Record) -> None:
        """Makes these rows the list of a group that is known, unless the values are the same."""
        known = self._lists[group]
        if self._differ(known.rows, rows):
            known.timestamp = max(known.timestamp if known.rows else -1, record.timestamp)
            known.key, known.rows, known.headers = record.key, rows, record.headers
            self._changed.setdefault(group, known)

    def _differ(self, before: list[bytes], now: list[bytes]) -> bool:
        """Whether the values are different. Values of different bytes may be equal: 1 and 1.0."""
        if before == now or len(before) != len(now):
            return before != now
        return any(
            one != other and self._value(one) != self._value(other) for one, other in zip(before, now, strict=True)
        )

    def _text(self, rows: list[bytes]) -> bytes | None:
        return b"[" + b",".join(map(self._data, rows)) + b"]" if rows else None

    def flush(self) -> None:
        """Hands the changed lists to the table, which writes and forwards them together."""
        if self._store.has_cached_rows:
            self._settle()
            return
        changed = self._take()
        if not changed:
            return
        headers = [encode_headers(one.headers) if one.headers else None for one in changed]
        batch = ColumnarBatch(
            KeyColumn.of([one.key for one in changed]),
            self._store.codec.encoded_texts(binary_column([self._text(one.rows) for one in changed])),
            np.array([one.timestamp for one in changed], np.int64),
            np.arange(len(changed)),
            headers if any(headers) else None,
        )
        self._table.update_together(batch, self._table.updates(batch))()

    def _settle(self) -> None:
        """Makes the changed lists rows in the store's cache, for code that reads single rows, and forgets all lists."""
        for one in self._take():
            values = list(map(self._value, one.rows)) or None
            self._table.update(Record(one.key, None, one.timestamp, one.headers), values)

    def _take(self) -> list[_List]:
        changed = list(self._changed.values())
        self._lists.clear()
        self._changed.clear()
        self._store.unsettled = None
        return changed
