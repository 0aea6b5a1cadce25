# ruff: noqa: E501
"""Mistakes that a type checker must find. The comment of a line says what mypy and pyright call it."""

from dataclasses import dataclass
from typing import TypedDict

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    KeyValueStore,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    StreamsBuilder,
    StringSerde,
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


builder = StreamsBuilder()
orders = builder.stream("orders", Consumed(StringSerde(), JsonSerde(Order)))
customers = builder.table("customers", key_serde=StringSerde(), value_serde=JsonSerde(Customer))
everyone = builder.global_table("customers", key_serde=StringSerde(), value_serde=JsonSerde(Customer))
by_number = builder.table("by-number", key_serde=Int64Serde(), value_serde=JsonSerde(Customer))
groups = orders.group_by_key()
spent = groups.aggregate(float, lambda order, total: total + order.amount)
within = JoinWindows.of_time_difference_with_no_grace(1000)

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
