"""The distinct values of a step as columns: each value of a group once, with the key of its row (`agg.count_distinct`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, column_of, dictionary_of, joined, rows_where
from streams.model.aggregates import distinct_text
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, Groups, Int64s, group
from streams.operators.expressions import Bools
from streams.serdes.json_text import loads

# --- The key of a value's row: the group, the number of the aggregate, and the JSON of the value.


def row_key(group: bytes, number: int, value: object) -> bytes:
    """The key of a value's row; equal numbers have equal ones."""
    return _front(group) + _packed(number) + distinct_text(value)


def _front(group: bytes) -> bytes:
    return len(group).to_bytes(4, "big") + group


def _packed(number: int) -> bytes:
    return number.to_bytes(2, "big")


# --- The values of a column, such that equal numbers are equal.


class _Values(NamedTuple):
    """What counts as the value of each of n rows.

    Attributes:
        numbers: int64[n], the value if it is an integer of 64 bits, else the place of its text.
        in_texts: bool[n], whether the value is in `texts`.
        texts: The JSON of the other values, each once.
    """

    numbers: Int64s
    in_texts: Bools
    texts: Sequence[bytes]

    @classmethod
    def of(cls, column: FieldColumn, rows: Int64s) -> _Values:
        """The values of some rows, none of them absent.

        Raises:
            ValueError: A value holds a number that JSON does not have.
        """
        kinds, numbers, in_texts = column.kinds[rows], column.ints[rows], np.zeros(len(rows), np.bool_)
        texts: dict[bytes, int] = {}
        for kind in (FLOAT, TEXT):
            places = rows_where(kinds == kind)
            if len(places):
                items, of_places = _items(column, kind, rows[places])
                found = [texts.setdefault(one, len(texts)) if isinstance(one, bytes) else one for one in items]
                numbers[places] = np.array(found, np.int64)[of_places]
                in_texts[places] = np.array([isinstance(one, bytes) for one in items])[of_places]
        return cls(numbers, in_texts, list(texts))

    def cells(self, numbers: Int64s, in_texts: Bools) -> BinaryColumn:
        """The JSON of some values."""
        whole = pa.array(np.where(in_texts, 0, numbers)).cast(pa.string()).cast(pa.binary())
        if not in_texts.any():
            return whole
        at = np.where(in_texts, numbers, 0)
        return pc.if_else(pa.array(in_texts), column_of(self.texts, at), whole)


def _items(column: FieldColumn, kind: int, rows: Int64s) -> tuple[list[int | bytes], Int64s]:
    """The distinct values of rows of a kind, and the place of each row's value."""
    if kind == FLOAT:
        floats, of_rows = np.unique(column.floats[rows], return_inverse=True)
        return list(map(_item, floats.tolist())), of_rows
    assert column.texts is not None, "there are texts"
    texts = dictionary_of(column.texts.take(pa.array(rows)))
    return list(map(_item_of_text, texts.dictionary.to_pylist())), texts.indices.to_numpy()


def _item(value: object) -> int | bytes:
    """An integer of 64 bits itself, the JSON of any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else distinct_text(value)


def _item_of_text(text: bytes) -> int | bytes:
    # A text without escapes can be written in only one way.
    return text if text[:1] == b'"' and b"\\" not in text else _item(loads(text))


# --- The values of all aggregates of a step.


class Candidates(NamedTuple):
    """The distinct values of each group and aggregate, in the order in which records bring them.

    Attributes:
        keys: The key of each value's row.
        firsts: int64[c], the first record that has it.
        numbers: int64[c], the number of its aggregate.
    """

    keys: BinaryColumn
    firsts: Int64s
    numbers: Int64s

    @classmethod
    def of(
        cls,
        data: Sequence[bytes],
        groups: Groups,
        columns: Sequence[FieldColumn | None],
        at: Int64s,
        which: Sequence[int],
    ) -> Candidates:
        """Finds them.

        Args:
            data: The bytes of the keys of groups, by their codes.
            groups: The group of each record.
            columns: What each aggregate reads.
            at: The row of each record.
            which: The numbers of the aggregates.

        Raises:
            ValueError: A value holds a number that JSON does not have.
        """
        fronts = column_of(list(map(_front, data)), groups.codes)
        parts = [_of_aggregate(number, columns[number], at, groups.of_rows, fronts) for number in which]
        firsts = np.concatenate([first for _, first in parts])
        numbers = np.repeat(np.array(which, np.int64), [len(first) for _, first in parts])
        order = np.lexsort((numbers, firsts))
        keys = pa.concat_arrays([keys for keys, _ in parts]).take(pa.array(order))
        return cls(keys, firsts[order], numbers[order])

    def where(self, taken: Bools) -> Candidates:
        """Some of them."""
        return Candidates(self.keys.filter(pa.array(taken)), self.firsts[taken], self.numbers[taken])

    def marked(
        self, columns: Sequence[FieldColumn | None], at: Int64s, which: Sequence[int]
    ) -> list[FieldColumn | None]:
        """The columns of all aggregates, where the numbered ones read a value only from its first record."""
        found = list(columns)
        for number in which:
            column = columns[number]
            assert column is not None, "distinct values are those of a field"
            kinds = np.zeros(len(column.kinds), np.uint8)
            kinds[at[self.firsts[self.numbers == number]]] = INT
            nothing = np.zeros(len(kinds), np.int64)
            found[number] = FieldColumn(kinds, nothing, nothing.astype(np.float64), None)
        return found


def _of_aggregate(
    number: int, column: FieldColumn | None, at: Int64s, of_records: Int64s, fronts: BinaryColumn
) -> tuple[BinaryColumn, Int64s]:
    """The keys of an aggregate's values, each once for a group, and the first record that has it."""
    assert column is not None, "distinct values are those of a field"
    there = rows_where(column.kinds[at] != ABSENT)
    values = _Values.of(column, at[there])
    found = group((2 * of_records[there] + values.in_texts).astype(np.int32), values.numbers)
    firsts = np.empty(len(found.codes), np.int64)
    firsts[found.of_rows[::-1]] = there[::-1]  # the last assignment to an index wins
    in_texts = found.codes % 2 == 1
    cells = values.cells(found.starts, in_texts)
    return joined(fronts.take(pa.array(found.codes // 2)), pa.scalar(_packed(number), pa.binary()), cells), firsts
