"""The updates of a step for `suppress` as columns: those to buffer, what the buffer then holds, and those that are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column, encode_headers, sliced
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn
from streams.operators.result_columns import Changes, JsonValues, packed, window_ends
from streams.operators.stores.codec import Codec
from streams.operators.stores.expiry_index import ExpiryIndex
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.buffered_update import BufferedUpdate

_TIME = 8


class KeptUpdates(NamedTuple):
    """The updates of a step, with one row for each key, in the order of the keys' first updates.

    Attributes:
        keys: binary[K].
        places: int64[K], the place of each key's first update, ms.
        by_window: Whether places follow from the keys.
        firsts: int64[K], the times of the first updates, ms.
        timestamps: int64[K], the times of the last updates, ms.
        first_olds: binary[K], the values before the first updates.
        olds: binary[K], the values before the last ones.
        news: binary[K], the last values.
        headers: binary[K], of the last updates.
    """

    keys: BinaryColumn
    places: Int64s
    by_window: bool
    firsts: Int64s
    timestamps: Int64s
    first_olds: BinaryColumn
    olds: BinaryColumn
    news: BinaryColumn
    headers: BinaryColumn

    @classmethod
    def of(cls, batch: ColumnarBatch, codec: Codec, by_window: bool) -> KeptUpdates:
        """The updates of a batch.

        Raises:
            SerdeError: A key or a value cannot be written.
        """
        changes = batch.values if isinstance(batch.values, Changes) else Changes.of(batch.values)
        cells = codec.key_cells(batch.keys).dictionary_encode()
        codes = cells.indices.to_numpy()
        every = np.arange(len(codes))
        first, last = np.empty(len(cells.dictionary), np.int64), np.empty(len(cells.dictionary), np.int64)
        first[codes[::-1]], last[codes] = every[::-1], every
        news = codec.values(changes.new)
        olds = pa.nulls(len(codes), pa.binary()) if changes.old is None else codec.values(changes.old)
        headers = pa.nulls(len(codes), pa.binary()) if batch.headers is None else binary_column(batch.headers)
        places = window_ends(batch.keys) if by_window else batch.timestamps
        return cls(
            cells.dictionary,
            places[first],
            by_window,
            batch.timestamps[first],
            batch.timestamps[last],
            olds.take(pa.array(first)),
            olds.take(pa.array(last)),
            news.take(pa.array(last)),
            headers.take(pa.array(last)),
        )


class HeldUpdates(NamedTuple):
    """What the buffer holds for the keys of a step.

    Attributes:
        updates: The step's updates.
        rows: binary[K], their rows in the buffer.
        held: binary[K], the rows' values.
        new: bool[K] as indices, the keys that were not in the buffer.
    """

    updates: KeptUpdates
    rows: BinaryColumn
    held: BinaryColumn
    new: Int64s

    @classmethod
    def of(cls, updates: KeptUpdates, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> HeldUpdates:
        """The rows for some updates.

        Raises:
            OversizedRowError: A row does not fit the changelog.
        """
        at = updates.places.copy()
        if places is not None:
            known = places.rows.get_columns(updates.keys)
            kept = np.flatnonzero(known.is_valid().to_numpy(zero_copy_only=False))
            at[kept] = np.frombuffer(b"".join(known.drop_null().to_pylist()), ">i8")
        rows = pc.binary_join_element_wise(packed(at), updates.keys, _nothing())
        before = buffer.get_columns(rows)
        there = before.is_valid().to_numpy(zero_copy_only=False)
        priors = updates.first_olds
        if there.any():
            known_priors = binary_column([BufferedUpdate.read(data).prior for data in before.drop_null().to_pylist()])
            which = np.arange(len(there))
            which[there] = len(there) + np.arange(len(known_priors))
            priors = pa.concat_arrays([priors, known_priors]).take(pa.array(which))
        held = _written(updates.timestamps, [priors, updates.olds, updates.news, updates.headers])
        buffer.check_all(rows, held)
        return cls(updates, rows, held, np.flatnonzero(~there))

    def put(self, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> int:
        """Buffers the updates; returns how many rows the buffer has more than before."""
        updates, new = self.updates, pa.array(self.new)
        buffer.put_columns(self.rows, self.held, np.maximum(updates.timestamps, 0), self.rows.take(new).to_pylist())
        if places is not None and len(new):
            at = packed(updates.places[self.new])
            places.rows.put_columns(updates.keys.take(new), at, np.maximum(updates.firsts[self.new], 0))
        return len(self.new)


class DueUpdates(NamedTuple):
    """The updates that are due, in order.

    Attributes:
        rows: binary[n], their rows in the buffer.
        held: The rows' values.
        codec: That of the table.
    """

    rows: BinaryColumn
    held: Sequence[BufferedUpdate]
    codec: Codec

    @classmethod
    def of(cls, rows: BinaryColumn, data: BinaryColumn, codec: Codec) -> DueUpdates:
        """The updates in some rows of the buffer."""
        return cls(rows, [BufferedUpdate.read(one) for one in data.to_pylist()], codec)

    @property
    def timestamps(self) -> Int64s:
        return np.array([one.timestamp for one in self.held], np.int64)

    def remove(self, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> None:
        nothing, times = pa.nulls(len(self.held), pa.binary()), np.maximum(self.timestamps, 0)
        buffer.put_columns(self.rows, nothing, times, ())
        if places is not None:
            places.rows.put_columns(self._keys, nothing, times)

    def results(self, old: str | None, by_window: bool) -> ColumnarBatch:
        """The updates to forward."""
        at = [row for row, one in enumerate(self.held) if one.new is not None or not by_window]
        held = [self.held[row] for row in at]
        news, read = binary_column([one.new for one in held]), self.codec.read_values
        olds = None if old is None else read([getattr(one, old) for one in held])
        headers = [encode_headers(one.headers) if one.headers else None for one in held]
        keys = [self.codec.read_key(key) for key in self._keys.take(pa.array(at, pa.int64())).to_pylist()]
        shared = self.codec.holds_json and not pc.any(pc.equal(news, b"null")).as_py()  # JSON's null is read as None
        return ColumnarBatch(
            KeyColumn.of(keys),
            Changes(JsonValues(news, lambda: read(news.to_pylist())) if shared else read(news.to_pylist()), olds),
            np.array([one.timestamp for one in held], np.int64),
            np.arange(len(held)),
            headers if any(headers) else None,
        )

    @property
    def _keys(self) -> BinaryColumn:
        return sliced(self.rows, _TIME)


def _written(timestamps: Int64s, parts: Sequence[BinaryColumn]) -> BinaryColumn:
    """`BufferedUpdate.write` for columns: prior, old, new and headers."""
    lengths = [pc.fill_null(pc.binary_length(part).cast(pa.int32()), -1).to_numpy() for part in parts]
    heads = np.empty(len(timestamps), [("time", ">i8"), *((f"length{at}", ">i4") for at in range(len(parts)))])
    heads["time"] = timestamps
    for at, column in enumerate(lengths):
        heads[f"length{at}"] = column
    size = heads.dtype.itemsize
    front = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(heads), [None, pa.py_buffer(heads)])
    return pc.binary_join_element_wise(front.cast(pa.binary()), *(pc.fill_null(one, b"") for one in parts), _nothing())


def _nothing() -> pa.Scalar:
    return pa.scalar(b"", pa.binary())
