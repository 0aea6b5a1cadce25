"""Flights with the names of both airports: two look-ups in a table that every task has as a whole.

Shows: `global_table`, joins by a key that is made of the value, no co-partitioning.
"""

from streams import Materialized, StreamsBuilder, Topology


def build() -> Topology:
    """Looks `origin` and `dest` of `flights` up in `airports` and writes `named-flights`."""
    builder = StreamsBuilder()
    airports = builder.global_table("airports", Materialized("airports-by-code"))
    (
        builder.stream("flights")
        .join(airports, lambda flight: flight["origin"], lambda flight, found: {**flight, "from": found["name"]})
        .left_join(
            airports,
            lambda flight: flight["dest"],
            lambda flight, found: {**flight, "to": found["name"] if found else None},
        )
        .to("named-flights")
    )
    return builder.build()
