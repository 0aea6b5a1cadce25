"""Typed values: what mappers, aggregators and joiners are given and give."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from typing_extensions import assert_type

from streams import (
    Consumed,
    Float64Serde,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    Windowed,
    agg,
)


@dataclass
class Order:
    id: str
    customer: str
    amount: float
    note: str | None = None


class Customer(TypedDict):
    name: str
    country: str


builder = StreamsBuilder()
orders = builder.stream("orders", key_serde=StringSerde(), value_serde=JsonSerde(Order))
assert_type(orders, KStream[str, Order])
assert_type(builder.stream("orders", value_serde=JsonSerde(Order)), KStream[Any, Order])
assert_type(builder.stream("anything"), KStream[Any, Any])
customers = builder.table(
    "customers", Materialized(name="customers"), key_serde=StringSerde(), value_serde=JsonSerde(Customer)
)
assert_type(customers, KTable[str, Customer])
everywhere = builder.global_table("customers", Consumed(StringSerde(), JsonSerde(Customer)))

# One by one
assert_type(orders.map_values(lambda order: order.amount), KStream[str, float])
assert_type(orders.map_values(lambda key, order: (key, order.amount)), KStream[str, tuple[str, float]])
assert_type(orders.map(lambda key, order: (order.customer, order.amount)), KStream[str, float])
assert_type(orders.flat_map(lambda key, order: [(len(key), order.id)]), KStream[int, str])
assert_type(orders.flat_map_values(lambda order: order.id.split("-")), KStream[str, str])
by_customer = orders.select_key(lambda order: order.customer)
assert_type(by_customer, KStream[str, Order])
assert_type(orders.merge(orders), KStream[str, Order])
assert_type(orders.merge(orders.map_values(lambda order: order.amount)), KStream[str, Order | float])
notes = orders.map_values(lambda order: order.note)
assert_type(notes, KStream[str, str | None])
notes.to("notes", key_serde=StringSerde(), value_serde=StringSerde())
assert_type(notes.to_table(), KTable[str, str])
orders.to(lambda order: f"orders-of-{order.customer}")
orders.to(lambda key, order, context: f"{context.topic}-{order.customer}", "sink")

# Groups
groups = orders.group_by(lambda order: order.customer, Grouped(StringSerde(), JsonSerde(Order)))
assert_type(groups, KGroupedStream[str, Order])
assert_type(groups.count(), KTable[str, int])
assert_type(groups.count("n", Materialized(value_serde=Int64Serde())), KTable[str, int])
assert_type(groups.reduce(lambda best, order: order if order.amount > best.amount else best), KTable[str, Order])
assert_type(groups.aggregate(float, lambda order, total: total + order.amount), KTable[str, float])
assert_type(
    groups.aggregate(
        lambda: 0.0, lambda key, order, total: total + order.amount, Materialized(value_serde=Float64Serde())
    ),
    KTable[str, float],
)
assert_type(groups.aggregate(orders=agg.count(), total=agg.sum("amount")), KTable[str, dict[str, Any]])
assert_type(groups.top(3, lambda order: order.amount), KTable[str, list[Order]])

# Windows
by_hour = groups.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(hours=1)))
per_hour = by_hour.count()
assert_type(per_hour, KTable[Windowed[str], int])
assert_type(per_hour.to_stream(lambda windowed, count: windowed.key), KStream[str, int])
assert_type(per_hour.to_stream().map(lambda windowed, count: (windowed.window.start, count)), KStream[int, int])
assert_type(by_hour.aggregate(float, lambda key, order, total: total + order.amount), KTable[Windowed[str], float])
sessions = groups.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5)))
assert_type(sessions.top(3, lambda order: order.amount), KTable[Windowed[str], list[Order]])
assert_type(
    sessions.aggregate(float, lambda order, total: total + order.amount, lambda one, other: one + other),
    KTable[Windowed[str], float],
)

# Joins
within = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
assert_type(
    orders.join(orders, lambda order, other: (order.amount, other.amount), within), KStream[str, tuple[float, float]]
)
assert_type(
    orders.left_join(orders, lambda order, other: other.amount if other else order.amount, within), KStream[str, float]
)
assert_type(
    orders.outer_join(orders, lambda key, order, other: order or other, within, name="pairs"),
    KStream[str, Order | None],
)
assert_type(
    by_customer.join(customers, lambda order, customer: (order.id, customer["name"])), KStream[str, tuple[str, str]]
)
assert_type(
    by_customer.left_join(customers, lambda order, customer: customer["country"] if customer else "?"),
    KStream[str, str],
)
assert_type(
    orders.join(everywhere, lambda order, customer: customer["name"], key_selector=lambda order: order.customer),
    KStream[str, str],
)
assert_type(
    orders.left_join(everywhere, lambda key, order: order.customer, lambda order, customer: customer is None),
    KStream[str, bool],
)

# Tables
table = orders.to_table("orders")
assert_type(table, KTable[str, Order])
assert_type(table.map_values(lambda order: order.note), KTable[str, str])
assert_type(
    table.join(customers, lambda order, customer: customer["name"], foreign_key=lambda order: order.customer),
    KTable[str, str],
)
assert_type(
    table.left_join(customers, lambda order: order.customer, lambda order, customer: customer is None),
    KTable[str, bool],
)
assert_type(customers.outer_join(customers, lambda one, other: (one, other)).store_name, str | None)
spent = table.group_by(lambda id, order: (order.customer, order.amount), value_serde=Float64Serde())
assert_type(
    spent.reduce(lambda total, amount: total + amount, lambda total, amount: total - amount), KTable[str, float]
)
assert_type(spent.top(3, lambda amount: amount), KTable[str, list[float]])
assert_type(spent.top(3, lambda amount: amount, ties=True, named="ties"), KTable[str, list[float]])
hourly = groups.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(hours=1)))
of_hours = hourly.count(Materialized("hourly")).group_by_window()
assert_type(of_hours, KGroupedTable[Windowed[int], int])
assert_type(of_hours.top(1, lambda n: n, ties=True, named="most"), KTable[Windowed[int], list[int]])
of_names = hourly.aggregate(orders=agg.count()).group_by_window(lambda key, row: (key.key[:1], row), name="names")
assert_type(of_names, KGroupedTable[Windowed[str], dict[str, Any]])
assert_type(of_names.count(), KTable[Windowed[str], int])
assert_type(of_hours.top(1, lambda n: n, rank=None, named="places").explode(), KStream[Any, Any])


def add_id(order: Order, ids: set[str]) -> set[str]:
    return ids | {order.id}


# Several streams into one table
both = groups.cogroup(add_id).cogroup(groups, lambda key, order, ids: ids | {key})
assert_type(both.aggregate(set[str]), KTable[str, set[str]])

# Branches
branches = orders.split().branch(lambda order: order.amount > 100, "large").default_branch(name="small")
assert_type(branches["large"], KStream[str, Order])
