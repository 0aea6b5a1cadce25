"""Orders that pass several checks, some of them over time; what cannot be read goes to a dead-letter topic.

Shows: branches by name, a check against a windowed total of the customer, a join of the checks' results, policies for bad records.
"""

from datetime import timedelta

from streams import (
    Branched,
    Grouped,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Topology,
)

LIMIT = 2000
WITHIN = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))


def build() -> Topology:
    """Reads `orders` by number and writes `validated-orders`, `rejected-orders` and `order-warnings`."""
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    branches = (
        orders.split("orders-")
        .branch(lambda order: order["quantity"] > 0 and order["price"] > 0, Branched("plausible"))
        .default_branch(Branched("implausible"))
    )
    branches["orders-implausible"].map_values(lambda order: {**order, "why": "implausible"}).to("rejected-orders")
    plausible = branches["orders-plausible"]
    totals = (
        plausible.group_by(lambda order: order["customer"], Grouped(name="by-customer"))
        .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(hours=1)))
        .aggregate(
            lambda: 0.0,
            lambda order, total: total + order["quantity"] * order["price"],
            lambda earlier, later: earlier + later,
            Materialized("spent-per-session"),
        )
    )
    (
        totals.to_stream(lambda key, total: key.key)
        .filter(lambda total: total is not None and total > LIMIT)
        .to("order-warnings")
    )
    stock = builder.stream("stock-checks")
    (
        plausible.join(stock, lambda order, check: {**order, "in_stock": check["ok"]}, WITHIN, name="with-stock")
        .filter(lambda order: order["in_stock"])
        .to("validated-orders")
    )
    return builder.build()


SETTINGS = {"deserialization": "dlq", "processing": "dlq", "dead_letter_topic": "dead-orders"}
"""What is to become of records that cannot be read, or that make a function fail."""
