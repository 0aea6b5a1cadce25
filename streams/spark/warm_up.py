"""Compiles every kernel (or loads it from numba's cache on disk) by running a small topology in memory."""

from __future__ import annotations

from state.kafka.native.warm_up import warm_up as warm_up_kafka
from streams import StreamsBuilder, TimeWindows, agg
from streams.testing import TopologyTestDriver


def warm_up() -> None:
    """Runs all that is vectorised once: JSON scanning, merging, windows, groups, murmur2, gathering."""
    warm_up_kafka()
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of_size_and_grace(2, 1).advance_by(1))
    windowed.aggregate(n=agg.count(), low=agg.min("x"), high=agg.max("x"), mean=agg.mean("x"), last=agg.last("s"))
    with TopologyTestDriver(builder.build(), application_id="warm-up", partitions={"in": 2}, tasks=2) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for n in range(4):
                topic.pipe_input(f"key-{n}", {"x": n / 2, "s": "text"}, timestamp=n)


if __name__ == "__main__":
    warm_up()
