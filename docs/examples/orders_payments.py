"""Orders and their payments: both within five minutes, or what is missing.

Shows: an outer join of two streams, grace, serdes of a join. What found no partner comes once its window has closed.
"""

from datetime import timedelta

from streams import JoinWindows, JsonSerde, StreamJoined, StreamsBuilder, StringSerde, Topology


def build() -> Topology:
    """Joins `orders` with `payments` by order number into `order-states`."""
    builder = StreamsBuilder()
    orders, payments = builder.stream("orders"), builder.stream("payments")
    orders.outer_join(
        payments,
        lambda order, payment: {"item": order and order["item"], "paid": payment and payment["amount"]},
        JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1)),
        StreamJoined(StringSerde(), JsonSerde(), JsonSerde(), name="order-payment"),
    ).to("order-states")
    return builder.build()
