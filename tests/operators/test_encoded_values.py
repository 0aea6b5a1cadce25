"""`EncodedValues` gives the value of each row that it is asked for, and the bytes that its serde would write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streams import JsonSerde, StringSerde
from streams.operators.columnar import EncodedValues, each_value, join_values
from streams.serdes.columns import normal_cells

CELLS = [b'{"a":2}', None, b'{"a": 1}', b" null", b"3"]
VALUES = [{"a": 2}, None, {"a": 1}, None, 3]


def encoded() -> EncodedValues:
    column = pa.array(CELLS, pa.binary())
    return EncodedValues(column, JsonSerde(), "topic", {3: None}, normal_cells(JsonSerde(), column))


@pytest.mark.parametrize("rows", [[0, 0, 1, 1, 4], [4, 3, 2, 1, 0], [2, 2], [0, 1, 2, 3, 4]])
def test_rows_in_any_order_and_several_times(rows: list[int]) -> None:
    values = encoded()
    assert values.at(rows) == [VALUES[row] for row in rows]
    assert list(values) == VALUES


def test_bytes_are_those_that_the_serde_would_write() -> None:
    written = [b'{"a":2}', None, b'{"a":1}', None, b"3"]
    assert encoded().column(JsonSerde(), "topic").to_pylist() == written
    rows = np.array([2, 4, 1, 2])
    assert encoded().take(rows).column(JsonSerde(), "topic").to_pylist() == [written[row] for row in rows.tolist()]


def test_a_changed_value_is_written_anew() -> None:
    values = encoded()
    values[0]["a"] = 5
    assert values.column(JsonSerde(), "topic").to_pylist()[0] == b'{"a":5}'
    assert next(iter(values.each())) == {"a": 5}


def test_each_value_is_one_object_for_all_its_rows_and_is_not_kept() -> None:
    values = encoded()
    first, again, last = each_value(values, np.array([0, 0, 4]))
    assert first is again
    assert (first, last) == ({"a": 2}, 3)
    assert values[0] is not first


def test_values_without_nulls() -> None:
    assert encoded().nulls.tolist() == [False, True, False, True, False]


def test_writing_values_anew_leaves_them_unread() -> None:
    values = encoded()
    assert values.is_untouched
    assert values.column(JsonSerde(), "topic")[2].as_py() == b'{"a":1}'
    assert values.is_untouched
    assert values[2] == {"a": 1}
    assert not values.is_untouched


def test_joined_columns_keep_the_bytes_and_the_objects_of_each() -> None:
    first, last = encoded(), encoded().take(np.array([4, 2]))
    first[0]["a"] = 5
    whole = join_values([[], first, last])
    assert isinstance(whole, EncodedValues)
    assert whole.column(JsonSerde(), "topic").to_pylist() == [
        b'{"a":5}',
        None,
        b'{"a":1}',
        None,
        b"3",
        b"3",
        b'{"a":1}',
    ]
    assert whole[0] is first[0]
    strings = EncodedValues(pa.array([b"x"], pa.binary()), StringSerde(), "topic", {})
    assert join_values([last, strings]) == [3, {"a": 1}, "x"]
