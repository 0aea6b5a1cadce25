# ruff: noqa: E501
"""Mistakes that a type checker must find. The comment of a line says what mypy and pyright call it."""

from dataclasses import dataclass
from typing import TypedDict

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    KeyValueStore,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)

# One mistake, one line.
# fmt: off


@dataclass
class Order:
    customer: str
    amount: float


class Customer(TypedDict):
    name: str


class Total(Processor[str, Order, str, float]):
    def init(self, ctx: ProcessorContext[str, float]) -> None:
        super().init(ctx)
        self.totals: KeyValueStore[str, float] = ctx.store("totals")

    def process(self, record: Record[str, Order]) -> None:
        self.totals.put(record.key, record.value.customer)  # found by mypy: arg-type; by pyright: reportArgumentType
        self.ctx.forward(record)  # found by mypy: arg-type; by pyright: reportArgumentType
        self.ctx.forward(record.with_value(record.value.amuont))  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
        self.ctx.schedule(1000, "stream_time", self.on_time)  # found by mypy: arg-type; by pyright: reportArgumentType

    def on_time(self, time: str) -> None: ...


def add_amount(order: Order, total: float) -> float:
    return total + order.amount


builder = StreamsBuilder()
orders = builder.stream("orders", Consumed(StringSerde(), JsonSerde(Order)))
customers = builder.table("customers", key_serde=StringSerde(), value_serde=JsonSerde(Customer))
everyone = builder.global_table("customers", key_serde=StringSerde(), value_serde=JsonSerde(Customer))
by_number = builder.table("by-number", key_serde=Int64Serde(), value_serde=JsonSerde(Customer))
groups = orders.group_by_key()
spent = groups.aggregate(float, lambda order, total: total + order.amount)
within = JoinWindows.of_time_difference_with_no_grace(1000)
by_hour = groups.windowed_by(TimeWindows.of_size_with_no_grace(1000))
table = orders.to_table()
gaps = SessionWindows.of_inactivity_gap_with_no_grace(1000)
sessions = groups.windowed_by(gaps)
best = sessions.reduce(lambda one, other: other)
spending = groups.cogroup(add_amount)
of_customers = table.group_by(lambda key, order: (order.customer, order))

# A misspelt field
orders.map_values(lambda order: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.filter(lambda order: order.amuont > 3)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.filter(lambda key, order: order.amuont > 3)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.map_values(lambda key, order: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.select_key(lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.map(lambda key, order: (order.custmer, order))  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.group_by(lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.to(lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
customers.map_values(lambda customer: customer["nmae"])  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
customers.filter(lambda customer: customer["nmae"] == "x")  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
customers.group_by(lambda key, customer: (customer["nmae"], customer))  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
customers.to_stream().filter(lambda customer: customer["nmae"] == "x")  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
groups.aggregate(float, lambda order, total: total + order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
groups.reduce(lambda one, other: one if one.amuont > other.amount else other)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
groups.top(3, lambda order: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.join(customers, lambda order, customer: customer["nmae"])  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
orders.join(orders, lambda order, other: other.amuont, within)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.join(everyone, lambda order, customer: customer["name"], key_selector=lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.split().branch(lambda order: order.amuont > 3)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue

# A side that may be missing
orders.left_join(customers, lambda order, customer: customer["name"])  # found by mypy: index; by pyright: reportOptionalSubscript
orders.left_join(orders, lambda order, other: other.amount, within)  # found by mypy: union-attr; by pyright: reportOptionalMemberAccess
orders.outer_join(orders, lambda order, other: order.amount, within)  # found by mypy: union-attr; by pyright: reportOptionalMemberAccess
spent.left_join(customers, lambda total, customer: customer["name"])  # found by mypy: index; by pyright: reportOptionalSubscript
spent.outer_join(spent, lambda one, other: one + 1)  # found by mypy: operator; by pyright: reportOptionalOperand

# A function with another number of arguments
orders.map_values(lambda key, order, more: order)  # found by mypy: arg-type, misc; by pyright: reportArgumentType, reportCallIssue
orders.filter(lambda: True)  # found by mypy: arg-type, misc; by pyright: reportArgumentType, reportCallIssue
orders.join(customers, lambda order: order)  # found by mypy: arg-type, misc; by pyright: reportArgumentType, reportCallIssue
orders.join(orders, lambda key, order, other, more: order, within)  # found by mypy: arg-type, misc; by pyright: reportArgumentType, reportCallIssue
groups.aggregate(lambda start: 0.0, lambda order, total: total)  # found by mypy: arg-type, misc; by pyright: reportArgumentType, reportCallIssue
groups.reduce(lambda one: one)  # found by mypy: arg-type, misc; by pyright: reportArgumentType

# A result of the wrong type
orders.flat_map_values(lambda order: order.amount)  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportAttributeAccessIssue, reportCallIssue
orders.map(lambda key, order: order)  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportCallIssue
groups.aggregate(float, lambda order, total: order.customer)  # found by pyright: reportArgumentType, reportAttributeAccessIssue, reportCallIssue
groups.reduce(lambda one, other: one.amount)  # found by mypy: arg-type, return-value; by pyright: reportArgumentType

# Another serde
orders.to("out", Produced(Int64Serde(), JsonSerde(Order)))  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
orders.to("out", value_serde=StringSerde())  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
groups.count(Materialized(value_serde=StringSerde()))  # found by mypy: arg-type; by pyright: reportArgumentType
orders.group_by(lambda order: order.customer, Grouped(key_serde=Int64Serde()))  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportCallIssue
orders.group_by_key(value_serde=StringSerde())  # found by mypy: arg-type; by pyright: reportArgumentType
orders.to_table(key_serde=Int64Serde())  # found by mypy: arg-type; by pyright: reportArgumentType

# Keys of other types
orders.join(by_number, lambda order, customer: customer)  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
customers.join(by_number, lambda one, other: other)  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
orders.join(by_number.to_stream(), lambda order, customer: customer, within)  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
spent.join(by_number, lambda total, customer: customer, foreign_key=lambda total: "text")  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportCallIssue

# Names that do not exist, and options that are none
customers.to("out")  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.count()  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.mapValues(lambda order: order)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
builder.stream("in", valeu_serde=StringSerde())  # found by mypy: call-arg; by pyright: reportCallIssue
orders.to("out", Consumed())  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
groups.count(Grouped())  # found by mypy: arg-type; by pyright: reportArgumentType
builder.stream("in", key_serde=StringSerde)  # found by mypy: arg-type; by pyright: reportArgumentType
orders.join(orders, lambda order, other: order)  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
orders.join(customers, lambda order, customer: order, within)  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
customers.to_stream().process(Total, "totals")  # found by mypy: arg-type; by pyright: reportArgumentType
orders.process(Total, "totals").map_values(lambda total: total.upper())  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.process(Total("totals"))  # found by mypy: arg-type, call-arg; by pyright: reportArgumentType, reportCallIssue
orders.deduplicate(1000, lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.as_of_join(orders, lambda order, earlier: earlier.amount, 1000, left=True)  # found by mypy: union-attr; by pyright: reportOptionalMemberAccess
orders.enrich(lambda values: [value.amuont for value in values], batch_size=10)  # found by pyright: reportAttributeAccessIssue

# A misspelt field, for each form that a function can have
orders.filter_not(lambda order: order.amuont > 3)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.filter_not(lambda key, order: order.amuont > 3)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.map(lambda order: (order.custmer, order))  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.flat_map(lambda order: [(order.custmer, order)])  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.flat_map(lambda key, order: [(order.custmer, order)])  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.flat_map_values(lambda order: [order.custmer])  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.flat_map_values(lambda key, order: [order.custmer])  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.select_key(lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.peek(lambda order: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.peek(lambda key, order: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.foreach(lambda order: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.foreach(lambda key, order: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.deduplicate(1000, lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.enrich(lambda keys, values: [value.amuont for value in values], batch_size=10)  # found by pyright: reportAttributeAccessIssue
orders.group_by(lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.split().branch(lambda key, order: order.amuont > 3)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.filter(lambda key, order: order.amuont > 3)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.filter_not(lambda order: order.amuont > 3)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.filter_not(lambda key, order: order.amuont > 3)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.map_values(lambda key, order: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.to_stream(lambda order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.to_stream(lambda key, order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.group_by(lambda order: (order.custmer, order))  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
best.group_by_window(lambda order: (order.custmer, order))  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
best.group_by_window(lambda key, order: (order.custmer, order))  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
groups.aggregate(float, lambda key, order, total: total + order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
by_hour.aggregate(float, lambda order, total: total + order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
by_hour.aggregate(float, lambda key, order, total: total + order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda order, total: total + order.amuont, lambda one, other: one)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda order, total: total + order.amuont, lambda key, one, other: one)  # found by mypy: arg-type, attr-defined, misc; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda key, order, total: total + order.amuont, lambda one, other: one)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda key, order, total: total + order.amuont, lambda key, one, other: one)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda order, total: total, lambda one, other: one.more)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
sessions.aggregate(float, lambda order, total: total, lambda key, one, other: one.more)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
groups.cogroup(lambda order, total: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
groups.cogroup(lambda key, order, total: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
spending.cogroup(groups, lambda order, total: total + order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
spending.cogroup(groups, lambda key, order, total: total + order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
spending.windowed_by(gaps).aggregate(float, lambda one, other: one.more)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
spending.windowed_by(gaps).aggregate(float, lambda key, one, other: one.more)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
of_customers.aggregate(float, lambda order, total: total + order.amuont, lambda order, total: total)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
of_customers.aggregate(float, lambda order, total: total, lambda order, total: total - order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
of_customers.aggregate(float, lambda key, order, total: total + order.amuont, lambda key, order, total: total)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
of_customers.reduce(lambda one, order: order, lambda one, order: order if order.amuont else None)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
of_customers.top(3, lambda order: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue

# A joiner that reads a misspelt field, and a function that does so where the key of the other side is computed
orders.join(orders, lambda key, order, other: other.amuont, within)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.join(customers, lambda order, customer: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.join(customers, lambda key, order, customer: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.join(everyone, lambda order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.join(everyone, lambda order, customer: order, key_selector=lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.join(everyone, lambda key, order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.join(everyone, lambda key, name, order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.left_join(orders, lambda order, other: order.amuont, within)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.left_join(orders, lambda key, order, other: order.amuont, within)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.left_join(customers, lambda order, customer: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.left_join(customers, lambda key, order, customer: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.left_join(everyone, lambda order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.left_join(everyone, lambda order, customer: order, key_selector=lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.left_join(everyone, lambda order, customer: order, key_selector=lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.left_join(everyone, lambda key, order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.left_join(everyone, lambda key, name, order, customer: order.amuont, key_selector=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.outer_join(orders, lambda order, other: order and order.amuont, within)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.outer_join(orders, lambda key, order, other: order and order.amuont, within)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.as_of_join(orders, lambda order, earlier: earlier.amuont, 1000)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.as_of_join(orders, lambda key, order, earlier: earlier.amuont, 1000)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.as_of_join(orders, lambda order, earlier: order.amuont, 1000, left=True)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
orders.as_of_join(orders, lambda key, order, earlier: order.amuont, 1000, left=True)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
orders.join_all({"a": orders, "b": orders}, lambda key, values: key.uper(), within)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.join(customers, lambda order, customer: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.join(customers, lambda key, order, customer: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.join(customers, lambda order, customer: order.amuont, foreign_key=lambda order: order.customer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.join(customers, lambda order, customer: order, foreign_key=lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.join(customers, lambda order, customer: order, foreign_key=lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.join(customers, lambda key, order, customer: order.amuont, foreign_key=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda order, customer: order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda key, order, customer: order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda order, customer: order.amuont, foreign_key=lambda order: order.customer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda order, customer: order, foreign_key=lambda order: order.custmer)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda order, customer: order, foreign_key=lambda key, order: order.custmer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.left_join(customers, lambda key, order, customer: order.amuont, foreign_key=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue
table.outer_join(table, lambda order, other: order and order.amuont)  # found by mypy: attr-defined; by pyright: reportAttributeAccessIssue
table.outer_join(table, lambda key, order, other: order and order.amuont)  # found by mypy: arg-type, misc; by pyright: reportAttributeAccessIssue

# A side that may be missing, for each other side
orders.left_join(orders, lambda key, order, other: other.amount, within)  # found by mypy: arg-type, misc; by pyright: reportOptionalMemberAccess
orders.left_join(customers, lambda key, order, customer: customer["name"])  # found by mypy: arg-type, misc; by pyright: reportOptionalSubscript
orders.left_join(everyone, lambda order, customer: customer["name"], key_selector=lambda order: order.customer)  # found by mypy: index; by pyright: reportOptionalSubscript
orders.left_join(everyone, lambda key, order, customer: customer["name"], key_selector=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportOptionalSubscript
orders.outer_join(orders, lambda key, order, other: other.amount, within)  # found by mypy: arg-type, misc; by pyright: reportOptionalMemberAccess
orders.as_of_join(orders, lambda key, order, earlier: earlier.amount, 1000, left=True)  # found by mypy: arg-type, misc; by pyright: reportOptionalMemberAccess
table.left_join(customers, lambda order, customer: customer["name"], foreign_key=lambda order: order.customer)  # found by mypy: index; by pyright: reportOptionalSubscript
table.left_join(customers, lambda key, order, customer: customer["name"], foreign_key=lambda order: order.customer)  # found by mypy: arg-type, misc; by pyright: reportOptionalSubscript
table.outer_join(table, lambda key, order, other: other.amount)  # found by mypy: arg-type, misc; by pyright: reportOptionalMemberAccess

# Options of a method that are another's, or that have another serde
orders.join(orders, lambda order, other: order, within, grace=3)  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
orders.join(orders, lambda order, other: order, within, StreamJoined(Int64Serde()))  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
orders.join(customers, lambda order, customer: order, store_name="joined")  # found by mypy: call-overload; by pyright: reportCallIssue
orders.join(customers, lambda order, customer: order, Joined(Int64Serde()))  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
orders.join(everyone, lambda order, customer: order, grcae=3, key_selector=lambda order: order.customer)  # found by mypy: call-overload; by pyright: reportCallIssue
orders.join(everyone, lambda order, customer: order, key_selector=lambda order: order.amount)  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportAttributeAccessIssue, reportCallIssue
orders.left_join(customers, lambda order, customer: order, store_name="joined")  # found by mypy: call-overload; by pyright: reportCallIssue
orders.outer_join(orders, lambda order, other: other, within, grace=3)  # found by mypy: call-overload; by pyright: reportCallIssue
orders.as_of_join(orders, lambda order, earlier: order, 1000, grcae=3)  # found by mypy: call-overload; by pyright: reportCallIssue
orders.join_all({"a": orders, "b": orders}, lambda values: values, within, grcae=3)  # found by mypy: call-overload; by pyright: reportCallIssue
orders.enrich(lambda values: values, batch_size=10, retreis=3)  # found by mypy: call-overload; by pyright: reportCallIssue
orders.to_table(cachign=False)  # found by mypy: call-arg; by pyright: reportCallIssue
orders.group_by(lambda order: order.customer, nmae="x")  # found by mypy: call-overload; by pyright: reportCallIssue
orders.split().branch(lambda order: True, nmae="x")  # found by mypy: call-overload; by pyright: reportCallIssue
orders.split().default_branch(nmae="x")  # found by mypy: call-arg; by pyright: reportCallIssue
orders.repartition(partitons=3)  # found by mypy: call-arg; by pyright: reportCallIssue
table.group_by(lambda key, order: (key, order), nmae="x")  # found by mypy: call-overload; by pyright: reportCallIssue
table.join(table, lambda one, other: one, Materialized(value_serde=StringSerde()))  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportCallIssue
table.map_values(lambda order: order.amount, Materialized(value_serde=StringSerde()))  # found by mypy: arg-type, return-value; by pyright: reportArgumentType, reportCallIssue
sessions.aggregate(float, lambda order, total: total, lambda one, other: one, Materialized(value_serde=StringSerde()))  # found by mypy: arg-type; by pyright: reportArgumentType, reportCallIssue
builder.table("in", valeu_serde=StringSerde())  # found by mypy: call-overload; by pyright: reportCallIssue
builder.table("in", Produced())  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
builder.global_table("in", valeu_serde=StringSerde())  # found by mypy: call-overload; by pyright: reportCallIssue
builder.global_table("in", key_serde=StringSerde)  # found by mypy: call-overload; by pyright: reportArgumentType
builder.table("in", Consumed(StringSerde(), JsonSerde(Customer))).map_values(lambda customer: customer["nmae"])  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
builder.table("in", Materialized(value_serde=JsonSerde(Customer))).map_values(lambda customer: customer["nmae"])  # found by pyright: reportGeneralTypeIssues
builder.table("in", "name", value_serde=JsonSerde(Customer)).map_values(lambda customer: customer["nmae"])  # found by mypy: typeddict-item; by pyright: reportGeneralTypeIssues
