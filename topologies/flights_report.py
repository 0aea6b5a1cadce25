"""The results of `flight_delays` as tables for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich.table import Table

Row = dict[str, Any]

FEWEST_FLIGHTS = 10
"""The fewest flights of a reported hour: with fewer, the mean may be due to a single flight."""


def worst_weather_hours(rows: Iterable[Row], shown: int = 8) -> Table:
    """The hours with the longest mean delays."""
    busy = [row for row in rows if row["departed"] >= FEWEST_FLIGHTS]
    worst = sorted(busy, key=lambda row: -row["mean_delay"])[:shown]
    return _hours(f"Worst weather hours: longest mean delay of at least {FEWEST_FLIGHTS} departures", worst)


def most_cancelled_hours(rows: Iterable[Row], shown: int = 5) -> Table:
    """The hours with the most cancelled flights."""
    worst = sorted(rows, key=lambda row: (-row["cancelled"], row["hour"], row["origin"]))[:shown]
    return _hours("Most cancelled flights in an hour", worst)


def carriers_by_delay(rows: Iterable[Row], shown: int = 16) -> Table:
    """The totals of each carrier over all days, the longest mean delay first."""
    days: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        days[row["airline"]].append(row)
    totals = [_total(airline, of) for airline, of in days.items()]
    table = _table(
        "Carriers by delay", ("airline", "flights", "cancelled", "mean delay min", "longest min", "worst day")
    )
    for row in sorted(totals, key=lambda total: -total["mean_delay"])[:shown]:
        table.add_row(
            row["airline"],
            f"{row['flights']:,}",
            f"{row['cancelled'] / row['flights']:.1%}",
            f"{row['mean_delay']:.1f}",
            f"{row['max_delay']:.0f}",
            f"{row['worst']['origin']} {row['worst']['day']}: {row['worst']['mean_delay']:.0f} min",
        )
    return table


def _total(airline: str, days: list[Row]) -> Row:
    flown = [day for day in days if day["departed"]]
    departed = sum(day["departed"] for day in flown)
    return {
        "airline": airline,
        "flights": sum(day["flights"] for day in days),
        "cancelled": sum(day["cancelled"] for day in days),
        "mean_delay": sum(day["mean_delay"] * day["departed"] for day in flown) / max(departed, 1),
        "max_delay": max((day["max_delay"] for day in flown), default=0),
        "worst": max(flown or days, key=lambda day: day["mean_delay"] or 0.0),
    }


def _hours(title: str, rows: list[Row]) -> Table:
    headings = ("airport", "hour UTC", "flights", "cancelled", "mean delay min", "wind mph", "rain in", "visibility mi")
    table = _table(title, headings, text=2)
    for row in rows:
        numbers = (row["mean_delay"], row["wind_speed"], row["precip"], row["visib"])
        table.add_row(
            row["origin"],
            row["hour"],
            str(row["flights"]),
            str(row["cancelled"]),
            *(
                "-" if number is None else f"{number:.{places}f}"
                for number, places in zip(numbers, (1, 1, 2, 1), strict=True)
            ),
        )
    return table


def _table(title: str, headings: tuple[str, ...], text: int = 1) -> Table:
    table = Table(title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < text else "right")
    return table
