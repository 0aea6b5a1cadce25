"""JSON that may stay as it is: never where orjson would write anything else, and always in the usual cases."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.serdes.json_scan import normal_json

PIECES = [
    *("{", "}", "[", "]", ",", ":", '"', '"a"', '"b":', '"a":', '""', " ", "\\n", "\\u00e9", "\u00e9", "\x7f", "\x01", "e", "E+"),
    *("0", "-", "-0", "1", "23", ".", ".0", "0.1", "00", "true", "false", "null", "123456789012345", "0.0001"),
]  # fmt: skip
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
    st.integers(-(2**70), 2**70).map(str),
)
OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner),
)


def is_normal(text: bytes) -> bool:
    """With other rows around it, and a column that does not begin with its buffer."""
    column = pa.array([b"[]", b"[", text, None, b"1"], pa.binary())[1:]
    broken, normal, null, last = normal_json(column).tolist()
    assert (broken, null) == (False, False)
    assert last or not normal
    return normal


def written_anew(text: bytes) -> bytes | None:
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    return None if value is None else orjson.dumps(value)


@settings(max_examples=500)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), NUMBERS, st.text()))
@example("1e5")
@example('{"a":1,"b":2,"a":3}')
@example('{"a":{"a":1},"b":{"a":1}}')
@example("[" * 40 + "]" * 40)
@example("0.00001")
@example("-0.0")
def test_what_is_normal_is_what_orjson_writes(text: str) -> None:
    data = text.encode(errors="replace")
    assert not is_normal(data) or written_anew(data) == data


@settings(max_examples=300)
@given(OBJECTS)
def test_written_values_are_left_as_they_are_or_uncertain(value: object) -> None:
    try:
        data = orjson.dumps(value)
    except TypeError:  # integers of more than 64 bits
        return
    assert not is_normal(data) or written_anew(data) == data


@pytest.mark.parametrize(
    "text",
    [
        b'{"n":10000001,"v":23.125,"pad":"xxxx"}',
        b'{"a":{"b":[1,-2,3.5,true,null]},"c":[],"d":{}}',
        '"h\u00e9"'.encode(),
        b"0.5",
        b"-12.0",
        b'[{"a":1},{"a":2}]',
    ],
)
def test_usual_values_are_normal(text: bytes) -> None:
    assert is_normal(text)


def test_a_text_that_is_not_utf8_makes_the_column_uncertain() -> None:
    assert normal_json(pa.array([b'"\xff"', b"1"], pa.binary())).tolist() == [False, False]
