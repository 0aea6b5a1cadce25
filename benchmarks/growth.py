"""Series of runs in which one thing grows, for the report's section on growth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.workloads.base import Workload
from benchmarks.workloads.catalogue import WORKLOADS

SIZE = "small"


@dataclass(frozen=True)
class Point:
    """One run of a series.

    Attributes:
        value: What grows.
        workload: The workload with that value.
        settings: Settings of the engine with that value.
    """

    value: float
    workload: Workload
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """A series.

    Attributes:
        title: What grows, in words.
        workload: The name of the workload.
        values: The values.
        point: Makes a run of a value.
    """

    title: str
    workload: str
    values: Sequence[float]
    point: Callable[[float], Point]


def points(series: str, most: float | None, least: float = 0.0) -> Iterator[Point]:
    """The runs of a series.

    Args:
        series: Its name.
        most: The largest value; None: all.
        least: The smallest value.
    """
    chosen = SERIES[series]
    for value in chosen.values:
        if value >= least and (most is None or value <= most):
            yield chosen.point(value)


def label_of(series: str, value: float) -> str:
    """The label of the result of one run of a series."""
    return f"growth-{series}-{value:g}"


_MICRO_BATCHES = {"execution": "micro-batch"}


def _keys(value: float) -> Point:
    keys = int(value)
    # At least three records for each key, so that most of them find a row.
    records = max(3_000_000, 3 * keys)
    return Point(value, WORKLOADS["counts"].varied(keys=keys, sizes={SIZE: records}))


def _skew(value: float) -> Point:
    return Point(value, WORKLOADS["counts"].varied(skew=value))


def _tasks(value: float) -> Point:
    return Point(value, WORKLOADS["counts"], {**_MICRO_BATCHES, "tasks": str(int(value))})


def _batch(value: float) -> Point:
    return Point(value, WORKLOADS["counts"], {**_MICRO_BATCHES, "max_records_per_trigger": str(int(value))})


def _state(value: float) -> Point:
    return Point(value, WORKLOADS["join-3d"].varied(sizes={SIZE: int(value)}))


def _window(value: float) -> Point:
    """More keys for longer windows, so that a record still has one match."""
    within = {"before_ms": int(value), "after_ms": int(value), "grace_ms": 2_000}
    return Point(value, WORKLOADS["join-inner"].varied(parameters=within, keys=max(int(100 * value), 1_000)))


SERIES: Mapping[str, Series] = {
    "keys": Series("keys of an aggregate", "counts", (1e3, 1e4, 1e5, 1e6, 1e7), _keys),
    "skew": Series("skew of the keys (exponent of a Zipf distribution)", "counts", (0.0, 0.5, 1.0, 1.5), _skew),
    "tasks": Series("tasks", "counts", (1, 2, 4, 8, 16, 32, 64), _tasks),
    "batch": Series("most records of a micro-batch", "counts", (2e4, 1e5, 5e5, 1e6, 2e6), _batch),
    "state": Series("records of a join within 3 days", "join-3d", (1.5e5, 5e5, 1.5e6, 5e6, 1.5e7), _state),
    "window": Series("length of a join's window, ms", "join-inner", (100, 1_000, 10_000, 60_000), _window),
}
