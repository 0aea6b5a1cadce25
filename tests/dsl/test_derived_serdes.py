"""Keys and values that a function makes: their serde is known by their type, or the message says which to name where."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, NewType

import pytest
from typing_extensions import TypedDict

from streams import (
    Consumed,
    Grouped,
    Int32Serde,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    SessionWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    TupleSerde,
    agg,
    col,
    fields,
    serde_for,
)
from streams.serdes.base import serde_identity
from streams.testing import TopologyTestDriver
from streams.topology.graph import SinkNode
from streams.topology.manifest import manifest_json

CustomerId = NewType("CustomerId", int)


class Region(str, Enum):
    EU = "eu"


@dataclass
class Order:
    id: int
    customer: int
    region: str
    owner: uuid.UUID | None = None
    amount: Decimal = Decimal(0)


class OrderDict(TypedDict):
    customer: int


class Place(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Id:
    order: Any


class NoSerde:
    pass


ORDERS = JsonSerde(Order)


@pytest.mark.parametrize(
    ("kind", "serde"),
    [
        (str, "StringSerde()"),
        (int, "Int64Serde()"),
        (bool, "BooleanSerde()"),
        (float, "Float64Serde()"),
        (bytes, "BytesSerde()"),
        (uuid.UUID, "UuidSerde()"),
        (int | None, "Int64Serde()"),
        (CustomerId, "Int64Serde()"),
        (tuple[int, str], "TupleSerde(Int64Serde(), StringSerde())"),
        (list[int], "ListSerde(inner=Int64Serde())"),
        (dict, "JsonSerde()"),
        (Order, "JsonSerde(Order)"),
        (Place, "JsonSerde(Place)"),
        (OrderDict, "JsonSerde(OrderDict)"),
        (date, "JsonSerde(date)"),
        (Decimal, "JsonSerde(Decimal)"),
        (Region, "JsonSerde(Region)"),
        (tuple[int, ...], "JsonSerde(tuple[int, ...])"),
    ],
)
def test_each_type_has_its_serde(kind, serde):
    assert repr(serde_for(kind)) == serde


@pytest.mark.parametrize("kind", [Any, object, tuple, NoSerde])
def test_a_type_that_says_too_little_has_none(kind):
    with pytest.raises(TopologyError):
        serde_for(kind)


def by_int(order: Order) -> int:
    return order.customer


def by_tuple(key: str, order: Order) -> tuple[int, str]:
    return order.customer, order.region


def by_region(order) -> Region:
    return Region.EU


def by_any(order) -> Any: ...


def by_union(order) -> int | str: ...


def by_literal(order) -> Literal["a", "b"]: ...


def by_unknown_name(order) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821


class Selector:
    def __call__(self, order: Order) -> date: ...


def key_serde_of(select, value_serde=ORDERS, **options):
    """The key serde of the store behind a stream that is grouped by a function."""
    builder = StreamsBuilder(**options)
    builder.stream("in", Consumed(value_serde=value_serde)).group_by(select).count(
        materialized=Materialized(name="counts")
    )
    return builder.build().stores["counts"].key_serde


@pytest.mark.parametrize(
    ("select", "serde"),
    [
        (by_int, "Int64Serde()"),
        (by_tuple, "TupleSerde(Int64Serde(), StringSerde())"),
        (Selector(), "JsonSerde(date)"),
        (Id, "JsonSerde(Id)"),
        (lambda order: order.customer, "Int64Serde()"),
        (lambda key, order: order.customer, "Int64Serde()"),
        (lambda order: order.owner, "UuidSerde()"),
        (lambda order: (order.region, order.customer), "TupleSerde(StringSerde(), Int64Serde())"),
        (lambda order: order.region, "StringSerde()"),
        (lambda order: order.nothing, "StringSerde()"),
        (lambda order: order.customer + 1, "StringSerde()"),
        (lambda order: str(order.customer), "StringSerde()"),
        (lambda order: order.region.upper(), "StringSerde()"),
        (by_region, "StringSerde()"),
        (by_any, "StringSerde()"),
        (by_union, "StringSerde()"),
        (by_literal, "StringSerde()"),
        (by_unknown_name, "StringSerde()"),
        (str, "StringSerde()"),
    ],
)
def test_a_key_has_the_serde_of_its_type(select, serde):
    assert repr(key_serde_of(select)) == serde


def test_a_lambda_that_reads_a_field_of_a_typed_dict_is_known():
    assert key_serde_of(lambda order: order["customer"], JsonSerde(OrderDict)) == Int64Serde()


def test_a_lambda_over_values_without_a_type_is_not_known():
    assert serde_identity(key_serde_of(lambda order: order["customer"], JsonSerde())) == "StringSerde()"


def test_the_default_of_the_builder_goes_first():
    assert key_serde_of(by_int, default_key_serde=Int32Serde()) == Int32Serde()


def test_a_serde_that_is_named_behind_the_function_goes_first():
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(by_int)
    stream.group_by_key(Grouped(key_serde=Int32Serde())).count(materialized=Materialized(name="grouped"))
    stream.group_by_key().count(materialized=Materialized(name="stored", key_serde=Int32Serde()))
    stores = builder.build().stores
    assert [stores[name].key_serde for name in ("grouped", "stored")] == [Int32Serde(), Int32Serde()]


def test_a_key_whose_type_has_no_serde_is_refused_with_the_option_to_name():
    def select(order) -> NoSerde: ...

    select.__annotations__["return"] = NoSerde
    with pytest.raises(TopologyError, match=r"makes keys of type NoSerde, .* key_serde=\.\.\. in Grouped"):
        key_serde_of(select)


def test_text_keys_have_the_same_structure_with_an_annotation_and_without():
    def described(select):
        builder = StreamsBuilder()
        builder.stream("in").select_key(select, named="rekeyed").group_by_key().count().to_stream().to("out")
        return manifest_json(builder.build())

    def annotated(value) -> str: ...

    assert described(lambda value: value) == described(annotated)


def test_the_message_for_a_key_that_is_no_text_names_operator_and_option():
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda value: (value["id"], "a"), named="by-id").to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(Exception, match="by-id") as error:
        driver.create_input_topic("in").pipe_input("k", {"id": 7})
    assert "'by-id' makes a key that is a tuple, (7, 'a'), and no serde is named for it" in str(error.value)
    assert "key_serde=TupleSerde(Int64Serde(), StringSerde()) in Grouped" in str(error.value)


def test_the_message_names_a_processor_that_makes_the_key():
    class Renumber(Processor):
        def process(self, record):
            self.ctx.forward(record.with_key(1))

    builder = StreamsBuilder()
    builder.stream("in").process(Renumber, named="renumber").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(Exception, match="'renumber' makes a key that is an int"),
    ):
        driver.create_input_topic("in").pipe_input("k", {"id": 7})


def with_pair(key: str, value: Any) -> tuple[int, Order]:
    return value["id"], Order(value["id"], 1, "eu")


def many_pairs(key: str, value: Any) -> Iterable[tuple[int, Order]]:
    return [with_pair(key, value)]


def order(value: Any) -> Order:
    return Order(value["id"], 1, "eu")


def many_orders(value: Any) -> list[Order]:
    return [order(value)]


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda stream: stream.map(with_pair), 7),
        (lambda stream: stream.flat_map(many_pairs), 7),
        (lambda stream: stream.map_values(order), "k"),
        (lambda stream: stream.flat_map_values(many_orders), "k"),
    ],
)
def test_values_of_a_type_are_read_back_from_a_store_as_they_were_written(make, key):
    builder = StreamsBuilder()
    made = make(builder.stream("in")).to_table(materialized=Materialized(name="orders"))
    made.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", {"id": 7})
        assert driver.get_store("orders").get(key).value == Order(7, 1, "eu")
        written = driver.create_output_topic("out", StringSerde() if key == "k" else Int64Serde(), JsonSerde())
        assert written.read_value() == {"id": 7, "customer": 1, "region": "eu", "owner": None, "amount": "0"}


@pytest.mark.parametrize("kind", [int, str, dict, list[int], OrderDict, dict[str, float], Any])
def test_values_that_plain_json_reads_back_keep_the_default(kind):
    def make(value): ...

    make.__annotations__["return"] = kind
    builder = StreamsBuilder()
    builder.stream("in").map_values(make).to_table(materialized=Materialized(name="values"))
    assert repr(builder.build().stores["values"].value_serde) == "JsonSerde()"


def test_keys_of_typed_values_go_through_stores_and_topics():
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(value_serde=JsonSerde(Order)))
    counts = orders.group_by(lambda order: (order.region, order.customer)).count()
    counts.to_stream().to("counts")
    counts.to_stream().select_key(lambda key, count: count).to_table(
        materialized=Materialized(name="by-count")
    ).to_stream().to("by-count", Produced(value_serde=Int64Serde()))
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("orders", StringSerde(), JsonSerde(Order))
        for id_ in range(3):
            source.pipe_input(str(id_), Order(id_, id_ % 2, "eu"))
        found = driver.create_output_topic("counts", TupleSerde(StringSerde(), Int64Serde()), Int64Serde())
        assert found.read_key_values_to_map() == {("eu", 0): 2, ("eu", 1): 1}
        assert driver.get_store("by-count").get(2).value == 2


@dataclass
class Totals:
    n: int = 0
    amount: Decimal = Decimal(0)


def add(value: Any, totals: Totals) -> Totals:
    return Totals(totals.n + 1, totals.amount + Decimal(value["amount"]))


def subtract(value: Any, totals: Totals) -> Totals:
    return Totals(totals.n - 1, totals.amount - Decimal(value["amount"]))


def both(earlier: Totals, later: Totals) -> Totals:
    return Totals(earlier.n + later.n, earlier.amount + later.amount)


TOTALS = Materialized(name="totals")
UNTYPED = (lambda value, totals: add(value, totals), lambda value, totals: subtract(value, totals))
TEN = 10


@pytest.mark.parametrize(
    "aggregated",
    [
        lambda stream: stream.group_by_key().aggregate(lambda: Totals(), add, materialized=TOTALS),
        lambda stream: stream.group_by_key().aggregate(Totals, UNTYPED[0], materialized=TOTALS),
        lambda stream: stream.group_by_key().cogroup(UNTYPED[0]).aggregate(Totals, materialized=TOTALS),
        lambda stream: (
            stream.to_table()
            .group_by(lambda key, value: ("all", value))
            .aggregate(lambda: Totals(), add, UNTYPED[1], materialized=TOTALS)
        ),
        lambda stream: (
            stream.group_by_key()
            .windowed_by(TimeWindows.of_size_with_no_grace(TEN))
            .aggregate(lambda: Totals(), add, materialized=TOTALS)
        ),
        lambda stream: (
            stream.group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(TEN))
            .aggregate(lambda: Totals(), UNTYPED[0], both, materialized=TOTALS)
        ),
    ],
)
def test_aggregates_of_a_type_are_read_back_as_they_were_written(aggregated):
    builder = StreamsBuilder()
    aggregated(builder.stream("in")).to_stream().to("out")
    topology = builder.build()
    assert repr(topology.stores["totals"].value_serde) == "JsonSerde(Totals)"
    with TopologyTestDriver(topology) as driver:
        source = driver.create_input_topic("in")
        source.pipe_input("all", {"amount": "1.5"})
        source.pipe_input("b", {"amount": "1"})
        source.pipe_input("all", {"amount": "2.5"})


@pytest.mark.parametrize("how", [None, Materialized(name="orders")])
def test_mapped_values_of_a_table_are_read_back_as_they_were_written(how):
    builder = StreamsBuilder()
    builder.table("in").map_values(order, materialized=how).to_stream().to("out")
    topology = builder.build()
    (sink,) = [node for node in topology.nodes.values() if isinstance(node, SinkNode)]
    assert repr(sink.value_serde) == "JsonSerde(Order)"


def test_a_value_serde_that_is_named_goes_before_the_type():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        Totals, add, materialized=Materialized(name="totals", value_serde=JsonSerde())
    )
    assert repr(builder.build().stores["totals"].value_serde) == "JsonSerde()"


class MakeOrder(Processor[str, Any, int, Order]):
    def process(self, record): ...


class MakeAnything(Processor):
    def process(self, record): ...


@pytest.mark.parametrize(
    ("process", "serdes"),
    [
        (lambda stream: stream.process(MakeOrder), ("Int64Serde()", "JsonSerde(Order)")),
        (lambda stream: stream.process(MakeAnything), ("StringSerde()", "JsonSerde()")),
        (lambda stream: stream.process(lambda: MakeOrder()), ("StringSerde()", "JsonSerde()")),
        (lambda stream: stream.process_values(MakeOrder), ("StringSerde()", "JsonSerde(Order)")),
    ],
)
def test_what_a_processor_forwards_has_the_serdes_of_its_type_parameters(process, serdes):
    builder = StreamsBuilder()
    process(builder.stream("in")).to("out")
    (sink,) = [node for node in builder.build().nodes.values() if isinstance(node, SinkNode)]
    assert (repr(sink.key_serde), repr(sink.value_serde)) == serdes


@dataclass
class Pair:
    left: int
    right: int


def number(value: Any) -> int:
    return value["n"] if value else 0


def paired(left: Any, right: Any) -> Pair:
    return Pair(number(left), number(right))


def paired_for_all(values: Any) -> Pair:
    return Pair(number(values["this"]), number(values["b"]))


WITHIN = JoinWindows.of_time_difference_with_no_grace(10)
JOINS: dict[str, Any] = {
    "streams": lambda b, fn: b.stream("a").join(b.stream("b"), fn, WITHIN),
    "streams, left": lambda b, fn: b.stream("a").left_join(b.stream("b"), fn, WITHIN),
    "streams, outer": lambda b, fn: b.stream("a").outer_join(b.stream("b"), fn, WITHIN),
    "stream and table": lambda b, fn: b.stream("a").join(b.table("b"), fn),
    "stream and global table": lambda b, fn: b.stream("a").join(b.global_table("b"), fn, key_selector=lambda k, v: k),
    "as of": lambda b, fn: b.stream("a").as_of_join(b.stream("b"), fn, within=10),
    "tables": lambda b, fn: b.table("a").join(b.table("b"), fn).to_stream(),
    "tables, outer": lambda b, fn: b.table("a").outer_join(b.table("b"), fn, Materialized("joined")).to_stream(),
    "foreign key": lambda b, fn: b.table("a").join(b.table("b"), fn, foreign_key=lambda v: "k").to_stream(),
    "foreign key, stored": lambda b, fn: (
        b.table("a").left_join(b.table("b"), fn, Materialized("joined"), foreign_key=lambda v: "k").to_stream()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("joiner", [paired, lambda left, right: Pair(number(left), right=number(right))])
@pytest.mark.parametrize("kind", JOINS)
def test_results_of_joiners_have_their_type(kind, joiner):
    """A store behind the join reads objects, and a Delta sink knows the columns."""
    builder = StreamsBuilder()
    joined = JOINS[kind](builder, joiner)
    joined.group_by_key().reduce(lambda one, other: other if other.right >= one.right else one).to_stream().to("out")
    joined.to_delta("/tmp/table")
    with TopologyTestDriver(builder.build()) as driver:
        for number in (1, 2, 30):
            for topic in ("b", "a"):
                driver.create_input_topic(topic).pipe_input("k", {"n": number}, number)
        last = driver.create_output_topic("out").read_values_to_list()[-1]
        assert isinstance(last, Pair)
        assert last.left == last.right >= 2


def test_results_of_join_all_have_their_type():
    builder = StreamsBuilder()
    others = {name: builder.stream(name) for name in ("b", "c")}
    builder.stream("a").join_all(others, paired_for_all, WITHIN).to_delta("/tmp/table")


@dataclass
class Priced:
    amount: int
    place: Place
    inner: Order | None = None

    @property
    def twice(self) -> int:
        return 2 * self.amount


MISSPELT: dict[str, Any] = {
    "filter": lambda s, t: s.filter(col("amuont") > 1),
    "map_values": lambda s, t: s.map_values(fields("amuont", x=col("amount"))),
    "map_values of an expression": lambda s, t: s.map_values(col("amuont") + 1),
    "select_key": lambda s, t: s.select_key(col("amuont")),
    "group_by": lambda s, t: s.group_by(col("amuont")),
    "branch": lambda s, t: s.split().branch(col("amuont") > 1),
    "sum": lambda s, t: s.group_by_key().sum("amuont"),
    "an aggregate of an expression": lambda s, t: s.group_by_key().aggregate(n=agg.sum(col("amuont") * 2)),
    "in windows": lambda s, t: s.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).sum("amuont"),
    "a table's filter": lambda s, t: t.filter(col("amuont") > 1),
    "a table's map_values": lambda s, t: t.map_values(fields("amuont")),
    "a joiner": lambda s, t: s.join(t, fields(left=["amuont"], right="*")),
    "a joiner of expressions": lambda s, t: s.join(t, fields(x=col("right.amuont"), y=col("left.amount"))),
    "a joiner of tables": lambda s, t: t.join(t.filter(lambda v: True), fields(right=["amuont"])),
}


@pytest.mark.parametrize("way", MISSPELT)
@pytest.mark.parametrize("typed", [True, False])
def test_a_field_that_a_known_type_does_not_have(way, typed):
    """It is found while the program is built, with a suggestion and the line; without a type it may be there."""
    builder, serde = StreamsBuilder(), JsonSerde(Priced) if typed else JsonSerde()
    stream = builder.stream("in", Consumed(StringSerde(), serde))
    table = builder.table("rows", Consumed(StringSerde(), serde))
    if not typed:
        MISSPELT[way](stream, table)
        return
    with pytest.raises(TopologyError, match=r"'amuont'.*Did you mean 'amount'\?.*test_derived_serdes\.py, line \d+"):
        MISSPELT[way](stream, table)


def test_fields_that_a_known_type_may_have():
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(StringSerde(), JsonSerde(Priced)))
    stream.filter(col("twice") > col("amount")).map_values(fields("*", x=col("place.x"), id=col("inner.id")))
    with pytest.raises(TopologyError, match=r"'custmer'.*Order.*'customer'"):
        stream.filter(col("inner.custmer") > 1)
