"""Built-in aggregates: the plain definition of what they compute."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Aggregate,
    BooleanSerde,
    BytesSerde,
    Consumed,
    EmitStrategy,
    Float64Serde,
    Int64Serde,
    JsonSerde,
    Materialized,
    NumericAggregate,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    UuidSerde,
    agg,
    col,
    fields,
    when,
)
from streams.engine.graph.handlers import RecordFailedError
from streams.errors import RecordError
from streams.model.aggregates import Sum, results
from streams.model.record import pick
from streams.serdes.json_text import dumps, loads
from streams.testing import TopologyTestDriver

CELLS = st.none() | st.integers(-1000, 1000) | st.floats(-1e3, 1e3).map(lambda x: x + 0.0)
KINDS = [
    agg.count(),
    agg.count("f"),
    agg.sum("f"),
    agg.min("f"),
    agg.max("f"),
    agg.mean("f"),
    agg.first("f"),
    agg.last("f"),
]


def run(aggregate, cells):
    accumulator = aggregate.initial()
    for cell in cells:
        accumulator = aggregate.updated(accumulator, cell)
    return accumulator


@given(st.lists(CELLS))
def test_results_are_those_of_python(cells):
    known = [cell for cell in cells if cell is not None]
    expected = [
        len(cells),
        len(known),
        sum(known) if known else None,
        min(known) if known else None,
        max(known) if known else None,
        sum(known) / len(known) if known else None,
        known[0] if known else None,
        known[-1] if known else None,
    ]
    assert [aggregate.result(run(aggregate, cells)) for aggregate in KINDS] == expected


@given(st.lists(CELLS), st.lists(CELLS))
def test_merging_two_runs_is_running_on(earlier, later):
    for aggregate in KINDS:
        merged = aggregate.result(aggregate.merge(run(aggregate, earlier), run(aggregate, later)))
        whole = aggregate.result(run(aggregate, earlier + later))
        assert merged == (pytest.approx(whole) if isinstance(whole, float) else whole)


@given(st.lists(CELLS))
def test_accumulators_rest_as_json(cells):
    for aggregate in KINDS:
        accumulator = run(aggregate, cells)
        assert orjson.loads(orjson.dumps(accumulator)) == accumulator


def test_whole_numbers_stay_whole():
    assert run(agg.sum("f"), [2**53, 1]) == 2**53 + 1
    assert run(agg.sum("f"), [2**64 + 1, 10**30]) == 2**64 + 1 + 10**30
    assert isinstance(run(agg.sum("f"), [1, 1.0]), float)


# --- What an aggregate cannot take is an error of its record, whatever the way, and leaves the accumulators as they were.


class Color(Enum):
    RED = "red"


NOT_NUMBERS = ["text", True, [1], {"a": 1}, Decimal("NaN"), date(2026, 1, 31), Color.RED, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("kind", ["sum", "mean", "min", "max"])
def test_a_value_that_is_no_number_is_refused(kind, value):
    aggregate = getattr(agg, kind)("f")
    if kind in ("min", "max") and isinstance(value, str | date):
        assert aggregate.result(aggregate.value_in({"f": value})) == str(value)
        return
    with pytest.raises(RecordError, match=rf"agg\.{kind}\('f'\) (takes|orders|is given)"):
        aggregate.value_in({"f": value})


def test_numbers_of_other_libraries_are_numbers():
    found = [agg.sum("f").value_in({"f": one}) for one in (np.int64(3), np.float32(0.5), np.float64(1.5))]
    assert [(one, type(one)) for one in found] == [(3, int), (0.5, float), (1.5, float)]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("sum", 1.5e308, 1.5e308),
        ("sum", -1.5e308, -1.5e308),
        ("sum", 10**400, 0.5),
        ("mean", 1.5e308, 1.5e308),
        ("mean", 1.0, 10**400),
    ],
)
def test_a_sum_that_overflows_is_refused(kind, first, second):
    aggregate = getattr(agg, kind)("f")
    with pytest.raises(RecordError, match="overflows"):
        run(aggregate, [first, second])
    with pytest.raises(RecordError, match="overflows"):
        aggregate.merge(run(aggregate, [first]), run(aggregate, [second]))


def test_a_mean_that_no_float_holds_is_refused():
    with pytest.raises(RecordError, match="overflows"):
        run(agg.mean("f"), [10**400])


NAIVE = datetime.fromisoformat("2026-01-01T12:00")
UTC2 = timezone(timedelta(hours=2))
ORDERED = [
    [-(10**30), -0.5, 1, 1.5, 2**63, 2**64 + 1],
    ["", "a", "b", "\U0001f600"],
    [date(2025, 12, 31), date(2026, 1, 1)],
    [NAIVE, NAIVE + timedelta(microseconds=1)],
    [datetime(2026, 1, 1, 1, tzinfo=UTC2), datetime(2026, 1, 1, tzinfo=timezone.utc)],
    [time(9, 30), time(10)],
]


@pytest.mark.parametrize("rising", ORDERED, ids=lambda rising: type(rising[0]).__name__)
def test_the_smallest_and_the_largest_of_every_order(rising):
    shown = [one.isoformat() if isinstance(one, date | time) else one for one in rising]
    for kind, expected in (("min", shown[0]), ("max", shown[-1])):
        aggregate = getattr(agg, kind)("f")
        for values in permutations(rising) if len(rising) < 5 else [rising, rising[::-1]]:
            accumulator = run(aggregate, [aggregate.value_in({"f": one}) for one in values])
            assert loads(dumps(accumulator)) == accumulator
            assert aggregate.result(accumulator) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        ("2026-01-01", date(2026, 1, 1)),
        (date(2026, 1, 1), NAIVE),
        (NAIVE, datetime(2026, 1, 1, tzinfo=timezone.utc)),
    ],
)
def test_two_kinds_have_no_order(one, other):
    for aggregate in (agg.min("f"), agg.max("f")):
        found = [aggregate.value_in({"f": value}) for value in (one, other)]
        with pytest.raises(RecordError, match="values of one kind"):
            run(aggregate, found)


def test_pick_follows_a_dotted_path():
    value = {"a": {"b": 1, "c": None}, "d": [1]}
    assert [pick(value, path) for path in ("a.b", "a.c", "a.x", "x", "d.a", "a.b.c")] == [
        1,
        None,
        None,
        None,
        None,
        None,
    ]
    assert pick(None, "a") is None


def test_results_have_the_names_given():
    aggregates = {"n": agg.count(), "m": agg.mean("f")}
    assert results(aggregates, [2, [6, 2]]) == {"n": 2, "m": 3.0}
    assert results(aggregates, None) is None


@pytest.mark.parametrize("field", ["", ".a", "a..b", None, 5])
def test_a_field_is_a_path(field):
    with pytest.raises(TopologyError, match="a field is a name"):
        agg.sum(field)


@pytest.mark.parametrize(
    "condition",
    [col("f") > 5, ~(col("f") == 1), col("f").is_null(), col("f").isin([1]), (col("f") > 5).otherwise(False)],
    ids=repr,
)
def test_a_condition_is_not_counted(condition):
    with pytest.raises(TopologyError, match=r"agg\.count\(.*would count .* false, too.* Write agg\.count\(where=.*\)"):
        agg.count(condition)


def test_a_condition_is_summed():
    builder = StreamsBuilder()
    group = builder.stream("in").group_by_key()
    group.aggregate(large=agg.sum((col("f") > 5).cast(int)), known=agg.count(col("f") + 1)).to_stream().to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        for value in (3, 7, None, 9):
            driver.create_input_topic("in").pipe_input("a", {"f": value}, 1)
        assert driver.create_output_topic("out").read_values_to_list()[-1] == {"large": 2, "known": 3}


# --- Aggregates of users' own, and which values have fields to aggregate.


@dataclass(frozen=True)
class StdDev(NumericAggregate):
    """Standard deviation, exact to the last digit that a test compares."""

    digits: int = 6

    def initial(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        return [*accumulator, value]

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier + later

    def result(self, accumulator: Any) -> Any:
        return round(statistics.pstdev(accumulator), self.digits) if accumulator else None


class Doubled(Sum):
    """Derived from a built-in aggregate: its kernel would give another result."""

    def add(self, accumulator: Any, value: Any) -> Any:
        return super().add(accumulator, 2 * value)


class WholeRecords(JsonSerde):
    """Not exactly `JsonSerde`, so values are read whole and aggregated record by record."""


SHAPES: dict[str, Any] = {
    "over all time": lambda grouped: grouped,
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(100)),
    "tumbling, on close": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(100)).emit_strategy(
        EmitStrategy.on_window_close()
    ),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(100)),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(60, 1000)),
}


def last_value(shape: str, serde: Any, aggregate: Aggregate, values: list[Any]) -> Any:
    """The last result for records at 10, 20, ...; the one at 1000 closes their windows."""
    builder = StreamsBuilder(default_value_serde=serde)
    table = SHAPES[shape](builder.stream("in").group_by_key()).aggregate(x=aggregate, n=agg.count())
    table.to_stream().filter(lambda key, value: value is not None).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        with driver.batch():
            for at, value in enumerate(values):
                topic.pipe_input("a", value, 10 + 10 * at)
        found = driver.create_output_topic("out").read_values_to_list()
        if "on close" in shape:
            topic.pipe_input("b", {}, 1000)
            found = driver.create_output_topic("out").read_values_to_list()
    return max(found, key=lambda value: value["n"])["x"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_an_own_aggregate_works_wherever_built_in_ones_do(shape: str, serde: Any) -> None:
    values = [{"v": 1}, {"v": 2.5}, {"v": "text"}, {}, {"v": 7}]
    assert last_value(shape, serde, StdDev("v"), values) == round(statistics.pstdev([1, 2.5, 7]), 6)


def test_sessions_that_become_one_are_merged() -> None:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 100)
    builder.stream("in").group_by_key().windowed_by(windows).aggregate(x=StdDev("v")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for time, value in ((0, 1), (10, 5), (5, 3)):
            driver.create_input_topic("in").pipe_input("a", {"v": value}, time)
        last = driver.create_output_topic("out").read_values_to_list()[-1]
    assert last == {"x": round(statistics.pstdev([1, 3, 5]), 6)}


@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_a_class_derived_from_a_built_in_one_goes_by_its_own_methods(serde: Any) -> None:
    assert last_value("over all time", serde, Doubled("v"), [{"v": 1}, {"v": 4}]) == 10


class InPlace(Aggregate):
    """Changes its accumulator in place, and fails for one value."""

    def initial(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        if value == "bad":
            raise ValueError("bad")
        accumulator.append(value)
        return accumulator

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier + later


class EveryValue(InPlace):
    """The same for any value."""

    def add(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return accumulator


@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_a_record_that_fails_leaves_all_accumulators_as_they_were(serde: Any) -> None:
    builder = StreamsBuilder(default_value_serde=serde)
    aggregated = builder.stream("in").group_by_key().aggregate(all=EveryValue("v"), x=InPlace("v"), n=agg.count())
    aggregated.to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        for key in "abc":
            topic.pipe_input(key, {"v": 0}, 1)
        with driver.batch():
            for key, value in (("a", 1), ("b", "bad"), ("c", 2), ("a", 3), ("b", 4)):
                topic.pipe_input(key, {"v": value}, 2)
        rows = dict(driver.create_output_topic("out").read_key_values_to_list()[3:])
    expected = {"a": [0, 1, 3], "b": [0, 4], "c": [0, 2]}
    assert rows == {key: {"all": all_, "x": all_, "n": len(all_)} for key, all_ in expected.items()}


def test_parameters_of_an_own_aggregate_are_part_of_the_stores_name() -> None:
    def name(aggregate: Aggregate) -> str | None:
        return StreamsBuilder().stream("in").group_by_key().aggregate(x=aggregate).store_name

    assert len({name(StdDev("v")), name(StdDev("v", 3)), name(StdDev("w"))}) == 3
    assert name(StdDev("v")) == name(StdDev("v"))


def test_an_aggregate_known_by_a_memory_address_is_refused() -> None:
    @dataclass(frozen=True)
    class Nameless(StdDev):
        made: object = field(default_factory=object)

    with pytest.raises(TopologyError, match=r"identified by a memory address.*make .*Nameless a frozen dataclass"):
        StreamsBuilder().stream("in").group_by_key().aggregate(x=Nameless("v"))


@pytest.mark.parametrize("path", ["", "a..b", None])
def test_the_field_of_an_own_aggregate_is_a_path(path: Any) -> None:
    with pytest.raises(TopologyError, match=r"StdDev\(.*\): a field is a name"):
        StdDev(path)


class Price(NamedTuple):
    amount: int


@dataclass
class Order:
    price: Price
    items: list[Any]


@pytest.mark.parametrize(
    ("path", "found"), [("price.amount", 5), ("items.1", "b"), ("price.currency", None), ("price.amount.x", None)]
)
def test_fields_of_objects_are_their_attributes(path: str, found: Any) -> None:
    assert pick(Order(Price(5), ["a", "b"]), path) == found


def test_objects_that_a_function_makes_are_aggregated_by_attribute() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in").map_values(lambda value: Order(Price(value["amount"]), []))
    orders.group_by_key().aggregate(total=agg.sum("price.amount")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for amount in (3, 4):
            driver.create_input_topic("in").pipe_input("a", {"amount": amount}, 1)
        assert driver.create_output_topic("out").read_values_to_list() == [{"total": 3}, {"total": 7}]


@pytest.mark.parametrize("value", ["text", 5, 2.5, True])
@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_a_value_without_fields_is_an_error_of_its_record(serde: Any, value: Any) -> None:
    builder = StreamsBuilder(default_value_serde=serde)
    builder.stream("in").group_by_key().sum("v", named="total").to_stream().to("out")
    topology = builder.build()
    message = r"record at in-0 offset 0, .*node 'total'.*reads the field 'v', but the record's value is a text"
    with TopologyTestDriver(topology) as driver, pytest.raises(RecordFailedError, match=message):
        driver.create_input_topic("in", value_serde=JsonSerde()).pipe_input("a", value, 1)


@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_a_value_without_fields_moves_no_time_and_spares_the_others(serde: Any) -> None:
    builder = StreamsBuilder(default_value_serde=serde)
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.sum("v").to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        with driver.batch():
            topic.pipe_input("a", "text", 1000)
            topic.pipe_input("a", {"v": 2}, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [{"sum": 2}]
        assert driver.dropped("processing") == 1


def test_records_without_fields_are_counted() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(n=agg.count()).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", "text", 1)
        assert driver.create_output_topic("out").read_values_to_list() == [{"n": 1}]


@pytest.mark.parametrize(
    "serde", [StringSerde(), BytesSerde(), Int64Serde(), Float64Serde(), BooleanSerde(), UuidSerde()]
)
def test_fields_of_values_that_are_known_to_have_none_are_refused(serde: Any) -> None:
    grouped = StreamsBuilder().stream("in", Consumed(value_serde=serde)).group_by_key()
    with pytest.raises(TopologyError, match=f"field 'v', but the values of .* are those of {type(serde).__name__}"):
        grouped.sum("v")


def test_what_a_function_makes_of_text_may_have_fields() -> None:
    stream = StreamsBuilder().stream("in", Consumed(value_serde=StringSerde()))
    assert stream.map_values(lambda text: {"v": len(text)}).group_by_key().sum("v").store_name


def test_anything_else_than_an_aggregate_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"or an object of an Aggregate class of yours, not <class"):
        StreamsBuilder().stream("in").group_by_key().aggregate(x=StdDev)  # type: ignore[arg-type]


def test_accumulators_rest_in_the_store_as_json() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(x=StdDev("v"), materialized=Materialized(name="s"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", {"v": 2}, 1)
        driver.create_input_topic("in").pipe_input("a", {"v": 4}, 1)
        assert driver.get_store("s").get("a").value == [[2, 4]]


def test_where_leaves_records_out_of_one_aggregate() -> None:
    builder = StreamsBuilder()
    paid = col("state") == "paid"
    builder.stream("in").group_by_key().aggregate(
        n=agg.count(),
        paid=agg.count(where=paid),
        known=agg.count("x", where=paid),
        sum=agg.sum("x", where=paid),
        half=agg.mean(col("x") / 2, where=paid),
        last=agg.last("x", where=~paid),
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", {"state": "paid", "x": 4})
        topic.pipe_input("k", {"state": "open", "x": "a text, which no sum takes"})
        topic.pipe_input("k", {"x": 5})
        topic.pipe_input("k", {"state": "paid"})
        assert driver.create_output_topic("out").read_values_to_list()[-1] == {
            "n": 4, "paid": 2, "known": 1, "sum": 4, "half": 2.0, "last": "a text, which no sum takes",
        }  # fmt: skip


def test_what_the_best_record_has_and_the_last_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        largest=agg.max_by(fields("bidder", twice=col("price") * 2), by="price"),
        smallest=agg.min_by("bidder", by="price"),
        latest=agg.last_by(col("price") + 1, by="at"),
        dear=agg.max_by("bidder", "price", where=col("price") > 100),
        recent=agg.collect("price", last=2),
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for bidder, price, at in [("a", 5, "10:00"), ("b", 9, "12:00"), ("c", 9, "12:00"), ("d", 2, "11:00")]:
            topic.pipe_input("k", {"bidder": bidder, "price": price, "at": at})
        topic.pipe_input("k", {"bidder": "e"})
        topic.pipe_input("k", {"price": 2, "at": "09:00"})
        assert driver.create_output_topic("out").read_values_to_list()[-1] == {
            "largest": {"bidder": "b", "twice": 18}, "smallest": "d", "latest": 10, "dear": None, "recent": [2, 2],
        }  # fmt: skip


def test_orders_and_lists_that_cannot_be() -> None:
    with pytest.raises(TopologyError, match=r"names, so that only these are read: no '\*'"):
        agg.max_by(fields("*"), by="price")
    with pytest.raises(TopologyError, match=r"agg\.collect\('x', last=0\): last= is how many values to keep"):
        agg.collect("x", last=0)
    with pytest.raises(RecordError, match=r"agg\.max_by\('x', by='y'\) orders numbers .*, not True"):
        agg.max_by("x", by="y").value_in({"x": 1, "y": True})
    aggregate = agg.min_by("x", by="y")
    with pytest.raises(RecordError, match=r"agg\.min_by\('x', by='y'\) cannot order 'a' and 1"):
        aggregate.updated([1, "first"], aggregate.value_in({"x": 1, "y": "a"}))


def test_where_is_an_expression_and_part_of_the_identity() -> None:
    assert agg.sum("x", where=col("y") > 1).identity == agg.sum(when(col("y") > 1, col("x"))).identity
    assert agg.sum("x", where=col("y") > 1).identity != agg.sum("x", where=col("y") > 2).identity
    with pytest.raises(TopologyError, match=r"where=\.\.\. takes a condition such as col"):
        agg.max("x", where=lambda value: value["y"] > 1)  # type: ignore[arg-type]
    builder = StreamsBuilder()
    group = builder.stream("in", value_serde=JsonSerde(_Named)).group_by_key()
    with pytest.raises(TopologyError, match="takes numbers"):
        group.aggregate(x=agg.sum("name", where=col("name") != ""))


@dataclass
class _Named:
    name: str
