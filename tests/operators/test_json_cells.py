"""Columns of JSON texts are what orjson writes value by value."""

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.aggregate.accumulators import Numbers, joined, number_cells, value_cells

whole = st.integers(-(2**63), 2**63 - 1)
fractions = st.floats(allow_nan=False, allow_infinity=False)


@given(st.one_of(*(st.lists(st.one_of(*kinds)) for kinds in ([whole], [fractions], [whole, fractions, st.none()]))))
def test_numbers(values):
    texts = joined([b"[", number_cells(Numbers.of(values)), b"]"], len(values))
    assert texts.to_pylist() == [orjson.dumps([value]) for value in values]


@given(st.lists(st.one_of(whole, fractions, st.none(), st.text(), st.lists(st.booleans()))))
def test_values_beside_others(values):
    numbers = number_cells(Numbers.of([0] * len(values)))
    texts = joined([b'{"a":', value_cells(values), b',"b":', numbers, b"}"], len(values))
    assert texts.to_pylist() == [orjson.dumps({"a": value, "b": 0}) for value in values]
    assert np.all(texts.is_valid().to_numpy(zero_copy_only=False))
