"""The table of delays in a database against pandas; neither Spark nor a database runs. Drill D50 kills what writes such tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.sinks import PostgresSink, SqliteSink
from streams.testing import TopologyTestDriver
from tests.topologies.test_flights_lake import daily
from topologies import flights_data
from topologies.comparison import compare
from topologies.flights_database import DATABASE, build
from topologies.flights_expected import expected_daily_delays


def test_the_table_equals_the_recomputation() -> None:
    data = flights_data.load().first(3_000)
    (flights,) = [part for part in data.streams() if part.topic == flights_data.FLIGHTS]
    with TopologyTestDriver(build(), partitions={flights_data.FLIGHTS: 4}) as driver:
        topic = driver.create_input_topic(flights_data.FLIGHTS)
        with driver.batch():
            for key, value, timestamp in zip(flights.keys, flights.values, flights.timestamps.tolist(), strict=True):
                topic.pipe_bytes(key, value, timestamp)
        delays = driver.table_rows("daily-delays-db")
    assert compare(expected_daily_delays(data), dict(map(daily, delays))) == []


@pytest.mark.parametrize(
    ("address", "kind"), [("postgresql://me:secret@host/flights", PostgresSink), ("flights.db", SqliteSink)]
)
def test_the_address_decides_the_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, kind: type[object]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATABASE, address)
    topology = build()
    (sink,) = topology.lake_sinks.values()
    assert type(sink.target) is kind
    assert sink.layout.keys == ("key", "window_start", "window_end")
    assert "secret" not in topology.describe() + topology.explain()
    assert list(tmp_path.iterdir()) == []
