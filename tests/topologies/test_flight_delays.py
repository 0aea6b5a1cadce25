"""The topology on real flights, against pandas: in steps of different sizes, with a restart, over several tasks."""

import pytest

from streams.testing import TopologyTestDriver
from topologies.comparison import compare
from topologies.flight_delays import DELAYS_BY_CARRIER, WORST_WEATHER_HOURS, build
from topologies.flights_data import FlightData, load
from topologies.flights_expected import expected_delays_by_carrier, expected_weather_hours
from topologies.records import Records, in_event_time_order

PARTITIONS = dict.fromkeys(("flights", "weather", "airlines", "planes", DELAYS_BY_CARRIER, WORST_WEATHER_HOURS), 4)


def pipe(driver: TopologyTestDriver, parts: list[Records]) -> None:
    topics = {part.topic: driver.create_input_topic(part.topic) for part in parts}
    for topic, key, value, timestamp in in_event_time_order(parts):
        topics[topic].pipe_bytes(key, value, timestamp)


def run(steps: list[FlightData], restart: bool = False) -> tuple[dict, dict]:
    """The two tables after the tables and then each part in a step of its own."""
    with TopologyTestDriver(build(), partitions=PARTITIONS) as driver:
        with driver.batch():
            pipe(driver, steps[0].tables())
        for number, part in enumerate(steps):
            if restart and number:
                driver.restart(wipe_state=True)
            with driver.batch():
                pipe(driver, part.streams())
        assert driver.dropped() == 0
        delays, hours = (
            driver.create_output_topic(topic).read_key_values_to_map()
            for topic in (DELAYS_BY_CARRIER, WORST_WEATHER_HOURS)
        )
        return delays, hours


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one step", "two steps", "two steps and a restart without state"])
def test_equals_the_recomputation(how: str):
    data = load().first(6_000)
    delays, hours = run([data] if how == "one step" else list(data.halves()), restart="restart" in how)
    assert compare(expected_delays_by_carrier(data), delays) == []
    assert compare(expected_weather_hours(data), hours) == []


def test_cancelled_flights_count_but_have_no_delay():
    whole = load()
    # The blizzard of February 8: nearly everything was cancelled.
    window = slice("2013-02-08T18:00Z", "2013-02-09T15:00Z")
    data = FlightData(
        whole.flights.set_index("event_time", drop=False).loc[window],
        whole.weather.set_index("event_time", drop=False).loc[window],
        whole.airlines,
        whole.planes,
    )
    delays, hours = run([data])
    worst = hours["EWR|2013-02-08T22:00Z"]
    assert (worst["flights"], worst["departed"], worst["cancelled"]) == (27, 0, 27)
    assert worst["mean_delay"] is None
    assert worst["max_delay"] is None
    cancelled = sum(row["cancelled"] for row in hours.values())
    assert sum(row["cancelled"] for row in delays.values()) == cancelled > 400


def test_it_has_a_sub_topology_for_each_key():
    description = build().describe()
    assert description.count("Sub-topology:") == 5
    for name in ("by-carrier", "by-tail-number", "by-airport-and-carrier", "by-weather-hour"):
        assert f"{name}-repartition" in description
