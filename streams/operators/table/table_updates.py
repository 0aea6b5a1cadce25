"""`TableUpdates`: all updates that a step has for a table with a store, and the table as of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryColumn, binary_column
from streams.model.times import NO_TIME
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn, OneByOne, concatenated
from streams.operators.encoded_values import take_values, values_at
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.codec import timestamps_of
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.table.value_getter import FoundRows, TableLookup


class TableRows(NamedTuple):
    """Rows for `TypedTimestampedKeyValueStore.put_column`: keys, local values (null deletes), and timestamps, ms."""

    keys: BinaryColumn
    values: BinaryColumn
    timestamps: Int64s


class TableUpdates:
    """The updates of one step.

    Args:
        store: The table's store, as before the step.
        batch: The updates in their order, whose values are the new ones; no key is null.
        caching: Whether look-ups see the very objects of the step, as with the store's cache; otherwise they see values that
            were written and read.

    Raises:
        Exception: A key cannot be written.
    """

    def __init__(self, store: TypedTimestampedKeyValueStore, batch: ColumnarBatch, caching: bool) -> None:
        self.batch = batch
        self._store = store
        self.caching = caching
        self._number_of, self._numbers = numbered(store.codec.keys(batch.keys), batch.keys)
        self._span = int(batch.order[-1]) + 1 if len(batch) else 1
        self._places: Int64s = self._numbers * self._span + batch.order
        self._by_place = np.argsort(self._places, kind="stable")
        self._sorted_places = self._places[self._by_place]

    def key_column(self, rows: Int64s) -> BinaryColumn:
        """The bytes of the keys of some updates."""
        distinct = binary_column(list(self._number_of))
        return distinct.take(pa.array(self._numbers[rows]))

    def rows(self, rows: Int64s) -> TableRows:
        """Some updates as the store's rows.

        Raises:
            SerdeError: A value cannot be written.
            OversizedRowError: A row does not fit the changelog.
        """
        keys, timestamps = self.key_column(rows), self.batch.timestamps[rows]
        values = self._store.codec.timestamped_column(keys, self._value_column(rows), timestamps)
        return TableRows(keys, values, timestamps)

    def stored(self, rows: Int64s) -> BinaryColumn:
        """The local values before the step for the keys of some updates, null where there is none."""
        return self._store.stored_column(self.key_column(rows).to_pylist())

    def _value_column(self, rows: Int64s) -> BinaryColumn:
        return self._store.codec.values(take_values(self.batch.values, rows))

    def followed_by(self, later: TableUpdates) -> TableUpdates:
        """These updates and later ones of the same step, for the end of the step."""
        batch = concatenated([self.batch, later.batch])
        return TableUpdates(self._store, replace(batch, order=np.arange(len(batch))), self.caching)

    def last_of_each_key(self) -> Int64s:
        """The rows of the last update of each key, in order of time, then of the keys' first updates."""
        every = np.arange(len(self.batch))
        first, last = np.empty(len(self._number_of), np.int64), np.full(len(self._number_of), -1)
        first[self._numbers[::-1]] = every[::-1]
        last[self._numbers] = every
        there = last >= 0
        first, last = first[there], last[there]
        return last[np.lexsort((first, self.batch.timestamps[last]))]

    def lookup(self, keys: KeyColumn, order: Int64s) -> FoundRows:
        """The table's row for each key just before a position of the step.

        Args:
            keys: The keys, none null.
            order: The positions.
        """
        data = self._store.codec.keys(keys)
        of_object = np.array([self._number_of.get(key, -1) for key in data], np.int64)
        numbers = of_object[keys.codes]
        return self._found(self._last_before(numbers, order), data, keys.codes)

    def before_each(self) -> FoundRows:
        """The table's row just before each update."""
        by_place = self._by_place
        same = np.flatnonzero(self._numbers[by_place[1:]] == self._numbers[by_place[:-1]])
        before = np.full(len(self.batch), -1)
        before[by_place[same + 1]] = by_place[same]
        return self._found(before, list(self._number_of), self._numbers)

    def _found(self, at: Int64s, data: Sequence[bytes], codes: Int64s | npt.NDArray[np.int32]) -> FoundRows:
        """The rows that updates have written, and stored ones.

        Args:
            at: The update for each look-up; -1: the stored row.
            data: The bytes of distinct keys.
            codes: The index in `data` of each look-up.
        """
        own, others = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        parts = self._seen(at[own]), stored_rows(self._store, data, codes[others])
        if not len(own) or not len(others):
            return parts[bool(len(others))]
        place = np.empty(len(at), np.int64)
        place[np.concatenate([own, others])] = np.arange(len(at))
        values = [*parts[0].values, *parts[1].values]
        return FoundRows(
            np.concatenate([one.there for one in parts])[place],
            [values[row] for row in place.tolist()],
            np.concatenate([one.timestamps for one in parts])[place],
        )

    def _last_before(self, numbers: Int64s, order: Int64s) -> Int64s:
        """The row of the last update of each key before a position, -1 if there is none."""
        if not len(self.batch):
            return np.full(len(numbers), -1)
        # A position behind the last update must not reach into the next key's places.
        places = numbers * self._span + np.minimum(order, self._span)
        at = np.searchsorted(self._sorted_places, places) - 1
        rows = self._by_place[at]
        return np.where((at >= 0) & (self._numbers[rows] == numbers), rows, -1)

    def _seen(self, rows: Int64s) -> FoundRows:
        """The rows that updates have written, as look-ups see them."""
        timestamps = self.batch.timestamps[rows]
        if self.caching:
            return FoundRows.of(values_at(self.batch.values, rows), timestamps)
        written = self._value_column(rows)
        there = written.is_valid().to_numpy(zero_copy_only=False)
        values = self._store.codec.read_values(written.to_pylist())
        return FoundRows(there, values, np.where(there, timestamps, NO_TIME))


def numbered(data: Sequence[bytes], keys: KeyColumn) -> tuple[dict[bytes, int], Int64s]:
    """The distinct keys' bytes with a number each, and the number of each row's key.

    Args:
        data: The bytes of `keys.objects`.
        keys: The keys, none null.
    """
    number_of: dict[bytes, int] = {}
    of_object = [number_of.setdefault(key, len(number_of)) for key in data]
    return number_of, np.array(of_object, np.int64)[keys.codes]


def look_up_stored(store: TypedTimestampedKeyValueStore, keys: KeyColumn, order: Int64s) -> FoundRows:
    """A `TableLookup` in a table that has no update before any of the look-ups but those that are written."""
    return stored_rows(store, store.codec.keys(keys), keys.codes)


def look_ups(
    ctx: OperatorContext,
    stores: Iterable[str],
    tables: Mapping[str, TableUpdates] | None = None,
    forwarded: bool = False,
) -> dict[str, TableLookup]:
    """The look-ups of tables with stores, for `ValueGetter.open_together`.

    Args:
        ctx: The context of the node that looks up.
        stores: The stores.
        tables: The updates of the tables that change while the node looks up, by store. Others are seen as they are stored.
        forwarded: See `ValueGetter.open`.

    Raises:
        OneByOne: A store holds windows, sessions or versions.
    """
    found: dict[str, TableLookup] = {}
    for name in stores:
        updates, store = (tables or {}).get(name), ctx.store(name)
        if updates is not None and not (forwarded and updates.caching):
            found[name] = updates.lookup
        elif isinstance(store, TypedTimestampedKeyValueStore):
            found[name] = partial(look_up_stored, store)
        else:
            raise OneByOne("only tables with one row for each key are looked up together")
    return found


def stored_rows(
    store: TypedTimestampedKeyValueStore, keys: Sequence[bytes], codes: Int64s | npt.NDArray[np.int32]
) -> FoundRows:
    """The stored rows for many look-ups, each value read anew, as users may change what they get.

    Args:
        store: The store, of whose cache nothing is seen.
        keys: The distinct keys.
        codes: The index in `keys` of each look-up.
    """
    if not len(codes):
        return FoundRows.of([], np.empty(0, np.int64))
    needed, which = np.unique(codes, return_inverse=True)
    found = store.stored_column([keys[code] for code in needed.tolist()])
    there, times = found.is_valid().to_numpy(zero_copy_only=False), timestamps_of(found)
    return FoundRows(there[which], store.codec.old_values(found.take(pa.array(which))), times[which])
