import orjson
import pandas as pd
import pytest

from topologies.flights_data import TABLES_MS, FlightData, load
from topologies.records import in_event_time_order


@pytest.fixture(scope="module")
def data() -> FlightData:
    return load()


def test_all_of_the_year_is_there(data: FlightData):
    assert [len(data.flights), len(data.weather), len(data.airlines), len(data.planes)] == [336_776, 26_115, 16, 3_322]
    assert data.flights["dep_delay"].isna().sum() == 8_255


def test_event_time_is_the_local_departure_over_both_changes_of_daylight_saving_time(data: FlightData):
    left = data.flights[data.flights["dep_time"].notna()]
    local = left["event_time"].dt.tz_convert("America/New_York")
    assert ((local.dt.hour * 100 + local.dt.minute) == left["dep_time"] % 2400).all()


def test_a_cancelled_flight_is_placed_at_its_scheduled_time(data: FlightData):
    cancelled = data.flights[data.flights["dep_delay"].isna()]
    assert cancelled["dep_time"].isna().all()
    assert (cancelled["event_time"] == cancelled["scheduled"]).all()


def test_weather_is_hourly_and_on_the_hour(data: FlightData):
    assert (data.weather["event_time"] == data.weather["event_time"].dt.floor("h")).all()
    assert not data.weather.duplicated(["origin", "event_time"]).any()


def test_records_carry_event_time_and_plain_json(data: FlightData):
    weather, flights = data.first(1_000).streams()
    assert flights.keys[0] == b"EWR"
    assert orjson.loads(flights.values[0]) == {
        "flight": "UA1545",
        "carrier": "UA",
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
        "scheduled": "2013-01-01T10:15Z",
        "dep_delay": 2,
    }
    assert pd.Timestamp(flights.timestamps[0], unit="ms", tz="UTC") == pd.Timestamp("2013-01-01T10:17Z")
    assert weather.timestamps.max() <= flights.timestamps.max()
    cancelled = [orjson.loads(value) for value in flights.values if b'"dep_delay":null' in value]
    assert cancelled
    assert all(flight["dep_delay"] is None for flight in cancelled)


def test_tables_lie_before_all_flights_and_weather(data: FlightData):
    tables = data.tables()
    assert {time for part in tables for time in part.timestamps.tolist()} == {TABLES_MS}
    assert all(part.timestamps.min() > TABLES_MS for part in data.first(1_000).streams())


def test_the_halves_make_up_the_whole_and_are_cut_at_one_moment(data: FlightData):
    whole = data.first(5_000)
    first, second = whole.halves()
    for name in ("flights", "weather"):
        early, late = getattr(first, name), getattr(second, name)
        assert len(early) + len(late) == len(getattr(whole, name))
        assert max(part["event_time"].max() for part in (first.flights, first.weather)) < late["event_time"].min()


def test_records_are_written_in_event_time_order(data: FlightData):
    times = [record[3] for record in in_event_time_order(data.first(2_000).streams())]
    assert times == sorted(times)
    assert len(times) > 2_000
