"""The program that drills use by default: a stream-stream join, a windowed aggregation, counts, and a second stage after a re-key.

Every order and every payment has a unique id, and so has each result: a pair of ids, a window of a key, or the n-th
count of a key. So duplicate and missing results are visible in the output topics alone.
"""

from __future__ import annotations

from datetime import timedelta

from streams import EmitStrategy, Grouped, JoinWindows, Materialized, StreamJoined, StreamsBuilder, TimeWindows
from streams.topology.topology import Topology

ORDERS, PAYMENTS = "orders", "payments"
PAIRS, CLOSED, TOTALS, REGIONS = "pairs", "closed", "totals", "regions"
INPUTS, OUTPUTS = (ORDERS, PAYMENTS), (PAIRS, CLOSED, TOTALS, REGIONS)
PARTITIONS = 2
KEYS = 24

NEAR_MS = 2_000
WINDOW_MS = 10_000
GRACE_MS = 120_000
"""Far longer than partitions drift apart during an outage of the broker, so that no record is late."""


def region(key: str) -> str:
    """The region of a key; a region has several keys, so the second stage groups differently."""
    return f"region-{int(key.rpartition('-')[2]) % 5}"


def build() -> Topology:
    """The topology on orders and payments by key."""
    return program().build()


def changed() -> Topology:
    return program(2 * WINDOW_MS).build()


def program(window_ms: int = WINDOW_MS) -> StreamsBuilder:
    """The program, not built yet."""
    builder = StreamsBuilder()
    orders, payments = builder.stream(ORDERS), builder.stream(PAYMENTS)
    grace = timedelta(milliseconds=GRACE_MS)
    near = JoinWindows.of_time_difference_and_grace(timedelta(milliseconds=NEAR_MS), grace)
    pairs = orders.join(
        payments,
        lambda order, payment: {"order": order["id"], "payment": payment["id"]},
        near,
        StreamJoined(name="pairs", store_name="pairs"),
    )
    pairs.to(PAIRS)
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=window_ms), grace)
    closed = orders.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    (
        closed.count(materialized=Materialized("windows"))
        .to_stream()
        .map(lambda of, count: (of.key, {"start": of.window.start, "count": count}))
        .to(CLOSED)
    )
    every_one = Materialized("totals", caching=False)
    orders.group_by_key().count(materialized=every_one).to_stream().map_values(lambda n: {"count": n}).to(TOTALS)
    regions = pairs.group_by(lambda key, pair: region(key), Grouped(name="by-region"))
    counts = regions.count(materialized=Materialized("regions", caching=False)).to_stream()
    counts.map_values(lambda n: {"count": n}).to(REGIONS)
    return builder
