"""Flights into a database: the delays of each airport, carrier and day as rows that are kept up to date, exactly once.

Input: the stream `flights` (see `topologies.flights_data`). Result: the table `daily_delays`, a row for each airport, carrier
and day (UTC), in the database that the variable `FLIGHTS_DATABASE` names: the path of an SQLite file (default: `flights.db`), or
the address of a PostgreSQL database, `postgresql://...`. The rows and the position behind them are one transaction of the database.

    streams run topologies/flights_database.py --bootstrap-servers localhost:9092
    sqlite3 flights.db "SELECT * FROM daily_delays ORDER BY mean_delay DESC LIMIT 5"
"""

from __future__ import annotations

import os
from typing import Final

from streams import StreamsBuilder, Topology
from streams.sinks import PostgresSink, Sink, SqliteSink
from topologies.flight_delays import with_cancellation
from topologies.flights_lake import DAILY_DELAYS, DELAYS, delays_per_day

DATABASE: Final = "FLIGHTS_DATABASE"


def build() -> Topology:
    """Flights from New York in 2013 as a table of a database: the delays per airport, carrier and day."""
    builder = StreamsBuilder()
    flights = builder.stream("flights").map_values(with_cancellation)
    delays_per_day(flights).to_sink(_database(), "daily-delays-db", schema=DELAYS, timestamp=None)
    return builder.build()


def _database() -> Sink:
    address = os.environ.get(DATABASE, "flights.db")
    return (PostgresSink if address.startswith("postgresql:") else SqliteSink)(address, DAILY_DELAYS)
