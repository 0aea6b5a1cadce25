"""The JSON scanner against orjson: the same cells where it is sure, and never sure of what orjson rejects."""

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import NoFieldsError
from streams.model.record import pick
from streams.operators.aggregate.column_rows import cell
from streams.operators.json_fields import read_fields
from streams.serdes.json_text import dumps, loads
from tests.budget import up_to

PATHS = ("a", "bb", "long name", "é", "a.0", "a.2", "bb.1")

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-100, 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-1000, 1000, places=3).map(float),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner)
)
arrays = st.lists(scalars, max_size=4)
objects = st.dictionaries(
    st.sampled_from(["a", "bb", "long name", "é", "x", 'q"', "a\\"]), st.one_of(scalars, arrays, anything), max_size=5
)
number_texts = st.from_regex(r"-?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,3})?", fullmatch=True)


def same(a, b):
    return type(a) is type(b) and (a == b or a != a)


def check(texts):
    found = read_fields(pa.array(texts, pa.binary()), PATHS)
    for row, text in enumerate(texts):
        try:
            value = None if text is None else orjson.loads(text)
        except orjson.JSONDecodeError:
            assert row in found.rejected, text
            continue
        # What orjson accepts, with exact integers.
        value = None if text is None else json.loads(text)
        assert row not in found.rejected, text
        assert found.null_values[row] == (value is None)
        without_fields = isinstance(value, str | int | float)
        assert found.without_fields[row] == without_fields
        for column, path in zip(found.fields, PATHS, strict=True):
            assert same(cell(column, row), None if without_fields else pick(value, path)), (text, path)


@up_to(150)
@given(st.lists(st.one_of(objects, anything), max_size=6), st.booleans(), st.booleans())
def test_valid_json(values, spaces, ascii_only):
    texts = [
        json.dumps(v, ensure_ascii=ascii_only, separators=None if spaces else (",", ":"), indent=1 if spaces else None)
        for v in values
    ]
    check([text.encode("utf-8", "replace") for text in texts])


@up_to(150)
@given(number_texts)
def test_numbers(text):
    check([b'{"a":' + text.encode() + b"}", b'{"a":' + text.encode() + b',"bb":1}'])


@up_to(200)
@given(objects, st.integers(0, 200), st.binary(max_size=2), st.integers(0, 2))
def test_damaged_json(value, at, noise, cut):
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    at %= len(text) + 1
    check([text[:at] + noise + text[at + cut :], text])


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1}{',
        b'{"a":1,}',
        b'{"a" 1}',
        b"{'a':1}",
        b'{"a":01}',
        b'{"a":.5}',
        b'{"a":1.}',
        b'{"a":-}',
        b'{"a":+1}',
        b'{"a":1e}',
        b'{"a":nul}',
        b'{"a":truely}',
        b'{"a":"\x01"}',
        b'{"a":"\\x"}',
        b'{"a":"\xff"}',
        b"",
        b"   ",
        b"[1,2",
        b'{"a":1} ',
        b' {"a" : -0 , "bb":-0.0} ',
        b'{"a":1,"a":2}',
        b'{"a":"x","a":null}',
        b'{"a":5,"a":"x"}',
        b"null",
        b"5",
        b"{}",
        b'{"\\u0061":1}',
        b'{"a":9007199254740993.0}',
        b'{"a":123456789012345678}',
        b'{"a":1234567890123456789}',
        b'{"a":18446744073709551615}',
        b'{"a":1e22,"bb":1e23}',
        b'{"a":0.1,"bb":1e-400}',
        b'{"a":[1,2.5,"x"],"bb":[]}',
        b'{"a":[ 1 , 2 ,3 ] , "bb":[null,true]}',
        b'{"a":[1,2,3],"a":[4]}',
        b'{"a":[1,2,3],"a":5}',
        b'{"a":5,"a":[1,2,3]}',
        b'{"a":[1,2,3,]}',
        b'{"a":[1 2]}',
        b'{"a":[,1]}',
        b'{"a":[1,2}',
        b'{"a":[1,[2],3]}',
        b'{"a":{"0":7}}',
        b'{"a":[',
        b'{"a":["\xff"]}',
    ],
)
def test_corners(text):
    check([text])


def test_slices_and_nulls():
    texts = [b'{"a":1}', None, b'{"a":2.5}', b"bad", b'{"a":"t"}']
    found = read_fields(pa.array([b"x", *texts, b"y"], pa.binary()).slice(1, 5), PATHS)
    assert [cell(found.fields[0], row) for row in range(5)] == [1, None, 2.5, None, "t"]
    assert found.null_values.tolist() == [False, True, False, False, False]
    assert list(found.rejected) == [3]
    assert found.fields[0].kinds.dtype == np.uint8


INSIDE = ["a", "a.b", "a.b.c", "a.0.b", "b.c", "a.c.0"]
parts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda smaller: st.lists(smaller, max_size=2) | st.dictionaries(st.sampled_from("abc"), smaller, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        parts.map(dumps) | st.sampled_from([None, b'{"a":{"b":1}', b'{"a":{"b":01}}', b'{"a":{"b":1},"a":{"b":2}}']),
        max_size=6,
    )
)
def test_nested_fields_are_those_of_the_whole_value(values: list[bytes | None]) -> None:
    found = read_fields(pa.array(values, pa.binary()), INSIDE)
    for row, value in enumerate(values):
        try:
            whole = None if value is None else loads(value)
            expected = [pick(whole, path) for path in INSIDE]
        except NoFieldsError:
            assert found.without_fields[row]
        except Exception:
            assert row in found.rejected
        else:
            assert [cell(field, row) for field in found.fields] == expected
            assert found.null_values[row] == (whole is None)


def test_nested_fields_are_read_without_decoding_the_values() -> None:
    values = [dumps({"type": 2, "bid": {"price": price, "extra": "x" * 40, "at": {"ms": 5}}}) for price in range(20)]

    def load(value: bytes) -> Any:
        raise AssertionError(value)

    found = read_fields(pa.array(values, pa.binary()), ["bid.price", "bid", "bid.at.ms"], load)
    assert [cell(found.fields[0], row) for row in range(20)] == list(range(20))
    assert cell(found.fields[2], 7) == 5
