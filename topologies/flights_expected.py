"""The results of `flight_delays` recomputed by plain pandas, without any code of the engine.

A flight is joined with the last weather observed at its airport within the hour before departure; observations are hourly
and on the hour, so that is the one at the flight's time rounded down to the hour. Flights in hours without an observation
(some 1,600, most of them on the last day of the year, which has none) are left out.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from topologies.flights_data import FlightData, iso_minutes

Table = dict[str, dict[str, Any]]


def expected_delays_by_carrier(data: FlightData) -> Table:
    """The expected contents of the topic `delays-by-carrier`, by `origin|carrier|day`."""
    flights = _observed(data)
    flights = flights.merge(data.airlines, on="carrier").merge(
        data.planes, on="tailnum", how="left", suffixes=("", "_built")
    )
    flights["day"] = flights["event_time"].dt.floor("D")
    grouped = flights.groupby(["origin", "carrier", "day"])
    result = _delays(grouped).assign(
        airline=grouped["name"].last(),
        known_planes=grouped["manufacturer"].count(),
        seats=grouped["seats"].sum(min_count=1),
        mean_wind_speed=grouped["wind_speed"].mean(),
    )
    rows = result.reset_index()
    return _table(rows.assign(day=rows["day"].dt.strftime("%Y-%m-%d")), ("origin", "carrier", "day"))


def expected_weather_hours(data: FlightData) -> Table:
    """The expected contents of the topic `worst-weather-hours`, by `origin|hour`."""
    grouped = _observed(data).groupby(["origin", "observed"])
    conditions = grouped[["temp", "wind_speed", "precip", "visib"]].last()
    rows = _delays(grouped).join(conditions).reset_index().rename(columns={"observed": "hour"})
    return _table(rows.assign(hour=iso_minutes(rows["hour"])), ("origin", "hour"))


def expected_daily_delays(data: FlightData) -> Table:
    """The expected rows of the lake's table `daily_delays` (`topologies.flights_lake`), by `origin|carrier|day`."""
    grouped = data.flights.assign(day=data.flights["event_time"].dt.floor("D")).groupby(["origin", "carrier", "day"])
    rows = _delays(grouped).reset_index()
    return _table(rows.assign(day=rows["day"].dt.strftime("%Y-%m-%d")), ("origin", "carrier", "day"))


def _observed(data: FlightData) -> pd.DataFrame:
    """Each flight with the weather of its hour."""
    flights = data.flights.assign(observed=data.flights["event_time"].dt.floor("h"))
    weather = data.weather[["origin", "event_time", "temp", "wind_speed", "precip", "visib"]]
    observed: pd.DataFrame = flights.merge(
        weather.rename(columns={"event_time": "observed"}), on=["origin", "observed"]
    )
    return observed


def _delays(grouped: Any) -> pd.DataFrame:
    result: pd.DataFrame = grouped.agg(
        flights=("origin", "size"),
        departed=("dep_delay", "count"),
        mean_delay=("dep_delay", "mean"),
        min_delay=("dep_delay", "min"),
        max_delay=("dep_delay", "max"),
    )
    result.insert(2, "cancelled", result["flights"] - result["departed"])
    return result


def _table(rows: pd.DataFrame, key: tuple[str, ...]) -> Table:
    cells = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return {"|".join(row[name] for name in key): row for row in cells}
