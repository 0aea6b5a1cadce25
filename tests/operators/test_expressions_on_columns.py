"""Expressions on columns have the results, and the errors, that they have for each record, to the last bit."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import StreamsError
from streams.model.expressions import Expression, col, lit, when
from streams.operators.aggregate.column_rows import cell
from streams.operators.expressions import COMPARISONS, Frame, computed, true_rows
from streams.operators.json_fields import read_fields
from streams.operators.text_kernels import OF_TEXTS, containing, re2_pattern
from tests.budget import up_to

EDGES = [0, 1, -1, 2, 3, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
FLOATS = [0.0, -0.0, 0.1, 1.8, -2.5, 1e16, 9007199254740993.0, 1e308, -1e308, 5e-324, 3.0]
TEXTS = [
    "2024-03-31T01:30:00.123+01:00",
    "2026-01-02",
    "31.12.2025 23:59",
    "",
    "a",
    "ab",
    "ab!",
    "b",
    "a/b",
    "é",
    "\U0001f600",
    'say "x"',
    "back\\slash",
    "12",
    "1.5",
    "19.90",
    "-0.05",
    "-0.00",
    "007.10",
    " 1.0 ",
    "1e3",
    "123456789012345678",
    "0.123456789012345678",
    "NaN",
    "\t",
    "true",
]
numbers = st.sampled_from(EDGES) | st.integers(-20, 20) | st.sampled_from(FLOATS) | st.floats(-1e6, 1e6)
scalars = st.none() | st.booleans() | numbers | st.sampled_from(TEXTS)
cells = scalars | st.sampled_from([[1, 2], {"a": 1}, []])
values = (
    st.dictionaries(st.sampled_from("abc"), numbers)
    | st.dictionaries(st.sampled_from(["a", "b", "c", "a.x"]), cells)
    | st.sampled_from([None, 5, "text", [1], {"a": {"x": 2.5}}])
)
constants = st.none() | st.booleans() | numbers | st.sampled_from(TEXTS)
leaves = st.sampled_from([col("a"), col("b"), col("c"), col("a.x"), col("`a.x`")]) | constants.map(lit)
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.and_,
    operator.or_,
    lambda a, b: a.__eq__(b),
    lambda a, b: a.__ne__(b),
    lambda a, b: a.least(b),
    lambda a, b: a.greatest(b),
    lambda a, b: a.otherwise(b),
    lambda a, b: (a.cast(Decimal) + b.cast(Decimal)).cast(str),
    lambda a, b: (a.cast(Decimal) * b.cast(Decimal) - b).cast(str),
    lambda a, b: (a.cast(Decimal) / b.cast(Decimal)).cast(str),
    lambda a, b: (a.cast(Decimal) % b.cast(Decimal)).cast(str),
    lambda a, b: a.cast(Decimal) < b.cast(Decimal),
    lambda a, b: a.cast(Decimal) == b,
    lambda a, b: a.cast(Decimal).greatest(b.cast(Decimal)).cast(str),
    lambda a, b: a.cast(Decimal).otherwise(b.cast(Decimal)).cast(str),
    lambda a, b: a.between(b, 7),
]
UNARY: list[Callable[[Any], Any]] = [
    operator.neg,
    operator.invert,
    abs,
    lambda a: a.is_null(),
    lambda a: a.is_not_null(),
    lambda a: a.cast(int),
    lambda a: a.cast(float),
    lambda a: a.cast(str),
    lambda a: a.cast(Decimal).cast(str),
    lambda a: abs(-a.cast(Decimal)).cast(str),
    lambda a: (a.cast(Decimal) * Decimal("-1.10") + 1).cast(str),
    lambda a: (a.cast(Decimal) - 2).cast(float),
    lambda a: (a.cast(Decimal) // Decimal("0.3")).cast(int),
    lambda a: when(a.cast(Decimal) > Decimal("1.00"), a.cast(Decimal)).otherwise(Decimal("0.50")).cast(str),
    lambda a: a.lower(),
    lambda a: a.upper().strip(),
    lambda a: a.length(),
    lambda a: a.contains("a"),
    lambda a: a.startswith("a") | a.endswith("b"),
    lambda a: a.replace("a", "\\"),
    lambda a: a.split("/"),
    lambda a: a.split("b")[-1],
    lambda a: a[1],
    lambda a: a[1:],
    lambda a: a[-2:3].upper(),
    lambda a: a.substring(1, 2),
    lambda a: a.regexp_extract("(a)(x)?", 2),
    lambda a: a.regexp_extract("[a-z]+", 0),
    lambda a: a.to_timestamp(),
    lambda a: a.to_timestamp("%d.%m.%Y %H:%M").hour(),
    lambda a: a.hour(),
    lambda a: a.hour("Asia/Kolkata"),
    lambda a: a.date_format("%Y-%m-%d"),
    lambda a: a.date_format("%d.%m. %H:%M:%S"),
    lambda a: a.date_format("%H:%M %z", "Europe/Berlin"),
]


def larger(smaller: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return (
        st.builds(lambda how, a, b: how(a, b), st.sampled_from(BINARY), smaller, smaller)
        | st.builds(lambda how, a: how(a), st.sampled_from(UNARY), smaller)
        | st.builds(lambda a, b, c, d: when(a, b).when(c > 0, d).otherwise(a), smaller, smaller, smaller, smaller)
        | st.builds(lambda a, b, c: when(a == b, c), smaller, smaller, smaller)
        | st.builds(
            lambda a, among: a.isin(among),
            smaller,
            st.lists(constants.filter(lambda x: x is not None), min_size=1, max_size=4),
        )
    )


expressions = st.recursive(leaves, larger, max_leaves=5)


@pytest.mark.slow
@given(expressions, st.lists(values, min_size=0, max_size=12))
@up_to(600)
def test_columns_and_records_give_the_same(expression: Expression, given_values: list[Any]) -> None:
    assert on_columns(expression, given_values) == by_record(expression, given_values)


@pytest.mark.slow
@given(expressions, st.lists(values, min_size=0, max_size=12))
@up_to(200)
def test_columns_and_records_pass_the_same_filter(expression: Expression, given_values: list[Any]) -> None:
    rows, frame = loaded(expression, given_values)
    failed: dict[int, Exception] = {}
    true = true_rows(expression, frame, np.ones(len(rows), np.bool_), failed).tolist()
    expected = [outcome(expression.is_true, value) for value in rows]
    assert [str(failed[row]) if row in failed else repr(true[row]) for row in range(len(rows))] == expected


@pytest.mark.parametrize("how", UNARY)
def test_every_function_of_one_value_is_computed_as_for_records(how: Callable[[Any], Any]) -> None:
    times = [1_700_000_000_000, -1, 253402300800000, -62135596800001, 60_000_000_000_001]
    rows = [{"a": a} for a in [*EDGES, *times, *FLOATS, *TEXTS, None, True, [1, "x"], {"b": 1}]] + [{}]
    assert on_columns(how(col("a")), rows) == by_record(how(col("a")), rows)


BY_BYTES: list[Callable[[Any], Any]] = [
    lambda a: a.lower(),
    lambda a: a.upper().length(),
    lambda a: a.length() - a.replace("a", "").length(),
    lambda a: a.replace("aa", "b"),
    lambda a: a.contains("ab") | a.startswith("a") | a.endswith("b"),
    lambda a: a.split("/")[0],
    lambda a: a.split("ab")[-2],
    lambda a: a.split("/")[3].upper(),
    lambda a: a[0:2],
    lambda a: a[3:3],
    lambda a: a.substring(2, 100),
]


@pytest.mark.parametrize("how", BY_BYTES)
@given(st.lists(st.none() | st.text("ab/AB !", max_size=8), min_size=2, max_size=12))
@up_to(15)
def test_bytes_decide_what_functions_make_of_plain_texts(
    how: Callable[[Any], Any], given_texts: list[str | None]
) -> None:
    rows = [{"a": "a"}, *({"a": text} for text in given_texts)]
    with mock.patch("streams.operators.expressions.of_distinct", side_effect=AssertionError):
        found = on_columns(how(col("a")), rows)
    assert found == by_record(how(col("a")), rows)


@pytest.mark.parametrize("how", BY_BYTES)
@given(st.lists(st.none() | st.text('a/A\u00e9"\\\t', max_size=6) | st.just(5), min_size=2, max_size=8))
@up_to(10)
def test_what_bytes_do_not_decide_is_left_to_the_definition(how: Callable[[Any], Any], given_values: list[Any]) -> None:
    rows = [{"a": value} for value in given_values]
    assert on_columns(how(col("a")), rows) == by_record(how(col("a")), rows)


@pytest.mark.slow
@pytest.mark.parametrize("how", BINARY)
def test_every_pair_of_edges_is_computed_as_for_records(how: Callable[[Any, Any], Any]) -> None:
    pairs = [{"a": a, "b": b} for a in EDGES + FLOATS + TEXTS + [None, True, False] for b in EDGES + FLOATS + TEXTS]
    expression = how(col("a"), col("b"))
    assert on_columns(expression, pairs) == by_record(expression, pairs)
    for constant in (2, -1, 0, 1.5, 2**53 + 1, "ab", True):
        expression = how(col("a"), lit(constant))
        assert on_columns(expression, pairs[:: len(TEXTS)]) == by_record(expression, pairs[:: len(TEXTS)])


def test_infinities_and_what_is_no_number_are_computed_as_for_records() -> None:
    big = [{"a": 1e308, "b": b} for b in FLOATS]
    for expression in (col("a") * 10 - col("a") * 10, col("a") * 10 // col("b"), (col("a") * 10).cast(int)):
        assert on_columns(expression, big) == by_record(expression, big)


def test_only_uncertain_rows_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = (col("a") * 1.8 + 32 > 50) & (col("b") == "warm") & ~col("c").otherwise(False)
    given_values = [{"a": n, "b": "warm" if n % 2 else "cold", "c": n % 3 == 0} for n in range(50)]
    rows, frame = loaded(expression, given_values)
    read: list[int] = []
    before = Frame.read
    monkeypatch.setattr(Frame, "read", lambda frame, row, path: (read.append(row), before(frame, row, path))[1])
    true = true_rows(expression, frame, np.ones(len(rows), np.bool_), {})
    assert read == []
    assert true.tolist() == [expression.is_true(value) for value in rows]


@pytest.mark.slow
@given(expressions, expressions, st.lists(values, min_size=0, max_size=12))
@up_to(200)
def test_what_expressions_share_is_what_each_computes_alone(
    shared: Expression, other: Expression, given_values: list[Any]
) -> None:
    both = (
        when(shared == other, shared).otherwise(other),
        shared == other,
        shared,
        shared.is_null() | (shared > other),
    )
    _, frame = loaded(both[0], given_values)
    rows = np.ones(frame.count, np.bool_)
    for expression in (*both, *both):
        failed, alone = dict[int, Exception](), dict[int, Exception]()
        found = computed(expression, frame, rows, failed)
        again = computed(expression, Frame(frame.count, frame.fields, frame.without_fields), rows, alone)
        assert [exactly(cell(found, row)) for row in range(frame.count)] == [
            exactly(cell(again, row)) for row in range(frame.count)
        ]
        assert [(row, str(error)) for row, error in failed.items()] == [
            (row, str(error)) for row, error in alone.items()
        ]


def test_a_condition_that_expressions_share_is_computed_once() -> None:
    cheap = col("a") < 10
    wanted = [when(cheap, col("a")), when(cheap & (col("b") > 0), col("b"))]
    _, frame = loaded(when(cheap, col("b")), [{"a": n, "b": n % 3} for n in range(20)])
    less = mock.Mock(side_effect=COMPARISONS["less"])
    with mock.patch.dict("streams.operators.expressions._VECTORISED", {"less": less}):
        for expression in wanted:
            computed(expression, frame, np.ones(20, np.bool_), {})
    assert less.call_count == 1


def loaded(expression: Expression, given_values: list[Any]) -> tuple[list[Any], Frame]:
    """The values as JSON gives them back, and their fields as the reader decodes them."""
    texts = [orjson.dumps(value) for value in given_values]
    found = read_fields(pa.array(texts, pa.binary()), expression.paths)
    assert not found.rejected
    scalar = found.without_fields if found.without_fields.any() else None
    fields = dict(zip(expression.paths, found.fields, strict=True))
    return [orjson.loads(text) for text in texts], Frame(len(texts), fields, scalar)


def on_columns(expression: Expression, given_values: list[Any]) -> list[str]:
    rows, frame = loaded(expression, given_values)
    failed: dict[int, Exception] = {}
    column = computed(expression, frame, np.ones(len(rows), np.bool_), failed)
    return [str(failed[row]) if row in failed else exactly(cell(column, row)) for row in range(len(rows))]


def by_record(expression: Expression, given_values: list[Any]) -> list[str]:
    return [outcome(expression, orjson.loads(orjson.dumps(value))) for value in given_values]


def outcome(compute: Callable[[Any], Any], value: Any) -> str:
    try:
        return exactly(compute(value))
    except StreamsError as error:
        return str(error)


def exactly(value: Any) -> str:
    """A value with its type; numbers that are none are alike."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"float {struct.pack('<d', value).hex()}"
    return repr(value)


usual_times = st.builds(
    lambda at, separator, digits, zone: at.isoformat(separator, digits) + zone,
    st.datetimes(datetime(1000, 1, 1)),  # noqa: DTZ001 - UTC is added where no zone is said
    st.sampled_from("T "),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
    st.sampled_from(["", "Z"]),
)


@given(st.lists(st.none() | usual_times, min_size=2, max_size=12))
@up_to(200)
def test_bytes_decide_what_usual_times_are(given_texts: list[str | None]) -> None:
    rows = [{"a": "2023-11-14 22:13:20.123"}, *({"a": text} for text in given_texts)]
    time = col("a").to_timestamp()
    with mock.patch("streams.operators.expressions.of_distinct", side_effect=AssertionError):
        found = on_columns(time, rows)
    assert found == by_record(time, rows)
    minute = time.date_format("%Y-%m-%d %H:%M")
    assert on_columns(minute, rows) == by_record(minute, rows)


@pytest.mark.parametrize(
    "text", ["2023-02-30 10:00:00", "2023-01-01T24:00:00", "2023-01-01", "2023-01-01T10:00:60", "x"]
)
def test_other_times_are_left_to_the_definition(text: str) -> None:
    rows = [{"a": "2023-11-14 22:13:20.123"}, {"a": text}]
    assert on_columns(col("a").to_timestamp(), rows) == by_record(col("a").to_timestamp(), rows)


@up_to(200)
@given(st.lists(st.none() | st.text("ab", max_size=6)), st.text("ab", min_size=1, max_size=3), st.integers(0, 3))
def test_texts_that_contain_a_part_are_found_as_arrow_finds_them(texts, part, first) -> None:
    """Also parts that overlap, or that would go on in the next text, and in a slice of a column."""
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())[first:]
    expected = pc.match_substring(column, part).fill_null(False).to_pylist()
    assert containing(column, part.encode()).tolist() == expected


ATOMS = (
    "a",
    "b",
    "1",
    "&",
    ".",
    "[ab]",
    "[^a&]",
    r"\d",
    r"[\w.]",
    r"\.",
    "^",
    "$",
    "|",
    "(",
    "(?:",
    ")",
    "(a|b)",
    "([^&]*)",
    "(|a)",
)
TIMES = ("", "", "", "*", "+", "?", "*?", "+?", "{1,2}", "{2}", "{,2}", "*+")


@up_to(1000)
@given(
    st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(TIMES)), min_size=1, max_size=6),
    st.lists(st.none() | st.text("ab1&. ", max_size=8), min_size=1),
    st.integers(0, 3),
)
def test_patterns_that_arrow_gets_have_the_results_of_python(parts, texts, group) -> None:
    """Of patterns of all sorts, also wrong ones and ones that are left to Python."""
    pattern = "".join(atom + times for atom, times in parts)
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    if group > compiled.groups or re2_pattern(pattern, group) is None:
        return
    column = pa.array([None if text is None else orjson.dumps(text) for text in texts], pa.binary())
    found = OF_TEXTS["regexp_extract"](column, pattern, group)
    assert found is not None
    expected = [None if text is None or (match := compiled.search(text)) is None else match[group] for text in texts]
    assert [None if cell is None else orjson.loads(cell) for cell in found.to_pylist()] == expected


@pytest.mark.parametrize(
    ("pattern", "group", "taken"),
    [
        ("(&|^)channel_id=([^&]*)", 2, True),
        (r"(\d{2,3})\.x*?", 1, True),
        ("((a|b)c)d", 2, True),
        ("(a)(x)?", 2, False),
        ("a|(b)", 1, False),
        ("(?:a|(b))", 1, False),
        ("(a*)*", 1, False),
        ("(?i)a", 0, False),
        ("a(?=b)", 0, False),
        (r"(a)\1", 1, False),
        ("é", 0, False),
    ],
)
def test_patterns_of_which_arrow_may_have_other_results_are_left_to_python(pattern, group, taken) -> None:
    assert (re2_pattern(pattern, group) is not None) == taken
