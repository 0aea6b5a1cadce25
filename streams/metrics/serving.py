"""The metrics of a process that keeps copies of stores: how far the copies are, and, if it serves them, the requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


_SERVED = (
    ("streams_serve_age_seconds", "How old the copy of a task is: since when a later commit may exist."),
    ("streams_serve_commit", "The commit that the copy of a task holds."),
    ("streams_serve_fault", "1: the copy of a task cannot follow now, and is tried again."),
)
_REPLICA = (
    (
        "streams_replica_behind_offsets",
        "Offsets that a task's changelogs have gained since its copy was brought forward.",
    ),
    ("streams_replica_commit", "The commit that the copy of a task holds."),
    ("streams_replica_fault", "1: the copy of a task cannot follow now, and is tried again."),
)


class CopyFigures(NamedTuple):
    """The values of the gauges for one copy, in their order; None: not known yet."""

    sub_topology: str
    task: int
    values: Sequence[float | None]


class ServingMetrics:
    """The metrics of a process that serves copies of stores.

    Args:
        copies: Returns the copies in this process.
    """

    def __init__(self, application_id: str, copies: Callable[[], Iterable[CopyFigures]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Copies(application_id, _SERVED, copies))
        self._times = _Times(application_id)
        self._registry.register(self._times)
        self._refused = Counter(
            "streams_serve_refused_total",
            "Requests that got no rows, by reason: the error's name, or the HTTP status.",
            ["app", "route", "reason"],
            registry=self._registry,
        )
        self._application_id = application_id
        self.answered = self._times.add

    def refused(self, route: str, reason: str) -> None:
        """Counts a request that was answered without rows."""
        self._refused.labels(self._application_id, route, reason).inc()

    def text(self) -> tuple[bytes, str]:
        """The metrics in Prometheus' text format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _Times(Collector):
    """Counts answered requests by route and time, without locks, in the event loop alone. A `Histogram` took a tenth of a read."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._routes: dict[str, list[float]] = {}
        """Route -> the requests of each bucket, then of none, then the seconds of all."""

    def add(self, route: str, seconds: float) -> None:
        """Counts a request that was answered."""
        found = self._routes.get(route)
        if found is None:
            found = self._routes[route] = [0] * (len(_BOUNDS) + 1) + [0.0]
        found[bisect_left(_BOUNDS, seconds)] += 1
        found[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """The histogram of the time to answer, by route."""
        family = HistogramMetricFamily(
            "streams_serve_request_seconds",
            "Time to answer a request, waiting for a position included.",
            labels=["app", "route"],
        )
        bounds = [str(bound) for bound in _BOUNDS] + ["+Inf"]
        for route, (*counts, seconds) in list(self._routes.items()):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([self._application_id, route], buckets, seconds)
        return iter((family,))


class _Copies(Collector):
    def __init__(
        self, application_id: str, gauges: Sequence[tuple[str, str]], copies: Callable[[], Iterable[CopyFigures]]
    ) -> None:
        self._application_id = application_id
        self._gauges = gauges
        self._copies = copies

    def collect(self) -> Iterator[Metric]:
        """Each gauge, with a series for each copy."""
        labels = ["app", "sub_topology", "task"]
        families = [GaugeMetricFamily(name, text, labels=labels) for name, text in self._gauges]
        for copy in self._copies():
            for family, value in zip(families, copy.values, strict=True):
                if value is not None:
                    family.add_metric([self._application_id, copy.sub_topology, str(copy.task)], value)
        return iter(families)


def replica_metrics(application_id: str, copies: Callable[[], Iterable[CopyFigures]]) -> Collector:
    """The metrics of `streams replica`. For each copy: how many offsets it is behind, its commit, and 1 if it has a fault."""
    return _Copies(application_id, _REPLICA, copies)
