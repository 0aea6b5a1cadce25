"""The updates of a step for `suppress` where each of them may make others due: what is buffered and emitted, record by record.

The order of the events matters, so they are played one after the other, but in memory: the buffer is read once before and written
once afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from state.columns import binary_column, decode_headers
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.result_columns import Changes, packed
from streams.operators.stores.codec import Codec
from streams.operators.stores.expiry_index import ExpiryIndex
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.buffered_update import BufferedUpdate
from streams.operators.table.suppress_columns import DueUpdates

_TIME = 8
_Row: TypeAlias = tuple[int, bytes]
"""Place and key bytes, which sort as the buffer's rows do."""


@dataclass
class UpdatesInTurn:
    """What the updates of a batch do to the buffer.

    Args:
        batch: The updates.
        codec: That of the table.
        buffer: The buffer.
        places: The store of places, which are the times of the keys' first updates.

    Raises:
        Exception: An update cannot be written; nothing has happened.
    """

    batch: ColumnarBatch
    codec: Codec
    buffer: ExpiryIndex
    places: TypedKeyValueStore
    _emitted: list[tuple[int, _Row, BufferedUpdate]] = field(init=False, default_factory=list)
    _final: dict[_Row, BufferedUpdate | None] = field(init=False, default_factory=dict)
    _times: dict[_Row, int] = field(init=False, default_factory=dict)
    _place_of: dict[bytes, tuple[int | None, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        batch = self.batch
        changes = batch.values if isinstance(batch.values, Changes) else Changes.of(batch.values)
        cells = self.codec.key_cells(batch.keys).dictionary_encode()
        self._keys, self._codes = cells.dictionary.to_pylist(), cells.indices.to_pylist()
        self._news = self.codec.values(changes.new).to_pylist()
        self._olds = [None] * len(batch) if changes.old is None else self.codec.values(changes.old).to_pylist()
        self._current = self._buffered(cells.dictionary)

    def _buffered(self, keys: pa.BinaryArray) -> list[tuple[_Row, BufferedUpdate] | None]:
        """What the buffer has for each key."""
        places = self.places.rows.get_columns(keys).to_pylist()
        known = [code for code, place in enumerate(places) if place is not None]
        data = [places[code] + self._keys[code] for code in known]
        held = self.buffer.get_columns(pa.array(data, pa.binary())).to_pylist()
        found: list[tuple[_Row, BufferedUpdate] | None] = [None] * len(places)
        for code, row, update in zip(known, data, held, strict=True):
            found[code] = _row(row), BufferedUpdate.read(update)
        return found

    def run(self, dues: Int64s) -> None:
        """Plays the updates."""
        last_due = int(dues[-1])
        passed, stored = self.buffer.rows_up_to(packed(np.array([max(0, last_due + 1)]))[0].as_py())
        rows = [_row(data) for data in passed.to_pylist()]
        waiting = dict(zip(rows, map(BufferedUpdate.read, stored.to_pylist()), strict=True))
        heap, code_of = list(rows), {key: code for code, key in enumerate(self._keys)}
        current, timestamps, headers = self._current, self.batch.timestamps.tolist(), self.batch.headers
        for at, (code, due) in enumerate(zip(self._codes, dues.tolist(), strict=True)):
            known, own = current[code], None if headers is None else headers[at]
            if known is None:
                row, prior = (timestamps[at], self._keys[code]), self._olds[at]
                heappush(heap, row)
                self._place_of[row[1]] = row[0], timestamps[at]
            else:
                row, prior = known[0], known[1].prior
            decoded = tuple(decode_headers(own)) if own else ()
            held = BufferedUpdate(timestamps[at], prior, self._olds[at], self._news[at], decoded)
            current[code] = row, held
            self._final[row], self._times[row] = held, timestamps[at]
            while heap and heap[0][0] <= due:
                row = heappop(heap)
                which = code_of.get(row[1])
                own_update = None if which is None else current[which]
                held = waiting[row] if own_update is None else own_update[1]
                if which is not None:
                    current[which] = None
                self._emitted.append((at, row, held))
                self._final[row], self._times[row] = None, held.timestamp
                self._place_of[row[1]] = None, held.timestamp
        self._new = [row for row in heap if self._final.get(row) is not None]
        self._passed = rows

    def put(self) -> None:
        """Writes what has become of the buffer.

        Raises:
            OversizedRowError: A row does not fit the changelog; nothing has happened.
        """
        rows = pa.array([_data(row) for row in self._final], pa.binary())
        values = binary_column([None if one is None else one.write() for one in self._final.values()])
        try:
            self.buffer.check_all(rows, values)
        except Exception:
            self.buffer.put_back([_data(row) for row in self._passed])
            raise
        times = np.maximum(np.array(list(self._times.values()), np.int64), 0)
        self.buffer.put_columns(rows, values, times, [_data(row) for row in self._new])
        if self._place_of:
            at = [
                None if place is None else place.to_bytes(_TIME, "big", signed=True)
                for place, _ in self._place_of.values()
            ]
            stamps = np.maximum(np.array([time for _, time in self._place_of.values()], np.int64), 0)
            self.places.rows.put_columns(pa.array(self._place_of, pa.binary()), pa.array(at, pa.binary()), stamps)

    def results(self, old: str | None) -> ColumnarBatch:
        """The updates that are emitted, each at the record that made it due; `old` as in `DueUpdates.results`."""
        rows = pa.array([_data(row) for _, row, _ in self._emitted], pa.binary())
        due = DueUpdates(rows, [held for _, _, held in self._emitted], self.codec).results(old, by_window=False)
        causes = self.batch.take(np.array([at for at, _, _ in self._emitted], np.int64))
        return replace(due, order=causes.order, place=causes.place, held=causes.held)


def _row(data: bytes) -> _Row:
    return int.from_bytes(data[:_TIME], "big", signed=True), data[_TIME:]


def _data(row: _Row) -> bytes:
    return row[0].to_bytes(_TIME, "big", signed=True) + row[1]
