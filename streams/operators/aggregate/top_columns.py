"""`top` of a grouped stream over columns: a group's new list is made of the texts of its stored items and of the new values.

Only the fields of the scores are read. The definition is `TopAggregator`, called for one record after the other. It inserts a value
behind those with the same score, and what it cuts off has n better values. So all values of a step, sorted by score and arrival,
give the same list. If anything is uncertain (a score fails, there are scores of several kinds, a stored list has another order),
the whole batch takes the definition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import (
    FEW_CELLS,
    BinaryColumn,
    cell_sizes,
    column_of,
    data_and_bounds,
    number_column,
    rows_where,
    sliced,
    valid_rows,
)
from state.numba_kernels import copy_bytes, kernel
from streams.model.expressions import Expression
from streams.operators.aggregate.accumulators import Cells, comparisons_fit, joined
from streams.operators.aggregate.aggregates import StreamAggregate, WindowAggregate, WindowPairs
from streams.operators.aggregate.column_aggregate import FoldsColumns, coded_keys, concerns_records, stored_rows
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, group
from streams.operators.aggregate.kept_texts import places_of_texts
from streams.operators.aggregate.top import TopAggregator, WithRanks, score_in_columns
from streams.operators.columnar import Changes, ColumnarBatch, JsonValues, OneByOne, unread_json
from streams.operators.expressions import Bools, Frame, computed
from streams.operators.json_fields import read_fields
from streams.operators.pending import WrittenRows
from streams.operators.stores.codec import Codec, timestamps_of
from streams.serdes.json import JsonSerde
from streams.serdes.json_scan import known_value_end
from streams.serdes.json_text import dumps

Int64s = npt.NDArray[np.int64]

# --- JSON lists as texts: the place of each item, and lists of such items.


class Items(NamedTuple):
    """The items of many lists, as texts in one buffer.

    Attributes:
        data: uint8[...], the buffer.
        starts, ends: int64[m], where each text begins and ends.
        lists: int64[m], the number of each item's list, ascending.
    """

    data: npt.NDArray[np.uint8]
    starts: Int64s
    ends: Int64s
    lists: Int64s

    @classmethod
    def of(cls, lists: pa.BinaryArray) -> Items:
        """The items of JSON lists as orjson writes them. A list that is null has none."""
        data, bounds = data_and_bounds(lists)
        nothing = np.empty(0, np.int64)
        count = _split(data, bounds, nothing, nothing, nothing)
        starts, ends, numbers = (np.empty(count, np.int64) for _ in range(3))
        _split(data, bounds, starts, ends, numbers)
        return cls(data, starts, ends, numbers)

    @property
    def texts(self) -> pa.BinaryArray:
        """The items as a column."""
        return joined([Cells(self.data, self.starts, self.ends)], len(self.starts))

    def take(self, rows: Int64s) -> Items:
        return Items(self.data, self.starts[rows], self.ends[rows], self.lists[rows])

    def followed_by(self, texts: pa.BinaryArray, rows: Int64s, lists: Int64s) -> Items:
        """These items, and behind them the texts of some rows of a column, which are added to `lists`."""
        data, bounds = data_and_bounds(texts)
        first, places = len(self.data), bounds.astype(np.int64)
        both = np.concatenate((self.data, data))
        both.flags.writeable = False  # as all data of columns: kernels are compiled for each type
        return Items(
            both,
            np.concatenate((self.starts, places[:-1][rows] + first)),
            np.concatenate((self.ends, places[1:][rows] + first)),
            np.concatenate((self.lists, lists)),
        )

    def written(self, count: int) -> pa.BinaryArray:
        """The lists as JSON; `count` is their number, and a list may have no item.

        Raises:
            OneByOne: The texts are too long for one column (2 GiB).
        """
        counts = np.bincount(self.lists, minlength=count)
        sizes = np.maximum(counts, 1) + 1
        np.add.at(sizes, self.lists, self.ends - self.starts)
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        if bounds[-1] > np.iinfo(np.int32).max:
            raise OneByOne
        out = np.empty(int(bounds[-1]), np.uint8)
        _write(self.data, self.starts, self.ends, self.lists, bounds, bounds[:-1].copy(), out)
        buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(out)]
        return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)


@kernel
def _split(data: Any, bounds: Any, starts: Any, ends: Any, lists: Any) -> int:  # pragma: no cover - compiled
    """Finds the items of all lists and returns their number. Notes as many of them as there is room for."""
    one, two, count = np.uint64(1), np.uint64(2), 0
    for number in range(len(bounds) - 1):
        at, end = bounds[number], bounds[number + 1]
        if end - at <= two:
            continue
        at, end = at + one, end - one
        while at < end:
            behind = known_value_end(data, at, end)
            if count < len(starts):
                starts[count], ends[count], lists[count] = np.int64(at), np.int64(behind), number
            count += 1
            at = behind + one
    return count


@kernel
def _write(
    data: Any, starts: Any, ends: Any, lists: Any, bounds: Any, places: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Writes each list from its bound on; its place is where its next item begins."""
    source, target = data.ctypes.data, out.ctypes.data
    for number in range(len(places)):
        out[bounds[number]], out[bounds[number + 1] - 1] = 91, 93
        places[number] += 1
    for item in range(len(starts)):
        number = lists[item]
        place, size = places[number], ends[item] - starts[item]
        if place > bounds[number] + 1:
            out[place] = 44
            place += 1
        copy_bytes(target + place, source + starts[item], size)
        places[number] = place + size


# --- The scores of values, and the best of them.


def _scores(score: Expression, texts: pa.BinaryArray, needed: Bools) -> FieldColumn:
    """The score of each value that is `needed` (bool[n]).

    Raises:
        OneByOne: A value cannot be read, or its score fails.
    """
    found = read_fields(texts, score.paths)
    needed = needed & ~found.null_values
    failed: dict[int, Exception] = dict(found.rejected)
    frame = Frame(len(texts), dict(zip(score.paths, found.fields, strict=True)))
    column = computed(score, frame, needed, failed)
    if failed or (found.without_fields & needed).any():
        raise OneByOne
    return column.without(~needed)


def _scores_of_items(score: Expression, items: Items) -> FieldColumn:
    """The scores of ranked values. Raises `OneByOne`, also if one has no score, because another program has ranked it."""
    if not len(items.lists):
        return FieldColumn(np.empty(0, np.uint8), items.starts, np.empty(0), None)
    scores = _scores(score, items.texts, np.ones(len(items.lists), np.bool_))
    if (scores.kinds == ABSENT).any():
        raise OneByOne
    return scores


def _places(scores: FieldColumn, largest: bool) -> npt.NDArray[Any]:
    """Numbers that sort in the order of the scores, the best one first. No score is missing.

    Raises:
        OneByOne: The scores are neither all numbers that arrays compare as Python does, nor all texts.
    """
    if (scores.kinds == TEXT).any():
        found = places_of_texts(scores, [])
        if found is None:
            raise OneByOne
        scores = found[0]
    if not comparisons_fit(scores, []):
        raise OneByOne
    if (scores.kinds == INT).all():
        return ~scores.ints if largest else scores.ints
    numbers = np.where(scores.kinds == FLOAT, scores.floats, scores.ints)
    if np.isnan(numbers).any():
        raise OneByOne
    return -numbers if largest else numbers


def _best(lists: Int64s, places: npt.NDArray[Any], n: int, ties: bool, count: int) -> Int64s:
    """The items that stay in their lists, list by list, best first. Among equal ones, the earlier item is first.

    Args:
        lists: int64[m], the number of each item's list.
        places: [m], the order of the items.
        n: The length of a list.
        ties: Whether items with the score of the n-th one stay, too.
        count: The number of lists.
    """
    if not len(lists):
        return np.empty(0, np.int64)
    order, n = np.lexsort((places, lists)), min(n, len(lists))
    of, ordered = lists[order], places[order]
    sizes = np.bincount(lists, minlength=count)
    firsts = (np.cumsum(sizes) - sizes)[of]
    kept = np.arange(len(order)) - firsts < n
    if ties:
        last = ordered[np.minimum(firsts + n - 1, len(order) - 1)]
        kept |= (sizes[of] > n) & (ordered == last)
    return order[kept]


_DEEP = 200
"""A list is one level deeper than its items, and orjson writes 254 levels."""


def _are_shallow(texts: pa.BinaryArray) -> bool:
    """Whether all texts certainly have fewer levels than `_DEEP`. A level takes two bytes."""
    long = texts.take(pa.array(rows_where(cell_sizes(texts) >= 2 * _DEEP)))
    levels = pc.add(pc.count_substring(long, "["), pc.count_substring(long, "{"))
    return not len(long) or bool(pc.max(levels).as_py() < _DEEP)


# --- The operators.


class _RanksColumns(FoldsColumns):
    """A `top` whose scores are an expression, over all time or in windows with a start.

    With a cache, it ranks a batch of JSON texts without reading more of them than the scores.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Ranks the values of a batch together, or one by one."""
        self._unfold()
        try:
            pairs = self._rank(batch)
        except Exception as error:
            if not concerns_records(error):
                raise
            super().process_batch(batch)
        else:
            self.begin(batch, pairs)

    def _rank(self, batch: ColumnarBatch) -> WindowPairs:
        """Computes the updates of all groups, which wait for the step's end. Returns the records' windows.

        Raises:
            Exception: The records cannot be ranked at once; there has been no effect.
        """
        codec = self.store.codec
        texts = unread_json(batch.values) if len(batch) > FEW_CELLS and self.caching and codec.holds_json else None
        if texts is None or pa.types.is_large_binary(texts.type) or self.store.pending or not _are_shallow(texts):
            raise OneByOne
        pairs = self.pairs(batch)
        rows, (codes, data) = pairs.rows, coded_keys(codec, batch.keys)
        groups = group(codes[rows], pairs.assigned.starts)
        keys = column_of(data, groups.codes)
        stored = stored_rows(self.store, keys, groups.starts)
        lists = self._lists(texts, rows, groups.of_rows, _lists_of(codec, stored))
        times = timestamps_of(stored)
        np.maximum.at(times, groups.of_rows, batch.timestamps[rows])
        order, last = np.argsort(times, kind="stable"), np.zeros(len(times), np.int64)
        last[groups.of_rows] = rows  # the last assignment to an index wins
        keys, lists, times = keys.take(pa.array(order)), lists.take(pa.array(order)), times[order]
        values = codec.timestamped_column(keys, lists, times)
        old = codec.encoded_old(stored.take(pa.array(order))) if self.send_old else None
        changes = Changes(JsonValues(lists, lambda: codec.read_values(lists.to_pylist())), old)
        written = WrittenRows(keys, groups.starts[order], values, times, lists)
        self._wait(batch, last[order], order, written, changes)
        return pairs

    def _lists(self, texts: pa.BinaryArray, rows: Int64s, groups: Int64s, stored: pa.BinaryArray) -> pa.BinaryArray:
        """The lists of all groups with the values of some rows.

        Args:
            texts: The values of all records.
            rows: int64[m], the row of each value to insert.
            groups: int64[m], the group of each of them.
            stored: The stored list of each group; null if there is none.

        Raises:
            OneByOne: The scores have to be compared one by one.
        """
        top = self.functions.aggregator
        assert isinstance(top, TopAggregator), "see ranks_columns"
        score = score_in_columns(top.by)
        assert score is not None, "see ranks_columns"
        items, count, needed = Items.of(stored), len(stored), np.zeros(len(texts), np.bool_)
        needed[rows] = True
        new = _scores(score, texts, needed).take(rows)
        ranked = rows_where(new.kinds != ABSENT)
        scores = FieldColumn.joined([_scores_of_items(score, items), new.take(ranked)])
        places, known = _places(scores, top.largest), len(items.lists)
        best = _best(items.lists, places[:known], top.n, top.ties, count)
        if not np.array_equal(best, np.arange(known)):
            raise OneByOne  # a program with another `by` or n has stored them
        items = items.followed_by(texts, rows[ranked], groups[ranked])
        return items.take(_best(items.lists, places, top.n, top.ties, count)).written(count)


def _lists_of(codec: Codec, stored: BinaryColumn) -> pa.BinaryArray:
    """The lists in local values."""
    if pa.types.is_large_binary(stored.type):
        raise OneByOne
    found = codec.encoded_old(stored)
    assert found is not None, "the codec holds JSON"
    return found.column(found.serde, "")


class StreamTop(_RanksColumns, StreamAggregate):
    """A `StreamAggregate` of a `TopAggregator` whose score is an expression."""


class WindowTop(_RanksColumns, WindowAggregate):
    """A `WindowAggregate` of a `TopAggregator` whose score is an expression."""


# --- `WithRanks` for columns.


def with_ranks_in(ranks: WithRanks, changes: Any, send_old: bool) -> Changes | None:
    """The updates of a table of lists with ranks in the lists' values; None if the values have to be read for that."""
    if not isinstance(changes, Changes) or len(changes) <= FEW_CELLS:
        return None
    try:
        new = _with_ranks(ranks, changes.new)
        return Changes(new, _with_ranks(ranks, changes.old) if send_old and changes.old is not None else None)
    except OneByOne:
        return None


def _with_ranks(ranks: WithRanks, values: Any) -> JsonValues:
    serde = JsonSerde()
    lists = unread_json(values)
    if lists is None and isinstance(values, JsonValues):
        lists = values.column(serde, "")
    if lists is None or pa.types.is_large_binary(lists.type):
        raise OneByOne
    items, name = Items.of(lists), dumps(ranks.field) + b":"
    texts = items.texts
    if (items.data[items.starts] != ord("{")).any() or pc.any(pc.match_substring(texts, name)).as_py():
        raise OneByOne  # no object, or one with a field of this name, which keeps its place
    numbers = number_column(_ranks(ranks, items, len(lists))).cast(pa.string()).cast(pa.binary())
    empty = pa.array(cell_sizes(texts) == len(b"{}"))
    name_before = pc.if_else(empty, pa.scalar(name), pa.scalar(b"," + name))
    ranked = pc.binary_join_element_wise(sliced(texts, 0, 1), name_before, numbers, pa.scalar(b"}"), pa.scalar(b""))
    data, bounds = data_and_bounds(ranked)
    places = bounds.astype(np.int64)
    found = Items(data, places[:-1], places[1:], items.lists).written(len(lists))
    if lists.null_count:
        found = found.take(pa.array(np.arange(len(lists)), mask=~valid_rows(lists)))
    return JsonValues(found, lambda: [serde.deserialize("", text) for text in found.to_pylist()])


def _ranks(ranks: WithRanks, items: Items, count: int) -> Int64s:
    """The rank of each item in its list. Raises `OneByOne`."""
    sizes = np.bincount(items.lists, minlength=count)
    firsts = (np.cumsum(sizes) - sizes)[items.lists]
    places = np.arange(len(items.lists))
    if ranks.by is None:
        return places - firsts + 1
    score = score_in_columns(ranks.by)
    if score is None:
        raise OneByOne
    order = _places(_scores_of_items(score, items), largest=False)
    starts = np.ones(len(places), np.bool_)
    starts[1:] = (items.lists[1:] != items.lists[:-1]) | (order[1:] != order[:-1])
    found: Int64s = np.maximum.accumulate(np.where(starts, places, 0)) - firsts + 1
    return found
