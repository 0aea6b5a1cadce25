"""Joins orders with their payments, adds the customer, and sums up what was paid by region and hour."""

from datetime import timedelta

from streams import Grouped, Joined, JoinWindows, Materialized, StreamJoined, StreamsBuilder, TimeWindows, Topology


def build() -> Topology:
    """Joins `orders` and `payments` (keys: order numbers) within five minutes, and looks up `customers` (keys: customers)."""
    builder = StreamsBuilder()
    customers = builder.table("customers", materialized=Materialized(name="customers"))
    within = JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
    paid = builder.stream("orders").join(
        builder.stream("payments"),
        lambda order, payment: {"customer": order["customer"], "amount": payment["amount"]},
        within,
        StreamJoined(name="order-payment"),
    )
    sales = paid.select_key(lambda number, sale: sale["customer"]).join(
        customers,
        lambda sale, customer: {"region": customer["region"], "amount": sale["amount"]},
        Joined(name="sale-customer"),
    )
    sales.to("sales")
    (
        sales.group_by(lambda customer, sale: sale["region"], Grouped(name="by-region"))
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(minutes=5)))
        .aggregate(
            lambda: 0,
            lambda region, sale, total: total + sale["amount"],
            materialized=Materialized(name="revenue"),
        )
        .to_stream()
        .map(lambda region, total: (region.key, {"hour": region.window.start, "revenue": total}))
        .to("revenue-by-region")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "APPLICATION")
