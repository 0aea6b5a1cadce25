"""An application's figures by OpenTelemetry (OTLP over HTTP), for those who have installed the extra `otel`.

The endpoint, its headers and the interval are those of OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_METRIC_EXPORT_INTERVAL`, …). Names and labels are those of the catalogue; counters and gauges
are observed when the export is due, histograms are recorded with each micro-batch, because OpenTelemetry has no observed ones.
An export that fails is logged by OpenTelemetry and holds up nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streams.errors import ConfigError
from streams.metrics.application import WHOLE_STEP
from streams.metrics.catalogue import METRICS, Metric
from streams.metrics.figures import MicroBatchFigures
from streams.metrics.histogram import BOUNDS, Histogram
from streams.metrics.recorder import MetricsRecorder

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

_END_MS = 5_000
"""How long the last export may take when the application ends."""


def check_installed() -> None:
    """Finds out early whether OpenTelemetry is there.

    Raises:
        ConfigError: It is not.
    """
    try:
        found = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        found = None
    if not found:
        raise ConfigError(
            "the setting otel (--otel) needs OpenTelemetry, which is not installed: pip install 'streams-on-spark[otel]'"
        )


class OtelExport:
    """Exports the figures of an application within a `with` block.

    Args:
        recorder: The figures.
        reader: Where they go; default: OTLP over HTTP.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, recorder: MetricsRecorder, reader: MetricReader | None = None) -> None:
        check_installed()
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({"service.name": recorder.application_id})
        self._recorder = recorder
        self._provider = MeterProvider([reader or _otlp()], resource)
        self._meter = self._provider.get_meter("streams")
        for metric in METRICS:
            self._add(metric)

    def __enter__(self) -> OtelExport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._provider.shutdown(_END_MS)

    def _add(self, metric: Metric) -> None:
        if metric.kind == "histogram":
            self._record_durations(metric)
        elif metric.kind == "counter":
            self._meter.create_observable_counter(metric.name, [self._observed(metric)], description=metric.help)
        else:
            self._meter.create_observable_gauge(metric.name, [self._observed(metric)], description=metric.help)

    def _observed(self, metric: Metric) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def observe(_: Any) -> Iterable[Any]:
            for values, found in metric.series(self._recorder.measured()):
                assert not isinstance(found, Histogram)
                yield Observation(found, dict(zip(("app", *metric.labels), values, strict=True)))

        return observe

    def _record_durations(self, metric: Metric) -> None:
        durations = self._meter.create_histogram(
            metric.name, "s", metric.help, explicit_bucket_boundaries_advisory=list(BOUNDS)
        )

        def record(batch: MicroBatchFigures) -> None:
            common = {"app": batch.application_id, "sub_topology": batch.sub_topology}
            for step in batch.steps:
                for part, seconds in (*step.seconds.items(), (WHOLE_STEP, step.total_s)):
                    durations.record(seconds, {**common, "task": str(step.task), "part": part})

        self._recorder.listen(record)


def _otlp() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())
