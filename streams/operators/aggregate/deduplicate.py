"""`deduplicate`: forwards the first record of its kind and drops records that repeat it within a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.numba_kernels import allocating_kernel
from streams.model.ownership import lending
from streams.model.record import MAX_TIME, CombinedKey
from streams.operators.aggregate.column_rows import first_from, grouped
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, KeyColumn, values_at
from streams.operators.join.pairs import StoreKeys, store_keys
from streams.operators.operator import Operator, OperatorContext, drop_rows
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import StreamTime

# --- Finds the records of a step that do not repeat another one within a time, for all keys at once.


def first_of_kind(groups: Int64s, timestamps: Int64s, within_ms: int, known: tuple[Int64s, Int64s]) -> Any:
    """Whether each record is the first of its kind: bool[n]."""
    rows, starts = grouped(groups, np.arange(len(groups)), len(known[1]) - 1)
    passed = np.zeros(len(groups), np.bool_)
    _pass_first(rows, starts, timestamps, within_ms, *known, passed)
    return passed


@allocating_kernel
def _pass_first(
    rows: Any, starts: Any, timestamps: Any, within: int, known: Any, known_starts: Any, passed: Any
) -> None:  # pragma: no cover - compiled
    for group in range(len(starts) - 1):
        before, end_before = known_starts[group], known_starts[group + 1]
        times = np.empty(end_before - before + starts[group + 1] - starts[group], np.int64)
        count = end_before - before
        times[:count] = known[before:end_before]
        for at in range(starts[group], starts[group + 1]):
            time = timestamps[rows[at]]
            low = first_from(times, 0, count, time - within + 1)  # not too early to be repeated
            if low < count and times[low] < time + within:
                continue
            for place in range(count, low, -1):  # records come nearly in order, so hardly any time moves
                times[place] = times[place - 1]
            times[low] = time
            count += 1
            passed[rows[at]] = True


class Deduplicate(Operator):
    """Drops a record if a record with the same key (and id) and a time less than `within_ms` away, either way, was forwarded.

    The first to arrive is forwarded, even if a later one is older. Stream time is the largest timestamp so far. A record older than
    stream time - grace is dropped as late, because the records that it may repeat are no longer stored. Null keys are dropped.

    Args:
        store: Window store of the forwarded records: keys, or `CombinedKey(key, id)` if there is an id.
        within_ms: Records at least this far apart are not repetitions.
        grace_ms: How late a record may be.
        by: `(key, value) -> id`; None: only the key counts. A record whose id is None is always forwarded.
    """

    leaves_values = True

    def __init__(self, store: str, within_ms: int, grace_ms: int, by: Callable[[Any, Any], Any] | None = None) -> None:
        self.store_name = store
        self.within_ms = within_ms
        self.grace_ms = grace_ms
        self.by = None if by is None else lending(by)

    def init(self, ctx: OperatorContext) -> None:
        """Open the store and restore stream time."""
        super().init(ctx)
        self._time = StreamTime(ctx.state)
        self._store: TypedWindowStore = ctx.store(self.store_name)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward the records that do not repeat a stored record, or an earlier one of the batch."""
        times = np.maximum.accumulate(np.maximum(batch.timestamps, self._time.now))
        no_key = batch.keys.codes == NULL_KEY
        late = (batch.timestamps < times - self.grace_ms) & ~no_key
        asked = np.flatnonzero(~(no_key | late))
        ids = _Ids.of(batch, asked, self.by)
        (keys,) = store_keys(ids.keys, [self._store.codec])
        passed = self._find_passed(keys, batch.timestamps[ids.rows])
        new = ids.rows[passed]
        cells = keys.cells.take(pa.array(keys.codes[passed]))
        values = self._store.codec.values([True] * len(new))
        self._store.codec.check_all(cells, values)
        # From here on, nothing can fail.
        self._time.observe(int(times.max(initial=self._time.now)))
        repeated = np.zeros(len(batch), np.bool_)
        repeated[ids.rows[~passed]] = True
        drop_rows(self.ctx, batch, {"null_key": no_key, "late": late, "duplicate": repeated})
        for row, error in ids.failed.items():
            self.ctx.refuse(batch, row, error)
        self._store.put_columns(cells, batch.timestamps[new], values)
        forwarded = np.sort(np.concatenate([new, ids.without]))
        self.ctx.forward_batch(batch if len(forwarded) == len(batch) else batch.take(forwarded))

    def _find_passed(self, keys: StoreKeys, timestamps: Int64s) -> npt.NDArray[np.bool_]:
        """Whether each record is new: it repeats neither a stored record nor an earlier record of the batch."""
        earliest = np.full(len(keys.cells), MAX_TIME)
        latest = np.full(len(keys.cells), -1)
        np.minimum.at(earliest, keys.codes, np.maximum(timestamps - self.within_ms + 1, 0))
        np.maximum.at(latest, keys.codes, timestamps + self.within_ms - 1)
        asked = np.flatnonzero(latest >= 0)
        found = self._store.fetch_ranges(keys.cells.take(pa.array(asked)), earliest[asked], latest[asked])
        ends = np.searchsorted(asked[found.requests], np.arange(len(keys.cells) + 1))
        passed: npt.NDArray[np.bool_] = first_of_kind(keys.codes, timestamps, self.within_ms, (found.starts, ends))
        return passed

    def skip(self, batch: ColumnarBatch) -> None:
        self._time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        self._time.advance(elapsed_ms, limit)
        return limit

    def flush(self) -> None:
        """Expire rows that no record can repeat any more."""
        self.ctx.expire(self.store_name, self._time.now)


class _Ids(NamedTuple):
    """The keys and ids by which the records of a batch are compared.

    Attributes:
        rows: The records that have an id, ascending.
        keys: The key and id of each of these records.
        without: The records without an id.
        failed: Record -> the error that computing its id has raised.
    """

    rows: Int64s
    keys: KeyColumn
    without: Int64s
    failed: Mapping[int, Exception]

    @classmethod
    def of(cls, batch: ColumnarBatch, rows: Int64s, by: Callable[[Any, Any], Any] | None) -> _Ids:
        """Computes the ids of these records, which have keys."""
        keys = batch.keys.take(rows)
        if by is None:
            return cls(rows, keys, np.empty(0, np.int64), {})
        places = dict[int, CombinedKey]()
        without, failed = list[int](), dict[int, Exception]()
        for row, key, value in zip(rows.tolist(), keys, values_at(batch.values, rows), strict=True):
            try:
                found = by(key, value)
            except Exception as error:
                failed[row] = error
                continue
            if found is None:
                without.append(row)
            else:
                places[row] = CombinedKey(key, found)
        column = KeyColumn.of(list(places.values()))
        return cls(np.array(list(places), np.int64), column, np.array(without, np.int64), failed)
