"""Each order at the price that held when it was made, although prices change and orders come late.

Shows: a versioned table (KIP-889): a stream record sees the table as it was at the record's own time.
"""

from datetime import timedelta

from streams import Materialized, StreamsBuilder, Topology


def build() -> Topology:
    """Joins `orders` (by item) with the table `prices` into `priced-orders`."""
    builder = StreamsBuilder()
    prices = builder.table("prices", Materialized("prices-by-time", history_retention=timedelta(days=1)))
    orders = builder.stream("orders")
    orders.join(prices, lambda order, price: {**order, "total": order["count"] * price["price"]}).to("priced-orders")
    return builder.build()
