"""The accumulators of built-in aggregates in numbered slots, as arrays, and the operations of sessions and sliding windows on them.

An operation either adds a row to a slot, or merges another slot into it. Merging into a new slot copies, since merging anything
behind the initial accumulator of a built-in aggregate does not change it. The accumulators equal those of `Aggregate.updated` and
`Aggregate.merge`, one record after the other, with each one written as JSON and read again in between, as the operators that
work record by record do. Where arrays would differ from that, `OneByOne` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from state.kafka.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from streams.operators.aggregate.columns.accumulate import EXACT, comparisons_fit, has_long_numbers, largest, largest_of
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, FieldColumn, cell
from streams.operators.aggregate.columns.json_cells import Cells, Part, joined, number_cells, value_cells
from streams.operators.aggregate.columns.number_fold import MAX, MIN, SUM, Numbers, fold
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.columnar import OneByOne
from streams.operators.result_columns import JsonValues
from streams.operators.stores.codec import Codec

Int64s: TypeAlias = npt.NDArray[np.int64]

_NONE = np.iinfo(np.int64).min


class Accumulators(ABC):
    """The accumulators of one aggregate. The first slots begin with known accumulators, the others with the initial one."""

    @abstractmethod
    def apply(self, rows: Int64s, slots: Int64s) -> None:
        """Apply operations, in order.

        Args:
            rows: int64[m], the row to add; ~s stands for slot s, which is merged behind what is there.
            slots: int64[m], the slot that each operation changes.
        """

    def check(self) -> None:  # noqa: B027 - most accumulators have no such numbers
        """Raises `OneByOne` if an accumulator is no number that JSON can hold."""

    @abstractmethod
    def take(self, slots: Int64s) -> list[Any]:
        """The accumulators of some slots."""

    @abstractmethod
    def results(self, slots: Int64s) -> Cells:
        """The results of some slots as JSON."""

    def stored(self, slots: Int64s) -> list[Part]:
        """The accumulators of some slots as JSON."""
        return [self.results(slots)]


class FieldAccumulators:
    """The accumulators of several aggregates, in the form in which a store holds them.

    Args:
        fields: The aggregates; all are built in.
        columns: What each of them reads.
        before: The stored form of the accumulators of the first slots.
        slots: The number of slots.

    Raises:
        OneByOne: Arrays of 64-bit integers and doubles would differ from Python's numbers.
    """

    def __init__(
        self, fields: FieldAggregates, columns: Sequence[FieldColumn | None], before: Sequence[Any], slots: int
    ) -> None:
        self._fields, self._bare = fields, fields.bare
        self._parts: list[Accumulators] = []
        for index, aggregate in enumerate(fields.aggregates.values()):
            known = before if fields.bare else [accumulators[index] for accumulators in before]
            self._parts.append(_CLASSES[type(aggregate)](columns[index], list(known), slots))

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        """See `Accumulators`."""
        for part in self._parts:
            part.apply(rows, slots)

    def check(self) -> None:
        """Raises `OneByOne` if an accumulator is no number that JSON can hold."""
        for part in self._parts:
            part.check()

    def take(self, slots: Int64s) -> list[Any]:
        """The stored form of the accumulators of some slots."""
        columns = [part.take(slots) for part in self._parts]
        return columns[0] if self._bare else [list(row) for row in zip(*columns, strict=True)]

    def stored(self, slots: Int64s) -> pa.BinaryArray:
        """The same as JSON."""
        parts: list[Part] = [b"" if self._bare else b"["]
        for number, part in enumerate(self._parts):
            parts += [b","] * (number > 0) + part.stored(slots)
        return joined([*parts, b"" if self._bare else b"]"], len(slots))

    def written(self, slots: Int64s, codec: Codec) -> BinaryColumn:
        """The same as a store holds it; slot -1 stands for a deleted row, null."""
        present = np.flatnonzero(slots >= 0)
        texts = self.stored(slots[present]) if codec.holds_json else codec.values(self.take(slots[present]))
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
        """The same as values; slot -1 stands for None."""
        present = np.flatnonzero(slots >= 0)

        def make() -> list[Any]:
            made: list[Any] = [None] * len(slots)
            for row, accumulator in zip(present.tolist(), self.take(slots[present]), strict=True):
                made[row] = self._fields.result(accumulator)
            return made

        texts = spread(self.results(slots[present]), present, slots)
        return JsonValues(texts, make)


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
    """Sums, smallest and largest numbers."""

    def __init__(self, mode: int, column: FieldColumn, before: list[Any], slots: int) -> None:
        if not (_sums_fit(column, before) if mode == SUM else comparisons_fit(column, before)):
            raise OneByOne
        self._mode, self._column = mode, column
        self._numbers = Numbers.of(before, None, slots)
        self._counts = np.zeros(slots, np.int64)

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        fold(self._mode, self._column, rows, slots, self._numbers, self._counts)

    def check(self) -> None:
        _check_finite(self._numbers)

    def take(self, slots: Int64s) -> list[Any]:
        return self._numbers.take(slots).to_list()

    def results(self, slots: Int64s) -> Cells:
        return number_cells(self._numbers.take(slots))


class _Means(Accumulators):
    def __init__(self, column: FieldColumn, before: list[Any], slots: int) -> None:
        sums = [total for total, _ in before]
        if None in sums or not _sums_fit(column, sums):
            raise OneByOne
        self._column = column
        self._numbers = Numbers.of(sums, 0, slots)
        self._counts = np.zeros(slots, np.int64)
        self._counts[: len(before)] = [count for _, count in before]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        fold(SUM, self._column, rows, slots, self._numbers, self._counts)

    def check(self) -> None:
        _check_finite(self._numbers)

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

    def __init__(self, first: bool, column: FieldColumn, before: list[Any], slots: int) -> None:
        if not np.isfinite(column.floats).all():
            raise OneByOne
        self._first, self._column, self._before = first, column, before
        # A row, or ~s for what slot s began with.
        self._choices = np.full(slots, _NONE, np.int64)
        self._choices[: len(before)] = [_NONE if value is None else ~slot for slot, value in enumerate(before)]

    def apply(self, rows: Int64s, slots: Int64s) -> None:
        _choose(self._first, self._column.kinds, rows, slots, self._choices)

    def take(self, slots: Int64s) -> list[Any]:
        return [
            None if choice == _NONE else self._before[~choice] if choice < 0 else cell(self._column, choice)
            for choice in self._choices[slots].tolist()
        ]

    def results(self, slots: Int64s) -> Cells:
        return value_cells(self.take(slots))


_CLASSES: Final[dict[type[Aggregate], Any]] = {
    Count: _Counts,
    Sum: partial(_Numbers, SUM),
    Min: partial(_Numbers, MIN),
    Max: partial(_Numbers, MAX),
    Mean: _Means,
    First: partial(_Chosen, True),
    Last: partial(_Chosen, False),
}


def spread(texts: BinaryColumn, present: Int64s, slots: Int64s) -> BinaryColumn:
    """The texts at the indices `present`; null where there is no slot."""
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
    return not has_long_numbers(column) and most < 2**62


def _check_finite(numbers: Numbers) -> None:
    """JSON holds infinite numbers as null, so that the next record would begin anew."""
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
