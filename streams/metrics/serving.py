"""The metrics of a process that serves stores: requests, refusals, and how old the copies are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class CopyFigures(NamedTuple):
    """A copy as metrics show it."""

    sub_topology: str
    task: int
    commit: int
    age_s: float
    fault: bool


class ServingMetrics:
    """See the module.

    Args:
        application_id: The application.
        copies: Gives the copies that are here.
    """

    def __init__(self, application_id: str, copies: Callable[[], Iterable[CopyFigures]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Copies(application_id, copies))
        self._seconds = Histogram(
            "streams_serve_request_seconds",
            "Time to answer a request, waiting for a position included.",
            ["app", "route"],
            buckets=_BOUNDS,
            registry=self._registry,
        )
        self._refused = Counter(
            "streams_serve_refused_total",
            "Requests that got no rows, by reason: the error's name, or the HTTP status.",
            ["app", "route", "reason"],
            registry=self._registry,
        )
        self._application_id = application_id
        self._routes: dict[str, Histogram] = {}

    def answered(self, route: str, seconds: float) -> None:
        """Counts a request that was answered."""
        found = self._routes.get(route)
        if found is None:
            found = self._routes[route] = self._seconds.labels(self._application_id, route)
        found.observe(seconds)

    def refused(self, route: str, reason: str) -> None:
        """Counts a request that got no rows."""
        self._refused.labels(self._application_id, route, reason).inc()

    def text(self) -> tuple[bytes, str]:
        """The metrics as Prometheus' text, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _Copies(Collector):
    def __init__(self, application_id: str, copies: Callable[[], Iterable[CopyFigures]]) -> None:
        self._application_id = application_id
        self._copies = copies

    def collect(self) -> Iterator[Metric]:
        """How old each copy is, and which commit it holds."""
        labels = ["app", "sub_topology", "task"]
        age = GaugeMetricFamily(
            "streams_serve_age_seconds",
            "How old the copy of a task is: since when a later commit may exist.",
            labels=labels,
        )
        commit = GaugeMetricFamily("streams_serve_commit", "The commit that the copy of a task holds.", labels=labels)
        fault = GaugeMetricFamily(
            "streams_serve_fault", "1: the copy of a task cannot follow now, and is tried again.", labels=labels
        )
        for copy in self._copies():
            values = [self._application_id, copy.sub_topology, str(copy.task)]
            age.add_metric(values, copy.age_s)
            commit.add_metric(values, copy.commit)
            fault.add_metric(values, float(copy.fault))
        return iter((age, commit, fault))
