"""The causes of flight delays: departures joined with the weather of their hour, with airlines and with aircraft.

Input (see `topologies.flights_data`): the streams `flights` and `weather`, both keyed by the airport, so they
are joined without repartitioning; the tables `airlines` by carrier and `planes` by tail number. Timestamps are event time.

Results, as tables in which the last value of a key is valid:

* `delays-by-carrier`: delays and cancellations per airport, carrier and day (UTC), by `origin|carrier|day`;
* `worst-weather-hours`: the same per airport and hour of weather, with that weather, by `origin|hour`.

A flight is joined with the last observation of the hour before its departure. Observations are hourly, so there is one; a
flight in an hour without an observation is left out. A cancelled flight has no departure and no delay: it is joined at its
scheduled time, counts as a flight and as cancelled, but not in any delay. Flights whose aircraft is missing in `planes` (a
sixth of them) are included, but not counted in `known_planes`.

Each new key after the first join crosses a repartition topic, so there are five sub-topologies: by airport, by
carrier, by tail number, by airport and carrier, by airport and hour.

    spark-submit topologies/flight_delays.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Final

from streams import (
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    agg,
)

DELAYS_BY_CARRIER: Final = "delays-by-carrier"
WORST_WEATHER_HOURS: Final = "worst-weather-hours"

# From a millisecond less than an hour before the departure up to it: exactly one observation of an hourly series.
SAME_HOUR: Final = (
    JoinWindows.of_time_difference_and_grace(timedelta(hours=1), grace=timedelta(days=1))
    .before(timedelta(hours=1) - timedelta(milliseconds=1))
    .after(0)
)

# A backlog is read in large batches, and a repartition topic contains the writers' batches one after the other:
# records there may be as late as a batch is long in event time. This backlog is a year long.
BACKLOG: Final = timedelta(days=366)

NO_TAIL_NUMBER: Final = "unknown"

Value = dict[str, Any]


def build() -> Topology:
    """Delays of the flights from New York in 2013: per airport and carrier, and per airport and hour of weather."""
    builder = StreamsBuilder()
    weather = builder.stream("weather")
    airlines = builder.table("airlines")
    planes = builder.table("planes")

    flights = builder.stream("flights").map_values(with_cancellation)
    observed = flights.join(weather, with_weather, SAME_HOUR, StreamJoined(name="weather-of-the-hour"))
    described = (
        observed.select_key(lambda flight: flight["carrier"])
        .join(airlines, with_airline, joined=Joined(name="by-carrier"))
        .select_key(lambda flight: flight["tailnum"] or NO_TAIL_NUMBER)
        .left_join(planes, with_plane, Joined(name="by-tail-number"))
    )
    write_delays_by_carrier(described)
    write_weather_hours(observed)
    return builder.build()


def write_delays_by_carrier(flights: KStream) -> None:
    """Statistics per airport, carrier and day."""
    days = TimeWindows.of_size_and_grace(timedelta(days=1), grace=BACKLOG)
    grouped = flights.group_by(
        lambda flight: f"{flight['origin']}|{flight['carrier']}", Grouped(name="by-airport-and-carrier")
    )
    grouped.windowed_by(days).aggregate(
        flights=agg.count(),
        departed=agg.count("dep_delay"),
        cancelled=agg.sum("cancelled"),
        mean_delay=agg.mean("dep_delay"),
        min_delay=agg.min("dep_delay"),
        max_delay=agg.max("dep_delay"),
        airline=agg.last("airline"),
        known_planes=agg.count("manufacturer"),
        seats=agg.sum("seats"),
        mean_wind_speed=agg.mean("wind_speed"),
        materialized=Materialized(name=DELAYS_BY_CARRIER),
    ).to_stream().map(by_day).to(DELAYS_BY_CARRIER)


def write_weather_hours(flights: KStream) -> None:
    """Statistics per airport and hour of weather."""
    grouped = flights.group_by(lambda flight: f"{flight['origin']}|{flight['hour']}", Grouped(name="by-weather-hour"))
    grouped.aggregate(
        flights=agg.count(),
        departed=agg.count("dep_delay"),
        cancelled=agg.sum("cancelled"),
        mean_delay=agg.mean("dep_delay"),
        min_delay=agg.min("dep_delay"),
        max_delay=agg.max("dep_delay"),
        temp=agg.last("temp"),
        wind_speed=agg.last("wind_speed"),
        precip=agg.last("precip"),
        visib=agg.last("visib"),
        materialized=Materialized(name=WORST_WEATHER_HOURS),
    ).to_stream().map_values(with_hour).to(WORST_WEATHER_HOURS)


def with_cancellation(flight: Value) -> Value:
    """A flight with the field `cancelled`; a cancelled flight has no delay."""
    return {**flight, "cancelled": int(flight["dep_delay"] is None)}


def with_weather(flight: Value, weather: Value) -> Value:
    """A flight with its weather; `hour` is the time of the observation."""
    return {**flight, **{name: weather[name] for name in ("hour", "temp", "wind_speed", "precip", "visib")}}


def with_airline(flight: Value, airline: Value) -> Value:
    """A flight with its airline's full name."""
    return {**flight, "airline": airline["name"]}


def with_plane(flight: Value, plane: Value | None) -> Value:
    """A flight with its aircraft, if known."""
    known = plane or {}
    return {**flight, "manufacturer": known.get("manufacturer"), "seats": known.get("seats")}


def by_day(key: Windowed, statistics: Value) -> tuple[str, Value]:
    """A key and value that are readable without knowing the window's encoding."""
    day = datetime.fromtimestamp(key.window.start / 1000, timezone.utc).date().isoformat()
    origin, carrier = key.key.split("|")
    return f"{key.key}|{day}", {"origin": origin, "carrier": carrier, "day": day, **statistics}


def with_hour(key: str, statistics: Value) -> Value:
    """The value with the parts of its key as fields."""
    origin, hour = key.split("|")
    return {"origin": origin, "hour": hour, **statistics}


def main() -> None:
    """Runs the topology under spark-submit."""
    from streams.cli.run import run_main

    run_main(build, "flight-delays")


if __name__ == "__main__":
    main()
