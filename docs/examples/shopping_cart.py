"""A shopping cart made of three streams: what was put in, what was taken out, and purchases, which empty it.

Shows: `cogroup` (KIP-150), one aggregate fed by several streams.
"""

from typing import Any

from streams import Materialized, StreamsBuilder, Topology

Event = dict[str, Any]

Cart = dict[str, int]


def put_in(key: str, event: Event, cart: Cart) -> Cart:
    """One more of an item."""
    return {**cart, event["item"]: cart.get(event["item"], 0) + 1}


def take_out(key: str, event: Event, cart: Cart) -> Cart:
    """One less of an item."""
    left = {**cart, event["item"]: cart.get(event["item"], 0) - 1}
    return {item: count for item, count in left.items() if count > 0}


def purchase(key: str, event: Event, cart: Cart) -> Cart:
    """An empty cart."""
    return {}


def build() -> Topology:
    """Keeps the carts of `added`, `removed` and `purchases` (by customer) and writes them to `carts`."""
    builder = StreamsBuilder()
    added, removed, purchases = (builder.stream(topic).group_by_key() for topic in ("added", "removed", "purchases"))
    (
        added.cogroup(put_in)
        .cogroup(removed, take_out)
        .cogroup(purchases, purchase)
        .aggregate(dict, Materialized("carts-by-customer"))
        .to_stream()
        .to("carts")
    )
    return builder.build()
