"""An application's figures as Prometheus metrics: a collector that reads them whenever Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isinf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streams.metrics.application import ApplicationMetrics
from streams.metrics.catalogue import METRICS, Metric
from streams.metrics.histogram import Histogram


class StreamsCollector(Collector):
    """The metrics of one application.

    Args:
        read: Gives the figures now.
    """

    def __init__(self, read: Callable[[], ApplicationMetrics]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        """All metrics, those without any series included."""
        app = self._read()
        for metric in METRICS:
            yield _family(metric, app)


def _family(metric: Metric, app: ApplicationMetrics) -> Family:
    labels = ("app", *metric.labels)
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for values, found in metric.series(app):
            assert isinstance(found, Histogram)
            buckets = [("+Inf" if isinf(bound) else str(bound), float(count)) for bound, count in found.cumulative()]
            histograms.add_metric(values, buckets, found.sum_s)
        return histograms
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=labels)
    for values, found in metric.series(app):
        assert not isinstance(found, Histogram)
        family.add_metric(values, found)
    return family
