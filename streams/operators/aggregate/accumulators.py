"""The accumulators of built-in aggregates as arrays, in numbered slots: one for each group, session or sliding window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from state.columns import (
    FEW_CELLS,
    FEW_ROWS,
    BinaryColumn,
    binary_column,
    data_and_bounds,
    one_column,
    rows_where,
)
from state.numba_kernels import kernel
from streams.model.agg import BUILT_IN
from streams.model.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    LastBy,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Sum,
)
from streams.model.ownership import snapshot
from streams.model.sketches import ApproxCountDistinct, Quantile, Sketched
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, RankedColumn, cell, cells
from streams.operators.aggregate.functions import FieldAggregates, results_of
from streams.operators.aggregate.kept_texts import kept_texts, places_of_texts
from streams.operators.columnar import JsonValues, OneByOne
from streams.operators.stores.codec import Codec
from streams.serdes.json_text import dumps, dumps_all

# --- Numeric accumulators as arrays, and the kernel that adds rows to them. It computes what Python's `+`, `min` and `max` would.

Int64s: TypeAlias = npt.NDArray[np.int64]

SUM: Final = 0
MIN: Final = 1
MAX: Final = 2


class Numbers(NamedTuple):
    """Numbers, some of which may be missing.

    Attributes:
        kinds: uint8[n], `ABSENT`, `INT` or `FLOAT`.
        ints: int64[n], the number where the kind is `INT`; undefined elsewhere.
        floats: float64[n], the number where the kind is `FLOAT`; undefined elsewhere.
    """

    kinds: npt.NDArray[np.uint8]
    ints: Int64s
    floats: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: Sequence[Any], rest: Any = None, count: int | None = None) -> Numbers:
        """The numbers of a list (None: missing), followed by `rest` up to a length of `count`."""
        size, known = len(values) if count is None else count, len(values)
        kinds = np.full(size, _kind(rest), np.uint8)
        ints = np.zeros(size, np.int64)
        floats = np.zeros(size, np.float64)
        if rest is not None:
            (floats if isinstance(rest, float) else ints)[known:] = rest
        types = set(map(type, values))
        if len(types) == 1 and types <= {int, float}:
            kinds[:known], numbers = (INT, ints) if types == {int} else (FLOAT, floats)
            numbers[:known] = values
            return cls(kinds, ints, floats)
        kinds[:known] = [_kind(x) for x in values]
        ints[:known] = [x if isinstance(x, int) else 0 for x in values]
        floats[:known] = [x if isinstance(x, float) else 0.0 for x in values]
        return cls(kinds, ints, floats)

    def to_list(self) -> list[Any]:
        """The numbers as Python objects; None where one is missing."""
        for kind, numbers in ((INT, self.ints), (FLOAT, self.floats)):
            if (self.kinds == kind).all():
                same: list[Any] = numbers.tolist()
                return same
        triples = zip(self.kinds.tolist(), self.ints.tolist(), self.floats.tolist(), strict=True)
        return [None if kind == ABSENT else number if kind == FLOAT else whole for kind, whole, number in triples]

    def take(self, at: Int64s) -> Numbers:
        return Numbers(self.kinds[at], self.ints[at], self.floats[at])


def _kind(value: Any) -> int:
    return ABSENT if value is None else FLOAT if isinstance(value, float) else INT


def fold(mode: int, column: FieldColumn, rows: Int64s, groups: Int64s, numbers: Numbers, counts: Int64s) -> None:
    """Adds rows to the numbers of their groups, in order.

    Args:
        mode: `SUM`, `MIN` or `MAX`.
        column: The field of all rows.
        rows: int64[m], a row of the column, or ~g: the number of group g is added.
        groups: int64[m], the group to which each of them is added.
        numbers: The numbers of the groups, which are changed.
        counts: int64[G], how many values are in each number, which are changed.
    """
    _fold(mode, column.kinds, column.ints, column.floats, rows, groups, *numbers, counts)


@kernel
def _fold(
    mode: int,
    kinds: Any,
    ints: Any,
    floats: Any,
    rows: Any,
    groups: Any,
    acc_kinds: Any,
    acc_ints: Any,
    acc_floats: Any,
    counts: Any,
) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        row, group = rows[i], groups[i]
        if row >= 0:
            kind, whole, fraction, count = kinds[row], ints[row], floats[row], 1
        else:
            kind, whole, fraction, count = acc_kinds[~row], acc_ints[~row], acc_floats[~row], counts[~row]
        if kind not in (INT, FLOAT):
            continue
        counts[group] += count
        acc_kind = acc_kinds[group]
        if acc_kind == ABSENT:
            acc_kinds[group], acc_ints[group], acc_floats[group] = kind, whole, fraction
        elif mode == 0:
            if kind == INT and acc_kind == INT:
                acc_ints[group] += whole
            else:
                number = float(whole) if kind == INT else fraction
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                acc_kinds[group], acc_floats[group] = FLOAT, start + number
        else:
            if kind == INT and acc_kind == INT:
                better = whole < acc_ints[group] if mode == 1 else whole > acc_ints[group]
            else:
                number = float(whole) if kind == INT else fraction
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                better = number < start if mode == 1 else number > start
            # If two numbers are equal, the earlier one stays, as with Python's min and max.
            if better:
                acc_kinds[group], acc_ints[group], acc_floats[group] = kind, whole, fraction


# --- Columns of JSON texts, joined from the texts of their parts.
#
# orjson writes all numbers of a part in one call. So each number has the text that `JsonSerde` would write, but there is no Python
# object for it.

Bytes: TypeAlias = npt.NDArray[np.uint8]
_COMMA = ord(",")
_MOST_BYTES = 2**31 - 1


class Cells(NamedTuple):
    """Texts in one buffer.

    Attributes:
        data: uint8[...], the buffer.
        starts: int64[n], the position of each text's first byte.
        ends: int64[n], the position after its last byte.
    """

    data: Bytes
    starts: Int64s
    ends: Int64s


_NO_CELLS: Final = Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))

Part: TypeAlias = "bytes | Cells"
"""One text for all rows, or a text for each row."""


def number_cells(numbers: Numbers) -> Cells:
    """Numbers as JSON; null where one is missing."""
    if not len(numbers.kinds):
        return _NO_CELLS
    if (numbers.kinds == INT).all():
        text = orjson.dumps(np.ascontiguousarray(numbers.ints), option=orjson.OPT_SERIALIZE_NUMPY)
    elif (numbers.kinds == FLOAT).all():
        text = orjson.dumps(np.ascontiguousarray(numbers.floats), option=orjson.OPT_SERIALIZE_NUMPY)
    else:
        text = orjson.dumps(numbers.to_list())
    data = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(data == _COMMA)
    return Cells(data, np.concatenate(([1], commas + 1)), np.concatenate((commas, [len(data) - 1])))


def value_cells(values: Sequence[Any]) -> Cells:
    if not values:
        return _NO_CELLS
    texts = [dumps(value) for value in values]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Cells(data, np.concatenate(([0], ends[:-1])), ends)


def joined(parts: Sequence[Part], count: int) -> pa.BinaryArray:
    """Joins the parts of each row. Returns a column of `count` texts.

    Raises:
        OneByOne: The texts are too long for one column (2 GiB).
    """
    if not count:
        return pa.array([], pa.binary())
    lengths = np.full(count, sum(len(part) for part in parts if isinstance(part, bytes)), np.int64)
    for part in parts:
        if isinstance(part, Cells):
            lengths += part.ends - part.starts
    ends = np.cumsum(lengths)
    size = int(ends[-1])
    if size > _MOST_BYTES:
        raise OneByOne
    places, data = ends - lengths, np.empty(size, np.uint8)
    for part in parts:
        if isinstance(part, Cells):
            _copy_each(part.data, part.starts, part.ends, places, data)
        else:
            _copy_same(np.frombuffer(part, np.uint8), places, data)
    bounds = np.concatenate(([0], ends)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


@kernel
def _copy_each(source: Any, starts: Any, ends: Any, places: Any, target: Any) -> None:  # pragma: no cover - compiled
    """Copies each row's text to the row's position in `target`, and moves the position to the end of the text."""
    for row in range(len(starts)):
        place = places[row]
        for at in range(starts[row], ends[row]):
            target[place] = source[at]
            place += 1
        places[row] = place


@kernel
def _copy_same(source: Any, places: Any, target: Any) -> None:  # pragma: no cover - compiled
    """Copies one text to the positions of all rows in `target`, and moves the positions to the end of the text."""
    for row in range(len(places)):
        place = places[row]
        for at in range(len(source)):
            target[place] = source[at]
            place += 1
        places[row] = place


# --- The accumulators of built-in aggregates as arrays, in numbered slots.
#
# An operation adds a row to a slot, or, for sessions and sliding windows, merges another slot into it. A slot that is merged into a
# new one is copied: the initial accumulator of a built-in aggregate adds nothing.
#
# The definition is `Aggregate.updated` and `Aggregate.merge`, called for one record after the other. In between, each accumulator
# is written as JSON and read again, as in operators that work record by record. The kernels give equal accumulators. They add in
# the same order, and change from integers to floats where Python does. So sums are equal to the last bit, and do not depend on how
# records are split into steps. If arrays would differ from that (integers beyond 2^53 next to fractions, sums near 2^63, texts),
# `OneByOne` is raised.


_NONE = np.iinfo(np.int64).min


class Accumulators(ABC):
    """The accumulators of one aggregate. The first slots begin with known accumulators, the others with the initial one."""

    @abstractmethod
    def apply(self, rows: Int64s, slots: Int64s) -> None:
        """Apply operations, in order.

        Args:
            rows: int64[m], the row to add, or ~s to merge slot s.
            slots: int64[m], the slot that is changed.
        """

    def check(self) -> None:  # noqa: B027 - most accumulators have no such numbers
        """Raises `OneByOne` if a number has overflowed. The record that caused this must fail, so it has to be found."""

    @abstractmethod
    def take(self, slots: Int64s) -> list[Any]:
        """The accumulators of some slots."""

    def results(self, slots: Int64s) -> Cells:
        """The results of some slots as JSON."""
        return value_cells(self.take(slots))

    def stored(self, slots: Int64s) -> list[Part]:
        """The accumulators of some slots as JSON."""
        return [self.results(slots)]


FEW = FEW_ROWS
"""Up to this number of rows, objects cost less than arrays."""


class FieldAccumulators:
    """The accumulators of several aggregates, in the form in which a store holds them.

    Args:
        fields: The aggregates.
        columns: The column that each aggregate reads; None: it reads no field.
        before: The stored form of the accumulators of the first slots.
        slots: The number of slots.
        make: Makes the accumulators of one aggregate, as `in_arrays` does.

    Raises:
        OneByOne: `in_arrays` raises it.
    """

    def __init__(
        self,
        fields: FieldAggregates,
        columns: Sequence[FieldColumn | None],
        before: Sequence[Any],
        slots: int,
        make: MakeAccumulators,
    ) -> None:
        self._fields, self._bare = fields, fields.bare
        self._parts: list[Accumulators] = []
        for index, aggregate in enumerate(fields.aggregates.values()):
            known = before if fields.bare else [accumulators[index] for accumulators in before]
            self._parts.append(make(aggregate, columns[index], list(known), slots))

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        for part in self._parts:
            part.apply(rows, slots)

    def check(self) -> None:
        """Raises `OneByOne` if a number has overflowed. The record that caused this must fail, so it has to be found."""
        for part in self._parts:
            part.check()

    def take(self, slots: Int64s) -> list[Any]:
        """The stored form of the accumulators of some slots."""
        columns = self._columns_of(slots)
        return columns[0] if self._bare else list(map(list, zip(*columns, strict=True)))

    def _columns_of(self, slots: Int64s) -> list[list[Any]]:
        """The accumulators of some slots: a list for each aggregate."""
        return [part.take(slots) for part in self._parts]

    def stored(self, slots: Int64s) -> pa.BinaryArray:
        """The stored form of the accumulators of some slots, as JSON."""
        parts: list[Part] = [b"" if self._bare else b"["]
        for number, part in enumerate(self._parts):
            parts += [b","] * (number > 0) + part.stored(slots)
        return joined([*parts, b"" if self._bare else b"]"], len(slots))

    def written(self, slots: Int64s, codec: Codec) -> BinaryColumn:
        """The accumulators of some slots as the store's codec writes them; null for a slot of -1."""
        present = rows_where(slots >= 0)
        joins = codec.holds_json and len(present) > FEW_CELLS
        texts = self.stored(slots[present]) if joins else codec.values(self.take(slots[present]))
        return spread(texts, present, slots)

    def results(self, slots: Int64s) -> pa.BinaryArray:
        """The results of some slots as JSON."""
        parts: list[Part] = []
        for name, part in zip(self._fields.aggregates, self._parts, strict=True):
            if not self._bare:
                parts.append((b"," if parts else b"{") + orjson.dumps(name) + b":")
            parts.append(part.results(slots))
        return joined([*parts, b"" if self._bare else b"}"], len(slots))

    def values(self, slots: Int64s) -> JsonValues:
        """The results of some slots, as JSON and as objects; null for a slot of -1."""
        present = rows_where(slots >= 0)

        def make() -> list[Any]:
            results = self._fields.results_of(self._columns_of(slots[present]))
            if len(present) == len(slots):
                return results
            made: list[Any] = [None] * len(slots)
            for row, result in zip(present.tolist(), results, strict=True):
                made[row] = result
            return made

        if len(present) > FEW_CELLS:
            return JsonValues(spread(self.results(slots[present]), present, slots), make)
        return JsonValues(binary_column(dumps_all(make())), make)


class _Counts(Accumulators):
    def __init__(self, column: FieldColumn | None, before: list[int], slots: int) -> None:
        self._kinds = np.empty(0, np.uint8) if column is None else column.kinds
        self._every = column is None
        self._counts = np.zeros(slots, np.int64)
        self._counts[: len(before)] = before

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        _add_counts(self._every, self._kinds, rows, slots, self._counts)

    def take(self, slots: Int64s) -> list[Any]:
        counts: list[Any] = self._counts[slots].tolist()
        return counts

    def results(self, slots: Int64s) -> Cells:
        return number_cells(_whole(self._counts[slots]))


class _Numbers(Accumulators):
    """Sums, smallest or largest numbers, depending on `mode`. A new slot begins with `rest`."""

    def __init__(self, mode: int, column: FieldColumn, before: list[Any], slots: int, rest: int | None = None) -> None:
        if not (_sums_fit(column, before) if mode == SUM else comparisons_fit(column, before)):
            raise OneByOne
        self._mode, self._column = mode, column
        self._numbers = Numbers.of(before, rest, slots)
        self._counts = np.zeros(slots, np.int64)

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        fold(self._mode, self._column, rows, slots, self._numbers, self._counts)

    def check(self) -> None:
        _check_finite(self._numbers)

    def take(self, slots: Int64s) -> list[Any]:
        return self._numbers.take(slots).to_list()

    def results(self, slots: Int64s) -> Cells:
        return number_cells(self._numbers.take(slots))


class _Means(_Numbers):
    def __init__(self, column: FieldColumn, before: list[Any], slots: int) -> None:
        sums = [total for total, _ in before]
        if None in sums:
            raise OneByOne
        super().__init__(SUM, column, sums, slots, 0)
        self._counts[: len(before)] = [count for _, count in before]

    def take(self, slots: Int64s) -> list[Any]:
        pairs = zip(self._numbers.take(slots).to_list(), self._counts[slots].tolist(), strict=True)
        return [list(pair) for pair in pairs]

    def results(self, slots: Int64s) -> Cells:
        (kinds, ints, floats), counts = self._numbers.take(slots), self._counts[slots]
        if max(_most(ints), _most(counts)) > EXACT:
            return value_cells([total / count if count else None for total, count in self.take(slots)])
        totals = np.where(kinds == FLOAT, floats, ints)
        means = np.divide(totals, counts, out=np.zeros(len(slots)), where=counts > 0)
        return number_cells(Numbers(np.where(counts > 0, FLOAT, ABSENT).astype(np.uint8), ints, means))

    def stored(self, slots: Int64s) -> list[Part]:
        counts = _whole(self._counts[slots])
        return [b"[", number_cells(self._numbers.take(slots)), b",", number_cells(counts), b"]"]


class _Chosen(Accumulators):
    """First and last values."""

    def __init__(self, mode: int, column: FieldColumn, before: list[Any], slots: int) -> None:
        self._mode, self._column, self._before = mode, column, before
        # The row whose value is chosen, or ~s for the initial value of slot s.
        self._choices = np.full(slots, _NONE, np.int64)
        self._choices[: len(before)] = [_NONE if value is None else ~slot for slot, value in enumerate(before)]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        _choose(self._mode == FIRST, self._column.kinds, rows, slots, self._choices)

    def take(self, slots: Int64s) -> list[Any]:
        choices = self._choices[slots]
        new = iter(cells(self._column, choices[choices >= 0]))
        return [
            None if choice == _NONE else self._before[~choice] if choice < 0 else next(new)
            for choice in choices.tolist()
        ]


class _Objects(Accumulators):
    """Accumulators of any class, as objects. `Aggregate.updated` is called for each record. Slots cannot be merged."""

    def __init__(self, aggregate: Aggregate, column: FieldColumn | None, before: list[Any], slots: int) -> None:
        self._aggregate, self._column = aggregate, column
        rest = slots - len(before)
        if type(aggregate) in BUILT_IN:
            self._after = before + [aggregate.initial() for _ in range(rest)]
        else:
            # Copied, because a user's `add` may change its accumulator in place, and other code still has the old one.
            self._after = deepcopy(before) + [snapshot(aggregate.initial()) for _ in range(rest)]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        updated, after = self._aggregate.updated, self._after
        values = repeat(None) if self._column is None else cells(self._column, rows)
        for value, slot in zip(values, slots.tolist(), strict=False):
            after[slot] = updated(after[slot], value)

    def take(self, slots: Int64s) -> list[Any]:
        return [self._after[slot] for slot in slots.tolist()]

    def results(self, slots: Int64s) -> Cells:
        return value_cells(results_of(self._aggregate, self.take(slots)))

    def stored(self, slots: Int64s) -> list[Part]:
        return [value_cells(self.take(slots))]


class _Ranked(_Chosen):
    """The values of the records that are the smallest, the largest or the last by a number or a text, such as `agg.max_by`."""

    def __init__(self, mode: int, column: FieldColumn, before: list[Any], slots: int) -> None:
        super().__init__(mode, column, before, slots)
        starts, by = [None if one is None else one[0] for one in before], column
        if not comparisons_fit(by, starts):
            found = places_of_texts(by, starts)
            if found is None:
                raise OneByOne
            by, starts = found
        self._by = by
        self._numbers = Numbers.of(starts, None, slots)
        self._made: tuple[Int64s, tuple[Cells, Cells]] | None = None

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        by, self._made = self._by, None
        _rank(self._mode, by.kinds, by.ints, by.floats, rows, slots, *self._numbers, self._choices)

    def results(self, slots: Int64s) -> Cells:
        return self._cells(slots)[1]

    def stored(self, slots: Int64s) -> list[Part]:
        if (self._choices[slots] == _NONE).any():
            return [value_cells(self.take(slots))]
        by, kept = self._cells(slots)
        return [b"[", by, b",", kept, b"]"]

    def _cells(self, slots: Int64s) -> tuple[Cells, Cells]:
        """The numbers or texts that rank the chosen records, and their values, as JSON. Cached: stores and results need both."""
        if self._made is None or not np.array_equal(self._made[0], slots):
            self._made = slots, self._make_cells(self._choices[slots])
        return self._made[1]

    def _make_cells(self, choices: Int64s) -> tuple[Cells, Cells]:
        assert isinstance(self._column, RankedColumn), "see PickedFields"
        is_row = choices >= 0
        known = [None if one == _NONE else self._before[~one] for one in choices[~is_row].tolist()]
        at = np.empty(len(choices), np.int64)
        at[is_row] = np.arange(len(choices) - len(known))
        at[~is_row] = np.arange(len(choices) - len(known), len(choices))
        made = list[Cells]()
        for part, texts in enumerate(kept_texts(self._column, choices[is_row])):
            of_known = binary_column([dumps(None if one is None else one[part]) for one in known])
            made.append(_cells_at(one_column([texts, of_known]), at))
        return made[0], made[1]


def _cells_at(texts: BinaryColumn, rows: Int64s) -> Cells:
    data, bounds = data_and_bounds(texts)
    places = bounds.astype(np.int64)
    return Cells(data, places[:-1][rows], places[1:][rows])


class _Lists(Accumulators):
    """Lists of the last values, as Python lists."""

    def __init__(self, aggregate: Aggregate, column: FieldColumn, before: list[Any], slots: int) -> None:
        self._aggregate, self._column = aggregate, column
        self._lists = before + [aggregate.initial() for _ in range(slots - len(before))]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            before = self._lists[slot]
            if row < 0:
                self._lists[slot] = self._aggregate.merge(before, self._lists[~row])
            elif self._column.kinds[row] != ABSENT:
                self._lists[slot] = self._aggregate.add(before, cell(self._column, row))

    def take(self, slots: Int64s) -> list[Any]:
        return [self._lists[slot] for slot in slots.tolist()]


class _Sketches(Accumulators):
    """Sketches. Each one is decoded and encoded once, however many rows are added to it.

    The libraries' sketches take one value at a time, so there is a loop over the rows. `items` computes what each row adds.
    """

    def __init__(
        self,
        items: Callable[[Any, FieldColumn], Sequence[Any]],
        aggregate: Sketched,
        column: FieldColumn,
        before: list[Any],
        slots: int,
    ) -> None:
        self._aggregate, self._present = aggregate, (column.kinds != ABSENT).tolist()
        self._items = items(aggregate, column)
        self._sketches = [*map(aggregate.read, before)]
        self._sketches += [aggregate.read(aggregate.initial()) for _ in range(slots - len(before))]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        aggregate, sketches, items, put = self._aggregate, self._sketches, self._items, self._aggregate.put
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            if row < 0:
                earlier, later = aggregate.written(sketches[slot]), aggregate.written(sketches[~row])
                sketches[slot] = aggregate.read(aggregate.merge(earlier, later))
            elif self._present[row]:
                put(sketches[slot], items[row])

    def take(self, slots: Int64s) -> list[Any]:
        return [self._aggregate.written(self._sketches[slot]) for slot in slots.tolist()]

    def results(self, slots: Int64s) -> Cells:
        return value_cells([self._aggregate.shown(self._sketches[slot]) for slot in slots.tolist()])

    def stored(self, slots: Int64s) -> list[Part]:
        return [value_cells(self.take(slots))]


def _bucket_numbers(aggregate: Quantile, column: FieldColumn) -> list[int]:
    """The bucket of each number, as `CubicallyInterpolatedMapping.key` of `ddsketch` computes it for one.

    Raises:
        OneByOne: An integer has more than 64 bits, or a number is too large for the buckets.
    """
    numbers = np.where(column.kinds == FLOAT, column.floats, column.ints)
    sizes, buckets = np.abs(numbers), aggregate.buckets
    if (column.kinds == TEXT).any() or not (sizes <= buckets.largest).all():
        raise OneByOne
    mapping = buckets.mapping
    mantissas, exponents = np.frexp(np.maximum(sizes, buckets.smallest))
    parts = 2 * mantissas - 1
    logarithms = ((mapping.A * parts + mapping.B) * parts + mapping.C) * parts + (exponents - 1)
    found = np.ceil(logarithms * mapping._multiplier).astype(np.int64) - buckets.below_first
    signed: list[int] = np.where(sizes < buckets.smallest, 0, np.copysign(found, numbers)).astype(np.int64).tolist()
    return signed


def _distinct_texts(aggregate: ApproxCountDistinct, column: FieldColumn) -> list[str]:
    """The text of each row's value. Two values are the same one if their texts are equal."""
    texts = repeat(None) if column.texts is None else column.texts.to_pylist()
    numbers = zip(column.kinds.tolist(), column.ints.tolist(), column.floats.tolist(), texts, strict=False)
    return [
        str(whole)
        if kind == INT
        else aggregate.item(number)
        if kind == FLOAT
        else text.decode()
        if text is not None
        and text[:1] == b'"'
        and b"\\" not in text  # without escapes, it can be written in only one way
        else aggregate.item(cell(column, row))
        for row, (kind, whole, number, text) in enumerate(numbers)
    ]


FIRST: Final = 0
LAST: Final = 1

LESS: Final = 0
GREATER: Final = 1
GREATER_OR_EQUAL: Final = 2
"""How the number of a record must compare with the best number so far to replace it."""

_CLASSES: Final[dict[type[Aggregate], Any]] = {
    Count: _Counts,
    CountDistinct: _Counts,
    Sum: partial(_Numbers, SUM),
    Min: partial(_Numbers, MIN),
    Max: partial(_Numbers, MAX),
    Mean: _Means,
    First: partial(_Chosen, FIRST),
    Last: partial(_Chosen, LAST),
    MinBy: partial(_Ranked, LESS),
    MaxBy: partial(_Ranked, GREATER),
    LastBy: partial(_Ranked, GREATER_OR_EQUAL),
}
_SKETCHES: Final[dict[type[Aggregate], Callable[[Any, FieldColumn], Sequence[Any]]]] = {
    Quantile: _bucket_numbers,
    ApproxCountDistinct: _distinct_texts,
}


MakeAccumulators: TypeAlias = "Callable[[Aggregate, FieldColumn | None, list[Any], int], Accumulators]"
"""Makes accumulators. Arguments: the aggregate, its column, the accumulators of the first slots, and the number of slots."""


def in_arrays(aggregate: Aggregate, column: FieldColumn | None, before: list[Any], slots: int) -> Accumulators:
    """Accumulators as arrays.

    Raises:
        OneByOne: Arrays of 64-bit integers and doubles would differ from Python's numbers.
        KeyError: The class of the aggregate has no accumulators as arrays.
    """
    if type(aggregate) is Collect and column is not None:
        return _Lists(aggregate, column, before, slots)
    if isinstance(aggregate, Sketched) and (items := _SKETCHES.get(type(aggregate))) is not None and column is not None:
        return _Sketches(items, aggregate, column, before, slots)
    # Only for the exact class, because a subclass of a built-in aggregate may compute something else.
    made: Accumulators = _CLASSES[type(aggregate)](column, before, slots)
    return made


def _where_they_fit(aggregate: Aggregate, column: FieldColumn | None, before: list[Any], slots: int) -> Accumulators:
    """Accumulators as arrays; as objects if arrays do not exist, or would differ from Python's numbers (long integers, texts)."""
    try:
        return in_arrays(aggregate, column, before, slots)
    except (OneByOne, KeyError):
        return _Objects(aggregate, column, before, slots)


def accumulators_of(
    fields: FieldAggregates, columns: Sequence[FieldColumn | None], before: Sequence[Any], slots: int, rows: int
) -> FieldAccumulators:
    """The accumulators that add this number of rows at the lowest cost. Slots cannot be merged."""
    return FieldAccumulators(fields, columns, before, slots, _Objects if rows <= FEW else _where_they_fit)


def spread(texts: BinaryColumn, present: Int64s, slots: Int64s) -> BinaryColumn:
    """A column of the texts at the indices `present`, and of null for slots of -1."""
    if len(present) == len(slots):
        return texts
    at = np.zeros(len(slots), np.int64)
    at[present] = np.arange(len(present))
    return texts.take(pa.array(at, mask=slots < 0))


def _whole(numbers: Int64s) -> Numbers:
    return Numbers(np.full(len(numbers), INT, np.uint8), numbers, np.zeros(0))


def _most(numbers: Int64s) -> int:
    return int(np.abs(numbers).max(initial=0))


def _sums_fit(column: FieldColumn, before: list[Any]) -> bool:
    most = largest(before) * len(before) + largest_of(column) * len(column.ints)
    return are_numbers(column, before) and most < 2**62


def _check_finite(numbers: Numbers) -> None:
    """Raises `OneByOne` if a sum has overflowed. It then stays infinite, or becomes NaN, so one check at the end is enough."""
    if not np.isfinite(numbers.floats[numbers.kinds == FLOAT]).all():
        raise OneByOne


@kernel
def _add_counts(every: bool, kinds: Any, rows: Any, slots: Any, counts: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            counts[slots[i]] += counts[~row]
        elif every or kinds[row] != ABSENT:
            counts[slots[i]] += 1


@kernel
def _choose(first: bool, kinds: Any, rows: Any, slots: Any, choices: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        row, slot = rows[i], slots[i]
        choice = row
        if row < 0:
            choice = choices[~row]
        elif kinds[row] == ABSENT:
            choice = _NONE
        if choice != _NONE and (not first or choices[slot] == _NONE):
            choices[slot] = choice


@kernel
def _rank(
    mode: int,
    kinds: Any,
    ints: Any,
    floats: Any,
    rows: Any,
    slots: Any,
    acc_kinds: Any,
    acc_ints: Any,
    acc_floats: Any,
    choices: Any,
) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        row, slot = rows[i], slots[i]
        if row >= 0:
            kind, whole, fraction, choice = kinds[row], ints[row], floats[row], row
        else:
            kind, whole, fraction, choice = acc_kinds[~row], acc_ints[~row], acc_floats[~row], choices[~row]
        if kind not in (INT, FLOAT):
            continue
        best = acc_kinds[slot]
        better = best == ABSENT
        if not better:
            if kind == INT and best == INT:
                less, more = whole < acc_ints[slot], whole > acc_ints[slot]
            else:
                number = float(whole) if kind == INT else fraction
                start = float(acc_ints[slot]) if best == INT else acc_floats[slot]
                less, more = number < start, number > start
            better = less if mode == 0 else more if mode == 1 else not less
        if better:
            acc_kinds[slot], acc_ints[slot], acc_floats[slot], choices[slot] = kind, whole, fraction, choice


EXACT: Final = 2**53
"""Up to this number, every integer is exactly a double."""


def comparisons_fit(column: FieldColumn, starts: list[Any]) -> bool:
    """Whether numbers compare as in Python: integers with each other always, integers with fractions up to 2^53."""
    if not are_numbers(column, starts):
        return False
    most = max(largest(starts), largest_of(column))
    mixed = bool((column.kinds == FLOAT).any()) or any(isinstance(x, float) for x in starts)
    return most <= (EXACT if mixed else 2**63 - 1)


def are_numbers(column: FieldColumn, starts: list[Any]) -> bool:
    """Whether all cells and accumulators are 64-bit numbers, or missing; not texts, times or longer integers."""
    known = _NUMBERS.issuperset(map(type, starts))
    return known and (column.texts is None or not (column.kinds == TEXT).any())


_NUMBERS: Final = frozenset({int, float, type(None)})


def largest(starts: list[Any]) -> int:
    """The largest absolute value of the integers."""
    return max((abs(x) for x in starts if isinstance(x, int)), default=0)


def largest_of(column: FieldColumn) -> int:
    """The largest absolute value of a column's integers."""
    return max(abs(int(column.ints.min(initial=0))), abs(int(column.ints.max(initial=0))))
