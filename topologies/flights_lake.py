"""Flights into a data lake: each flight as a row of a Delta table, and the delays of each day as a table that is kept up to date.

Input: the stream `flights` (see `topologies.flights_data`). Results, below the folder `FLIGHTS_LAKE` (default: `lake`):

* `departures`: a row for each flight, appended exactly once;
* `daily_delays`: a row for each airport, carrier and day (UTC), updated as flights come in (an upsert by key and window).

    streams run topologies/flights_lake.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from streams import Grouped, KStream, KTable, Materialized, StreamsBuilder, TimeWindows, Topology, Windowed, agg
from topologies.flight_delays import BACKLOG, Value, with_cancellation

LAKE: Final = "FLIGHTS_LAKE"
DEPARTURES: Final = "departures"
DAILY_DELAYS: Final = "daily_delays"

FLIGHT: Final = {
    "flight": str,
    "carrier": str,
    "origin": str,
    "dest": str,
    "distance": int,
    "dep_delay": int | None,
    "cancelled": int,
}
DELAYS: Final = {
    "flights": int,
    "departed": int,
    "cancelled": int,
    "mean_delay": float | None,
    "min_delay": int | None,
    "max_delay": int | None,
}


def build() -> Topology:
    """Flights from New York in 2013 as two Delta tables: each departure, and the delays per airport, carrier and day."""
    lake = Path(os.environ.get(LAKE, "lake"))
    builder = StreamsBuilder()
    flights = builder.stream("flights").map_values(with_cancellation)
    flights.to_delta(lake / DEPARTURES, schema=FLIGHT, key=None)
    delays_per_day(flights).to_delta(lake / DAILY_DELAYS, schema=DELAYS, timestamp=None)
    return builder.build()


def delays_per_day(flights: KStream[Any, Value]) -> KTable[Windowed[str], Any]:
    """The statistics of each airport, carrier and day."""
    return (
        flights.group_by(airport_and_carrier, Grouped(name="by-airport-and-carrier"))
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(days=1), grace=BACKLOG))
        .aggregate(
            flights=agg.count(),
            departed=agg.count("dep_delay"),
            cancelled=agg.sum("cancelled"),
            mean_delay=agg.mean("dep_delay"),
            min_delay=agg.min("dep_delay"),
            max_delay=agg.max("dep_delay"),
            materialized=Materialized(name="daily-delays"),
        )
    )


def airport_and_carrier(flight: Value) -> str:
    """The key of the statistics."""
    return f"{flight['origin']}|{flight['carrier']}"
