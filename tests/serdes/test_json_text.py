"""JSON of plain values: what is kept comes back in value and type, or is refused; what leaves is converted without loss."""

import enum
import json
import math
import re
import uuid
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import SerdeError
from streams.serdes.base import comes_back, kept
from streams.serdes.columns import write_all
from streams.serdes.json import JsonSerde, JsonWithKeys
from streams.serdes.json_text import dumps, dumps_all, loads

PLAIN, KEPT, WITH_KEYS = JsonSerde(), kept(JsonSerde()), kept(JsonWithKeys())


class Color(str, enum.Enum):
    RED = "red"


@dataclass
class Seen:
    last: str
    _n: int = 0


def same(one: Any, other: Any) -> bool:
    """Equal in value and in the type of every part."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return list(map(typed, one)) == list(map(typed, other)) and all(map(same, one.values(), other.values()))
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and math.copysign(1, one) == math.copysign(1, other) if type(one) is float else one == other


def typed(key: Any) -> tuple[type, Any]:
    return type(key), key


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)
others = st.sampled_from(
    [
        (1, 2), {1, 2}, frozenset("a"), date(2026, 1, 1), uuid.UUID(int=7), Color.RED, Seen("a", 1), math.nan, -math.inf,
        Decimal(1), b"x", np.float64(1.5), np.int64(2), np.array([1]), Counter("aa"), OrderedDict(a=1), defaultdict(int, a=1),
    ]
)  # fmt: skip
keys = (
    texts | st.integers(-5, 5) | st.booleans() | st.none() | st.floats(allow_nan=False) | st.sampled_from(list(Color))
)
any_values = st.recursive(
    st.none() | st.booleans() | numbers | texts | others,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(keys, parts, max_size=3) | st.tuples(parts, parts),
    max_leaves=8,
)


@given(json_values)
def test_what_json_has_is_kept(value):
    data = KEPT.serialize("t", value)
    assert data == PLAIN.serialize("t", value)
    assert same(KEPT.deserialize("t", data), value)
    if value is not None:
        assert json.loads(data) == value


@pytest.mark.parametrize("serde", [KEPT, WITH_KEYS], ids=["JsonSerde", "JsonWithKeys"])
@given(value=any_values)
def test_what_is_kept_comes_back_or_is_refused(serde, value):
    try:
        data = serde.serialize("t", value)
    except SerdeError:
        return
    assert same(serde.deserialize("t", data), value)


@given(st.lists(any_values | json_values, max_size=5))
def test_many_values_are_kept_or_refused_like_one(values):
    def one_by_one():
        return [KEPT.serialize("t", value) for value in values]

    try:
        together = write_all(KEPT, "t", values)
    except SerdeError as error:
        with pytest.raises(SerdeError, match="^" + re.escape(str(error)) + "$"):
            one_by_one()
    else:
        assert together == one_by_one()


@given(st.lists(any_values | json_values, max_size=5))
def test_many_values_are_written_like_one(values):
    def one_by_one():
        return [None if value is None else dumps(value) for value in values]

    try:
        together = dumps_all(values)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error), match="^" + re.escape(str(error)) + "$"):
            one_by_one()
    else:
        assert together == one_by_one()


@given(st.recursive(json_values, lambda parts: st.dictionaries(st.integers() | texts, parts, max_size=3), max_leaves=5))
def test_numbers_as_keys_are_kept_for_aggregates_and_change_nothing_for_others(value):
    try:
        data = WITH_KEYS.serialize("t", value)
    except SerdeError:
        return  # keys of several kinds
    assert same(WITH_KEYS.deserialize("t", data), value)
    assert PLAIN.deserialize("t", data) == PLAIN.deserialize("t", PLAIN.serialize("t", value))


def test_the_error_says_where_and_what_to_write():
    with pytest.raises(
        SerdeError, match=r"in \['days'\]\[1\], .*is a date, which JSON would give back as '2026-01-01'"
    ):
        KEPT.serialize("t", {"days": ["x", date(2026, 1, 1)]})
    with pytest.raises(SerdeError, match=r"the key 404 is an int.*-> dict\[int, int\].*JsonSerde\(dict\[int, int\]\)"):
        KEPT.serialize("t", {404: 1})
    with pytest.raises(SerdeError, match=r"use dict\(\.\.\.\)"):
        KEPT.serialize("t", Counter("a"))
    with pytest.raises(SerdeError, match=r"use \.item\(\)"):
        KEPT.serialize("t", {"n": np.int64(4)})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: n,
        lambda n: {"a": [1, (n,)]},
        np.array,
        lambda n: {"a": np.float64(n)},
        Seen,
        lambda n: {None: n},
        lambda n: {n: 1},
    ],
)
def test_a_number_that_is_not_finite_is_never_written(make, number):
    for serde in (PLAIN, KEPT, WITH_KEYS):
        with pytest.raises(SerdeError):
            serde.serialize("t", make(number))


def test_what_leaves_is_converted():
    leaving = {
        404: 1,
        "day": date(2026, 1, 1),
        "pair": (1, None),
        "color": Color.RED,
        "seen": Seen("a", 7),
        "big": 2**70,
    }
    read = {
        "404": 1,
        "day": "2026-01-01",
        "pair": [1, None],
        "color": "red",
        "seen": {"last": "a", "_n": 7},
        "big": 2**70,
    }
    assert PLAIN.deserialize("t", PLAIN.serialize("t", leaving)) == read


def test_keys_that_would_be_one_text_are_pairs():
    assert PLAIN.serialize("t", {"x": {1: "number", "1": "text"}}) == b'{"x":[[1,"number"],["1","text"]]}'


@given(json_values)
def test_reading_is_that_of_orjson_but_for_large_integers(value):
    data = PLAIN.serialize("t", value)
    if data is not None and json.loads(data, parse_int=lambda text: len(text) > 18) is not True:
        small = json.loads(data, parse_int=lambda text: 0 if len(text) > 18 else int(text))
        assert same(loads(PLAIN.serialize("t", small) or b"null"), orjson.loads(PLAIN.serialize("t", small) or b"null"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"01",
        b"1.",
        b"1e400",
        b"NaN",
        b'"\xff"',
        b'"a\tb"',
        b"[1,]",
        b'{"a":1}x',
        b"\xef\xbb\xbf1",
        b'"\\ud800"',
        b"[" * 2000,
    ],
)
def test_what_orjson_does_not_read_is_refused_with_its_text(text):
    with pytest.raises(orjson.JSONDecodeError) as expected:
        orjson.loads(text)
    with pytest.raises(SerdeError) as found:
        PLAIN.deserialize("t", text)
    assert str(expected.value) in str(found.value)


def test_a_serde_of_ones_own_is_not_trusted_to_give_back_what_it_wrote():
    class Rounded(JsonSerde):
        def serialize(self, topic, value, headers=None):
            return super().serialize(topic, round(value), headers)

    assert comes_back(PLAIN)
    assert comes_back(WITH_KEYS)
    assert not comes_back(Rounded())
    assert isinstance(kept(Rounded()), Rounded)


def test_a_value_that_contains_itself_is_refused():
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)
    for serde in (KEPT, WITH_KEYS):
        with pytest.raises(SerdeError, match="contains itself"):
            serde.serialize("t", value)
