"""The topologies that `benchmarks.latency` measures: windowed statistics, and a join of two streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from streams import JoinWindows, StreamsBuilder, TimeWindows, Topology, agg

INPUT: Final = "latency-input"
OTHER: Final = "latency-other"
RESULTS: Final = "latency-results"
TOPICS: Final = {"windows": (INPUT,), "join": (INPUT, OTHER)}
"""The input topics of each topology. Both sides of the join have the same records, so each record has one result."""


def windows() -> Topology:
    """Count, mean and largest number of the records of each key and second."""
    builder = StreamsBuilder()
    by_second = (
        builder.stream(INPUT).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=1)))
    )
    statistics = by_second.aggregate(n=agg.count(), mean=agg.mean("v"), s=agg.max("s"))
    statistics.to_stream().map(without_window).to(RESULTS)
    return builder.build()


def join() -> Topology:
    """The inner join of two streams, one second around each record."""
    builder = StreamsBuilder()
    around = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    builder.stream(INPUT).join(builder.stream(OTHER), both, around).to(RESULTS)
    return builder.build()


def without_window(key: Any, statistics: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The plain key, under which a reader finds the results of a record."""
    return key.key, statistics


def both(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """The number of a record and the values of both sides."""
    return {"s": left["s"], "left": left["v"], "right": right["v"]}
