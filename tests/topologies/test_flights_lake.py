"""The flights in the lake against pandas; neither Spark nor Delta runs."""

from __future__ import annotations

from typing import Any

from streams.testing import TopologyTestDriver
from topologies import flights_data
from topologies.comparison import compare
from topologies.flights_expected import expected_daily_delays
from topologies.flights_lake import build


def daily(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A row of the table in the form of the expected ones."""
    origin, carrier = row["key"].split("|")
    day = str(row["window_start"])[:10]
    statistics = {name: cell for name, cell in row.items() if name not in ("key", "window_start", "window_end")}
    return f"{origin}|{carrier}|{day}", {"origin": origin, "carrier": carrier, "day": day, **statistics}


def test_both_tables_equal_the_recomputation() -> None:
    data = flights_data.load().first(3_000)
    (flights,) = [part for part in data.streams() if part.topic == flights_data.FLIGHTS]
    with TopologyTestDriver(build(), partitions={flights_data.FLIGHTS: 4}) as driver:
        topic = driver.create_input_topic(flights_data.FLIGHTS)
        with driver.batch():
            for key, value, timestamp in zip(flights.keys, flights.values, flights.timestamps.tolist(), strict=True):
                topic.pipe_bytes(key, value, timestamp)
        departures, delays = driver.table_rows("delta-departures"), driver.table_rows("delta-daily_delays")
    assert len(departures) == 3_000
    assert sum(row["cancelled"] for row in departures) == int(data.flights["dep_delay"].isna().sum())
    assert compare(expected_daily_delays(data), dict(map(daily, delays))) == []
