"""Joins of streams: the records of a step in one order, their pairs, and the results of pairs.

`joins` defines joins, `waiting` handles records without a partner, and `stream_join` has the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, one_column, rows_where
from state.numba_kernels import allocating_kernel
from state.sorting import is_identity
from streams.errors import RecordError
from streams.model.record import MAX_TIME, NO_TIME
from streams.model.windows import JoinWindows
from streams.operators.aggregate.column_rows import first_from, grouped
from streams.operators.columnar import (
    NULL_KEY,
    ColumnarBatch,
    EncodedValues,
    Int64s,
    KeyColumn,
    OneByOne,
    concatenated,
    null_values,
    take_values,
    values_at,
)
from streams.operators.operator import Operator, OperatorContext
from streams.operators.stores.codec import Codec
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime

if TYPE_CHECKING:
    from typing_extensions import Self

# --- Compiled searches for the pairs of a step: partners among the step's own records, and among the rows of the stores.
#
# A group is a key of one store. Records are numbered in the order of the step, rows of the stores in the order in which they were
# fetched. Both are sorted by group and time, so that the partners of a record are found by binary search.


Bools: TypeAlias = npt.NDArray[np.bool_]


@allocating_kernel
def ranges(rows: Int64s, starts: Int64s, lower: Int64s, upper: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The ranges of time in which the records of each group look for partners, merged so that they do not touch."""
    groups, lows, highs = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    count = 0
    for group in range(len(starts) - 1):
        first = count
        for at in range(starts[group], starts[group + 1]):
            low, high = lower[rows[at]], upper[rows[at]]
            if low > high:
                continue
            if count > first and low <= highs[count - 1] + 1:
                highs[count - 1] = max(highs[count - 1], high)
                continue
            groups[count], lows[count], highs[count] = group, low, high
            count += 1
    return groups[:count], lows[:count], highs[:count]


@allocating_kernel
def newest_at(groups: Int64s, lower: Int64s, upper: Int64s, times: Int64s, starts: Int64s) -> Int64s:
    """For each range of time, the last row in it; rows are sorted by group, time and arrival."""
    found = np.full(len(groups), -1, np.int64)
    for at in range(len(groups)):
        group = groups[at]
        if group < 0:
            continue
        last = first_from(times, starts[group], starts[group + 1], upper[at] + 1) - 1
        if last >= starts[group] and times[last] >= lower[at]:
            found[at] = last
    return found


@allocating_kernel
def pairs(
    asking: Int64s,
    groups: Int64s,
    lower: Int64s,
    upper: Int64s,
    new: tuple[Int64s, Int64s, Int64s],
    old: tuple[Int64s, Int64s],
) -> tuple[Int64s, Int64s]:
    """All pairs of a record and an earlier partner, ordered by record, then by the partner's time.

    Partners of the same time are in order of arrival; partners from earlier steps come first.
    """
    rows, times, starts = new
    old_times, old_starts = old
    bounds = np.empty((len(asking), 4), np.int64)
    count = 0
    for at in range(len(asking)):
        row = asking[at]
        group, low, high = groups[row], lower[row], upper[row]
        bounds[at, 0] = first_from(times, starts[group], starts[group + 1], low)
        bounds[at, 1] = first_from(times, bounds[at, 0], starts[group + 1], high + 1)
        bounds[at, 2] = first_from(old_times, old_starts[group], old_starts[group + 1], low)
        bounds[at, 3] = first_from(old_times, bounds[at, 2], old_starts[group + 1], high + 1)
        count += max(0, bounds[at, 3] - bounds[at, 2])
        for index in range(bounds[at, 0], bounds[at, 1]):
            count += rows[index] < row
    found, partners = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for at in range(len(asking)):
        row, next_old, end_old = asking[at], bounds[at, 2], bounds[at, 3]
        for index in range(bounds[at, 0], bounds[at, 1]):
            if rows[index] >= row:
                continue
            while next_old < end_old and old_times[next_old] <= times[index]:
                found[count], partners[count] = row, -1 - next_old
                next_old += 1
                count += 1
            found[count], partners[count] = row, rows[index]
            count += 1
        while next_old < end_old:
            found[count], partners[count] = row, -1 - next_old
            next_old += 1
            count += 1
    return found, partners


# --- The records of a step for the nodes of a join, in one order, and the groups in which they may match.


@dataclass(frozen=True, slots=True)
class JoinRecords:
    """The records of all nodes of a join, in the order of the step.

    Attributes:
        nodes: int64[n], the index of each record's node.
    """

    batch: ColumnarBatch
    nodes: Int64s
    has_value: Bools

    @classmethod
    def of(cls, batch: ColumnarBatch, nodes: Int64s) -> JoinRecords:
        """The records for a group of operators, or for the first one alone. `nodes` has the node of each operator."""
        of_records = np.zeros(len(batch), np.int64) if batch.nodes is None else batch.nodes
        return cls(replace(batch, nodes=None), nodes[of_records], ~null_values(batch.values))

    def __len__(self) -> int:
        return len(self.nodes)

    def by_node(self, columns: Sequence[Any]) -> Int64s:
        """For each record, its node's number, or its row's number in its node's column."""
        left: Int64s = np.where(self.nodes == 1, columns[1], columns[0])
        return left

    @property
    def complete(self) -> Bools:
        """Whether each record has a key and a value."""
        complete: Bools = (self.batch.keys.codes != NULL_KEY) & self.has_value
        return complete


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of a step's records in one store.

    Attributes:
        cells: The distinct keys, sorted, because reading them in this order is fastest.
        codes: int64[n], the index in `cells` of each record's key; -1 for none.
    """

    cells: pa.BinaryArray
    codes: Int64s


def store_keys(keys: KeyColumn, codecs: Sequence[Codec]) -> list[StoreKeys]:
    """The keys of records in the stores of these codecs."""
    found: list[StoreKeys] = []
    known: list[list[bytes]] = []
    for codec in codecs:
        data = codec.keys(keys)
        # Serdes get the name of the store, but hardly any serde writes it into the bytes.
        if data in known:
            found.append(found[known.index(data)])
        else:
            found.append(_sorted(keys, data))
        known.append(data)
    return found


def _sorted(keys: KeyColumn, data: Sequence[bytes]) -> StoreKeys:
    distinct = pa.array(data, pa.binary()).dictionary_encode()
    by_bytes = pc.array_sort_indices(distinct.dictionary)
    ranks = np.empty(len(by_bytes) + 1, np.int64)
    ranks[by_bytes.to_numpy()] = np.arange(len(by_bytes))
    ranks[-1] = NULL_KEY
    codes = np.append(ranks[distinct.indices.fill_null(-1).to_numpy()], NULL_KEY)[keys.codes]
    if (codes[keys.codes != NULL_KEY] == NULL_KEY).any():
        raise ValueError("a null key cannot be looked up or stored")
    return StoreKeys(distinct.dictionary.take(by_bytes), codes)


def read_by(which: npt.NDArray[Any], codecs: Sequence[Codec], data: Sequence[bytes | None]) -> list[Any]:
    """The values of bytes that come from several stores."""
    readers = [codec.reader for codec in codecs]
    if all(reader is readers[0] for reader in readers):
        return list(map(readers[0], data))
    return [readers[index](cell) for index, cell in zip(which.tolist(), data, strict=True)]


def placed(parts: Sequence[tuple[ColumnarBatch, Int64s]]) -> tuple[ColumnarBatch, Int64s]:
    """Joins batches of results, in the order of their places."""
    parts = [part for part in parts if len(part[0])] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([place for _, place in parts])
    order = np.argsort(places, kind="stable")
    return concatenated([batch for batch, _ in parts]).take(order), places[order]


def runs(*columns: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Start and end of each run of rows that are equal in all columns."""
    if not len(columns[0]):
        return []
    changes = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    bounds = [0, *(rows_where(changes) + 1).tolist(), len(columns[0])]
    return list(pairwise(bounds))


# --- A step's records as a join stores them: their bytes, the arguments of joiners, and the results and drops of some records.

FARTHEST_MS = 2**60
"""Windows up to this length, about 36 million years, do not overflow sums of 64 bits."""


def clamped(windows: JoinWindows) -> JoinWindows:
    """The windows, limited to that length; longer ones are longer than any log."""
    before, after = (max(-FARTHEST_MS, min(ms, FARTHEST_MS)) for ms in (windows.before_ms, windows.after_ms))
    return replace(windows, before_ms=before, after_ms=after, grace_ms=min(windows.grace_ms, FARTHEST_MS))


class WindowJoin(Operator):
    """One side of a join of streams with window stores. All sides share a state: stream time, and the newest time in each store.

    Args:
        store: Window store of this side's records, with duplicates.
        state_name: Name of the shared state.
        sides: The number of sides.
    """

    leaves_values = True
    makes_results = True

    def __init__(self, store: str, state_name: str, sides: int) -> None:
        self.store_name, self.state_name, self._sides_count = store, state_name, sides

    def init(self, ctx: OperatorContext) -> None:
        """Open the store and the shared state."""
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.store_name)
        self.state = ctx.shared_state(self.state_name)
        self.time = SharedStreamTime(self.state, self._sides_count)
        self.is_strict = ctx.mode == "strict"

    def with_store(self, store: str) -> Self:
        """The side that belongs to another store, with this side's context."""
        other = copy(self)
        other.store_name, other.store = store, self.ctx.store(store)
        return other

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.store_name, self.time.now if self.is_strict else self.newest)

    @property
    def newest(self) -> int:
        """The newest time in this side's store."""
        newest: int = self.state.get(self.store_name, NO_TIME)
        return newest

    @property
    def latest(self) -> int:
        """The time of the newest row in this side's store, or a later one; later rows need not be searched."""
        # A store without this entry was written by a program with another structure.
        latest: int = self.state.get(self.store_name, MAX_TIME)
        return latest

    def put(self, keys: pa.BinaryArray, times: Int64s, values: pa.BinaryArray) -> None:
        """Stores records, and notes the newest time, which compat mode uses."""
        if len(times):
            self.store.put_columns(keys, times, values)
            self.state[self.store_name] = max(self.newest, int(times.max()))


class Refused(NamedTuple):
    """A row of a batch on which the joiner has failed, and the record that caused the call.

    Attributes:
        partly_done: Whether the record has had results before.
    """

    batch: ColumnarBatch
    row: int
    at: int
    error: Exception
    partly_done: bool = False

    def meets_policy_of(self, ctx: OperatorContext) -> None:
        """Applies the processing policy to the row."""
        if self.partly_done:
            ctx.partly_done()
        ctx.refuse(self.batch, self.row, self.error)


class StoredStep:
    """The records of one step, as a join stores them.

    Args:
        ctx: The context of one of the nodes.
        codecs: The codecs of the stores by node.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        stored: Which records are stored.
        keeps_values: Whether the joiner is known to leave its arguments unchanged.
        alone: Whether there is only one record, which may fail.
    """

    def __init__(
        self,
        ctx: OperatorContext,
        codecs: Sequence[Codec],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        stored: Bools,
        keeps_values: bool,
        alone: bool,
    ) -> None:
        self.codecs, self.records, self.time, self.is_open = codecs, records, time, is_open
        self.batch, self.timestamps = records.batch, records.batch.timestamps
        self.stored, self.alone = stored, alone
        # A result that other code may change must not contain a value that the results of other pairs contain, too.
        self._keeps_values = keeps_values and not ctx.results_change
        self.refused: list[Refused] = []
        self.own: Callable[[Any], Any] = (lambda value: value) if self._keeps_values else ctx.copy_of
        self.column = self._written(stored)

    def fail(self, error: Exception, partly_done: bool) -> None:
        """Notes that the record fails at one of its results.

        Earlier results stay; the record is not stored, does not wait, and is not dropped.

        Raises:
            Exception: The error, if there are several records. The record that fails then has to be found first.
        """
        if not self.alone:
            raise error
        self.refused.append(Refused(self.batch, 0, 0, error, partly_done))
        self.stored = np.zeros_like(self.stored)

    def until_failure(self, calls: Iterable[Any]) -> list[Any]:
        """The results of calls of the joiner, one after the other, up to a call that fails."""
        results: list[Any] = []
        try:
            for result in calls:
                results.append(result)
        except Exception as error:
            self.fail(error, partly_done=bool(results))
        return results

    @contextmanager
    def at_fault(self) -> Iterator[None]:
        """A block that makes results from bytes. It ends if a value has no fields; the joiner then finds the result that fails."""
        try:
            yield
        except RecordError:
            if not self.alone:
                raise

    def arguments(self, rows: Int64s) -> Iterator[Any]:
        """The values of records for calls of the joiner, each a separate object, in case the joiner changes it."""
        values = self.batch.values
        if self._keeps_values:
            return iter(values_at(values, rows))
        if isinstance(values, EncodedValues) and values.is_untouched:
            return values.take(rows).each()
        return map(self.own, values_at(values, rows))

    def cells_of(self, pairs: Pairs) -> tuple[BinaryColumn, Int64s]:
        """The bytes of the step's values and of the stores' values, and for each pair the place of the partner's value."""
        places = np.where(pairs.partners >= 0, pairs.partners, len(self.records) - 1 - pairs.partners)
        return one_column([self.column, pairs.stored]), places

    def values_from(self, pairs: Pairs, stores: Int64s) -> list[Any]:
        """The partner's value of each pair, as its store returns it."""
        cells, places = self.cells_of(pairs)
        return read_by(stores, self.codecs, cells.take(pa.array(places)).to_pylist())

    def of_rows(self, rows: Int64s, values: Sequence[Any], timestamps: Int64s) -> ColumnarBatch:
        """The results of these rows, with the rows' keys and headers."""
        batch, headers = self.batch, self.batch.headers
        return replace(
            batch,
            keys=batch.keys.take(rows),
            values=values,
            timestamps=timestamps,
            order=batch.order[rows],
            headers=None if headers is None else [headers[row] for row in rows.tolist()],
        )

    def _written(self, chosen: Bools) -> BinaryColumn:
        """The bytes of the chosen records' values in their stores; null for the others."""
        written, places = list[BinaryColumn](), np.full(len(chosen), -1, np.int64)
        alike = all(codec.writes_as(self.codecs[0]) for codec in self.codecs)
        for node, codec in enumerate(self.codecs[:1] if alike else self.codecs):
            rows = rows_where(chosen & (alike | (self.records.nodes == node)))
            places[rows] = sum(map(len, written)) + np.arange(len(rows))
            values = self.batch.values
            written.append(codec.values(values if len(rows) == len(chosen) else take_values(values, rows)))
            if written[-1].null_count and not self.alone:
                raise OneByOne("a value that is written as null is not stored")
        cells = one_column(written)
        return cells if is_identity(places) else cells.take(pa.array(places, mask=places < 0))

    def rows_of(self, chosen: Bools, node: int, keys: StoreKeys) -> tuple[pa.BinaryArray, Int64s, pa.BinaryArray]:
        """The rows to put into a node's store for the chosen records: keys, times, values."""
        rows = rows_where(chosen & self.stored)
        if self.alone:
            rows = rows[self.column.take(pa.array(rows)).is_valid().to_numpy(zero_copy_only=False)]
        values = self.column.take(pa.array(rows))
        key_cells = keys.cells.take(pa.array(keys.codes[rows]))
        self.codecs[node].check_all(key_cells, values)
        return key_cells, self.timestamps[rows], values

    def newest_in(self, side: WindowJoin, node: int) -> Int64s:
        """The newest time in a side's store at each record."""
        stored = self.is_open & (self.records.nodes == node)
        newest: Int64s = np.maximum.accumulate(np.where(stored, self.timestamps, side.newest))
        return newest

    def drops(self, dropped: Bools, sides: Int64s) -> Iterator[tuple[Int64s, str]]:
        """Dropped records, in order, in runs of one side and reason."""
        if self.refused:
            # In a self-join, only one of the record's two sides may have failed.
            return
        rows = rows_where(dropped)
        reasons = np.where(self.records.complete[rows], 0, np.where(self.batch.keys.codes[rows] == NULL_KEY, 1, 2))
        for start, end in runs(reasons, sides[rows]):
            yield rows[start:end], ("late", "null_key", "null_value")[reasons[start]]


# --- The pairs of a step: each record with the earlier records of other nodes in its reach, from this step and from the stores.


@dataclass(frozen=True, slots=True)
class Reach:
    """The ranges of time in which records look for partners.

    Attributes:
        asking: Which records look for partners.
        stores: int64[n], the index of the store in which each record looks.
        lower: int64[n], the time of the oldest partner, ms.
        upper: int64[n], the time of the newest partner, ms.
    """

    asking: Bools
    stores: Int64s
    lower: Int64s
    upper: Int64s


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a record and an earlier partner, in the order of the records, and of their partners' times, then arrival.

    Attributes:
        rows: int64[m], the record.
        partners: int64[m], the partner; -1 - n for row n of the stores.
        times: int64[m], the partner's time, ms.
        stored: Values of the stores' rows as bytes.
        places: int64[k], a number for each row of the stores; rows of one store, key and time have the same.
    """

    rows: Int64s
    partners: Int64s
    times: Int64s
    stored: pa.BinaryArray
    places: Int64s

    def chosen(self, rows: Int64s) -> Pairs:
        return replace(self, rows=self.rows[rows], partners=self.partners[rows], times=self.times[rows])

    def first(self, count: int) -> Pairs:
        return replace(self, rows=self.rows[:count], partners=self.partners[:count], times=self.times[:count])


class Partners:
    """Finds pairs.

    Args:
        stores: The window stores of the nodes, by index.
        keys: The keys of the step's records in each of the stores.
        timestamps: int64[n], the timestamps of the records.
        latest: For each store, the time of its newest row or a later one, ms.
    """

    def __init__(
        self,
        stores: Sequence[TypedWindowStore],
        keys: Sequence[StoreKeys],
        timestamps: Int64s,
        latest: Sequence[int],
    ) -> None:
        self._stores = stores
        self._latest = np.array(latest, np.int64)
        self._keys = keys
        self._timestamps = timestamps
        # The groups of all stores are numbered consecutively.
        self._bounds = np.cumsum([0, *(len(one.cells) for one in keys)])
        self._count = int(self._bounds[-1])

    def find(self, kept: Bools, nodes: Int64s, reach: Reach) -> Pairs:
        """Finds the pairs."""
        looking = self._groups(reach.stores)
        asking = rows_where(reach.asking)
        groups, times, stored = self._fetched(looking, asking, reach)
        by_time = rows_where(kept & (self._timestamps >= np.array([one.earliest_start for one in self._stores])[nodes]))
        by_time = by_time[np.argsort(self._timestamps[by_time], kind="stable")]
        new, starts = grouped(self._groups(nodes), by_time, self._count)
        ends = np.cumsum(np.bincount(groups + 1, minlength=self._count + 1))
        rows, partners = pairs(
            asking, looking, reach.lower, reach.upper, (new, self._timestamps[new], starts), (times, ends)
        )
        from_step = partners >= 0
        partner_times = np.empty(len(rows), np.int64)
        partner_times[from_step] = self._timestamps[partners[from_step]]
        partner_times[~from_step] = times[-1 - partners[~from_step]]
        places = np.append(0, np.cumsum((np.diff(groups) != 0) | (np.diff(times) != 0)))[: len(groups)]
        return Pairs(rows, partners, partner_times, stored, places)

    def _groups(self, stores: Int64s) -> Int64s:
        """The group of each record's key in a store; undefined for a record without a key."""
        codes = np.stack([one.codes for one in self._keys])[stores, np.arange(len(stores))]
        groups: Int64s = np.maximum(codes, 0) + self._bounds[stores]
        return groups

    def _fetched(self, looking: Int64s, asking: Int64s, reach: Reach) -> tuple[Int64s, Int64s, pa.BinaryArray]:
        """Group, time and value of the stores' rows that any record may match, sorted by group, time and arrival."""
        upper = np.minimum(reach.upper, self._latest[reach.stores])
        by_lower = asking[np.argsort(reach.lower[asking], kind="stable")]
        groups, lows, highs = ranges(*grouped(looking, by_lower, self._count), reach.lower, upper)
        found = []
        for index, (store, keys) in enumerate(zip(self._stores, self._keys, strict=True)):
            here = slice(*np.searchsorted(groups, self._bounds[index : index + 2]))
            cells = keys.cells.take(pa.array(groups[here] - self._bounds[index]))
            rows = store.fetch_ranges(cells, lows[here], highs[here])
            found.append((groups[here][rows.requests], rows.starts, rows.values))
        return (
            np.concatenate([group for group, _, _ in found]),
            np.concatenate([start for _, start, _ in found]),
            pa.concat_arrays([value for _, _, value in found]),
        )
