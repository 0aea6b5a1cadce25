"""A topology for tests of the command line: one store of each kind that people look into."""

from streams import JsonSerde, Materialized, Repartitioned, StreamsBuilder, TimeWindows
from streams.topology.topology import Topology


def build() -> Topology:
    """Counts per key and per minute."""
    builder = StreamsBuilder()
    grouped = builder.stream("events").group_by_key()
    grouped.count(materialized=Materialized(name="totals"))
    windows = TimeWindows.of_size_and_grace(60_000, 0)
    grouped.windowed_by(windows).count(materialized=Materialized(name="minutes"))
    builder.table("profiles", materialized=Materialized(name="profiles", value_serde=JsonSerde()))
    return builder.build()


def stateless() -> Topology:
    """Nothing to look into."""
    builder = StreamsBuilder()
    builder.stream("events").to("copies")
    return builder.build()


def careless() -> Topology:
    """Goes round in circles."""
    builder = StreamsBuilder()
    builder.stream("events").to("events")
    return builder.build()


def repartitioned() -> Topology:
    """Through a repartition topic of its own."""
    builder = StreamsBuilder()
    builder.stream("events").repartition(Repartitioned(name="by-word")).to("copies")
    return builder.build()
