"""Decimals in expressions and aggregates: exact, with the zeros that they have, and the same however records are processed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    Expression,
    JsonSerde,
    KStream,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    agg,
    col,
    fields,
    lit,
)
from streams.errors import RecordError
from streams.operators.expressions import Frame, computed
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.both_ways import Fed, check_both_ways
from tests.budget import up_to
from tests.operators.test_expressions_on_columns import by_record, loaded, on_columns

VALUE = {"p": "19.90", "n": 3, "f": 0.1, "d": Decimal("-1.50"), "big": Decimal("1E+3"), "z": Decimal("0.00"), "t": "x"}
P = col("p").cast(Decimal)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (P + col("n"), Decimal("22.90")),
        (P * col("n"), Decimal("59.70")),
        (P * Decimal("0.1900"), Decimal("3.781000")),
        (1 - P, Decimal("-18.90")),
        (P / 3, Decimal("6.633333333333333333333333333333333")),
        (col("d") // 1, Decimal(-2)),
        (col("d") % 1, Decimal("0.50")),
        (-7 // (P - P + 2), Decimal(-4)),
        (-col("d") + abs(col("d")), Decimal("3.00")),
        (lit(Decimal("123456789012345678901234567890.5")) * 2, Decimal("246913578024691357802469135781.0")),
        (col("f").cast(Decimal), Decimal("0.1")),
        (P.cast(str) + " EUR", "19.90 EUR"),
        (col("big").cast(str), "1000"),
        (P.cast(int), 19),
        (P.cast(float), 19.9),
        (Decimal("19.9") < P, False),
        (Decimal("19.9") == P, True),
        (col("n") > P, False),
        (P.isin([Decimal("19.900")]), True),
        (P.greatest(20), 20),
        (col("missing").cast(Decimal) * 2, None),
    ],
    ids=repr,
)
def test_decimals_are_exact_and_keep_their_zeros(expression: Expression, expected: Any) -> None:
    found = expression(VALUE)
    assert (str(found), type(found)) == (str(expected), type(expected))
    again = eval(repr(expression), {"col": col, "lit": lit, "Decimal": Decimal})
    assert str(again(VALUE)) == str(expected), "the repr is the expression"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (P * col("f"), "a Decimal cannot be combined with a float, which is not exact: write .cast(Decimal)"),
        (P / col("z"), "division by zero"),
        (P // 0, "division by zero"),
        (col("z") % 0, "division by zero"),
        (col("z") / 0, "division by zero"),
        (col("t").cast(Decimal), "'x' is not a number"),
        (lit("NaN").cast(Decimal), "it is not a finite number"),
        (P.cast(Decimal) * "a", "it takes numbers"),
        (lit(Decimal("1E+999")) + Decimal("1E-999"), "more than 1,000 digits"),
    ],
    ids=repr,
)
def test_what_is_not_exact_is_the_records_error(expression: Expression, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        expression(VALUE)
    assert message in str(caught.value)


def test_a_constant_is_finite() -> None:
    with pytest.raises(TopologyError, match="computes with texts, numbers"):
        lit(Decimal("NaN"))


ON_ARRAYS: list[Expression] = [
    (P * col("n") + Decimal("0.5")).cast(str),
    (P - col("n")) > col("n") * Decimal("1.25"),
    P.otherwise(Decimal("0.00")).least(col("n").cast(Decimal)).cast(str),
    (abs(-P) * Decimal("-1.19")).cast(str),
]
prices = (
    st.none() | st.decimals(-1000, 1000, places=2).map(str) | st.integers(-9, 9) | st.sampled_from([0.5, 12.25, -0.1])
)


@pytest.mark.parametrize("expression", ON_ARRAYS, ids=repr)
@given(st.lists(st.tuples(prices, st.integers(1, 99)), min_size=2, max_size=12))
@up_to(15)
def test_columns_compute_decimals_without_looking_at_records(expression: Expression, cells: list[Any]) -> None:
    rows = [{"p": "1.00" if p in ("0.00", "-0.00", 0) else p, "n": n} for p, n in cells]
    found, frame = loaded(expression, rows)
    failed: dict[int, Exception] = {}
    with mock.patch.object(Frame, "read", side_effect=AssertionError):
        computed(expression, frame, np.ones(len(found), np.bool_), failed)
    assert failed == {}
    assert on_columns(expression, rows) == by_record(expression, rows)


@dataclass
class Order:
    price: Decimal | None
    n: int
    team: str = "x"


ORDERS = JsonSerde(Order)
amounts = (
    st.none() | st.decimals(-100, 100, places=2) | st.decimals(-1, 1, places=20) | st.sampled_from([Decimal("1E+2")])
)
orders = st.builds(Order, amounts, st.integers(0, 5), st.sampled_from(["x", "y"]))
histories = st.lists(
    st.lists(st.tuples(st.sampled_from([b"k", b"l"]), orders, st.integers(0, 40)), max_size=10), min_size=1, max_size=3
)
AGGREGATES = {
    "sum": agg.sum("price"),
    "mean": agg.mean("price"),
    "min": agg.min("price"),
    "max": agg.max("price"),
    "total": agg.sum(col("price") * col("n"), where=col("price") > Decimal("0.5")),
    "tails": agg.quantile("price", [0.1, 0.9]),
    "about": agg.approx_count_distinct("price"),
}


def for_all_time(stream: KStream[Any, Any]) -> None:
    stream.group_by_key().aggregate(**AGGREGATES, materialized=Materialized("s")).to_stream().to("out")


def in_windows(stream: KStream[Any, Any]) -> None:
    windows = TimeWindows.of_size_and_grace(10, 5)
    stream.group_by_key().windowed_by(windows).aggregate(**AGGREGATES, materialized=Materialized("s")).to_stream().to(
        "out"
    )


def in_sessions(stream: KStream[Any, Any]) -> None:
    sessions = stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(4, 5))
    sessions.aggregate(**AGGREGATES, materialized=Materialized("s")).to_stream().to("out")


def of_tables(stream: KStream[Any, Any]) -> None:
    grouped = stream.to_table(Materialized("t")).group_by(col("team"))
    of_numbers = {"sum": agg.sum("price"), "mean": agg.mean("price"), "median": agg.quantile("price", 0.5)}
    grouped.aggregate(**of_numbers, materialized=Materialized("s")).to_stream().to("out")


def of_texts(stream: KStream[Any, Any]) -> None:
    price = col("price").cast(Decimal)
    grouped = stream.filter(price < 99).map_values(fields("price", double=(price * 2).cast(str))).group_by_key()
    grouped.aggregate(
        sum=agg.sum(price),
        most=agg.max_by("double", by=price),
        median=agg.quantile(price, 0.5),
        values=agg.count_distinct(price),
        materialized=Materialized("s"),
    ).to_stream().to("out")


def program(tail: Callable[[KStream[Any, Any]], None], typed: bool) -> Topology:
    builder = StreamsBuilder()
    tail(builder.stream("in", Consumed(StringSerde(), ORDERS)) if typed else builder.stream("in"))
    return builder.build()


@pytest.mark.parametrize("tail", [for_all_time, in_windows, in_sessions, of_tables])
@given(histories)
@up_to(12)
def test_aggregates_of_decimals_are_the_same_together_and_one_by_one(
    tail: Callable[[KStream[Any, Any]], None], history: list[Any]
) -> None:
    steps = [[Fed("in", key, ORDERS.serialize("in", order), time) for key, order, time in step] for step in history]
    check_both_ways(program(tail, typed=True), steps, restarts=[0])


@given(histories)
@up_to(12)
def test_texts_are_aggregated_as_decimals_both_ways(history: list[Any]) -> None:
    steps = [
        [Fed("in", key, orjson.dumps({"price": order.price and f"{order.price:f}"}), time) for key, order, time in step]
        for step in history
    ]
    check_both_ways(program(of_texts, typed=False), steps)


@given(st.lists(st.decimals(-100, 100, places=3) | st.integers(-5, 5), min_size=1, max_size=8))
@up_to(30)
def test_sums_means_and_extremes_are_those_of_fractions(numbers: list[Any]) -> None:
    builder = StreamsBuilder()
    price = col("p").cast(Decimal)
    aggregates = {"sum": agg.sum(price), "mean": agg.mean(price), "min": agg.min(price), "max": agg.max(price)}
    builder.stream("in").group_by_key().aggregate(**aggregates).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for number in numbers:
            driver.create_input_topic("in").pipe_input("k", {"p": str(number)})
        found = driver.create_output_topic("out").read_values_to_list()[-1]
    exact = [Fraction(number) for number in numbers]
    assert Fraction(found["sum"]) == sum(exact)
    assert (Fraction(found["min"]), Fraction(found["max"])) == (min(exact), max(exact))
    assert abs(Fraction(found["mean"]) - sum(exact) / len(exact)) <= Fraction(1, 10**30)


@given(st.lists(st.decimals(-100, 100, places=3) | st.integers(-5, 5), min_size=1, max_size=12))
@up_to(30)
def test_quantiles_and_distinct_values_are_those_of_numbers(numbers: list[Any]) -> None:
    median, number = agg.quantile("p", 0.5), agg.approx_count_distinct("p")
    sketch, seen = median.initial(), number.initial()
    for one in numbers:
        sketch, seen = (
            aggregate.updated(before, aggregate.checked(one))
            for aggregate, before in ((median, sketch), (number, seen))
        )
    exact = float(sorted(numbers)[(len(numbers) - 1) // 2])
    assert abs(median.result(sketch) - exact) <= 0.01 * abs(exact) + 1e-300
    assert number.result(seen) == len(set(numbers))
    for one in numbers:
        sketch = median.remove(sketch, median.checked(one))
    assert sketch == median.initial()


def test_a_decimal_is_one_value_with_the_number_that_equals_it() -> None:
    counted = agg.count_distinct("p")
    for value, equal in (("1.0", 1), ("-0.0", 0), ("1E+3", 1000), ("0.50", 0.5), ("1E+400", 10**400)):
        assert repr(counted.checked(Decimal(value))) == repr(equal)
    for value, digits in (("0.10", "0.1"), ("1E-400", "0." + "0" * 399 + "1"), ("1E+2000", "1" + "0" * 2000)):
        assert counted.checked(Decimal(value)) == {"Decimal": digits}


def test_a_decimal_without_a_bucket_is_the_records_error() -> None:
    with pytest.raises(RecordError, match="is given a Decimal, which is beyond its largest number"):
        agg.quantile("p", 0.5).checked(Decimal("1E+400"))
    for wrong in (Decimal("NaN"), Decimal("Infinity")):
        with pytest.raises(RecordError, match=r"takes numbers \(int, float, Decimal\)"):
            agg.quantile("p", 0.5).checked(wrong)


def test_a_decimal_and_a_float_have_no_sum() -> None:
    total = agg.sum("p")
    with pytest.raises(RecordError, match="which is not exact"):
        total.add(total.checked(Decimal("1.5")), 0.5)


def test_explain_says_where_decimals_are_not_on_columns() -> None:
    builder = StreamsBuilder()
    price = col("price").cast(Decimal)
    texts = builder.stream("in").filter(price > 1).map_values(fields(price=(price * 2).cast(str)))
    texts.group_by_key().sum(price, materialized=Materialized("sums"), named="sums")
    texts.group_by_key().sum((price * 100).cast(int), materialized=Materialized("cents"), named="cents")
    builder.stream("other").map_values(fields(price=price), named="made").to("out")
    explained = builder.build().explain()
    assert "aggregates Decimals, which columns do not hold: whole numbers, such as (price * 100).cast(int)" in explained
    assert next(line.split() for line in explained.splitlines() if "cents" in line) == ["cents", "columns"]
    assert "makes Decimals, which JSON has no form for: end with .cast(str)" in explained
