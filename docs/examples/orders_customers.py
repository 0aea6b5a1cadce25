"""Orders with the names of their customers: tables joined by a foreign key, values as dataclasses.

Shows: `JsonSerde(Order)`, which reads back what it wrote, and a foreign-key join: an update of either side updates the results.
"""

from dataclasses import dataclass

from streams import JsonSerde, StreamsBuilder, Topology


@dataclass
class Order:
    """An order."""

    customer_id: str
    amount: float


@dataclass
class Customer:
    """A customer."""

    name: str


@dataclass
class NamedOrder:
    """An order, and who ordered."""

    name: str
    amount: float


def build() -> Topology:
    """Joins the tables `orders` and `customers` into `named-orders`."""
    builder = StreamsBuilder()
    orders = builder.table("orders", value_serde=JsonSerde(Order))
    customers = builder.table("customers", value_serde=JsonSerde(Customer))
    named = orders.join(
        customers,
        lambda order: order.customer_id,
        lambda order, customer: NamedOrder(customer.name, order.amount),
        named="with-customer",
    )
    named.to_stream().to("named-orders", value_serde=JsonSerde(NamedOrder))
    return builder.build()
