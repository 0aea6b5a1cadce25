"""The export of metrics: over HTTP for Prometheus, by OpenTelemetry, both, or not at all, by the settings."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from math import isinf
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streams.config import StreamsConfig
from streams.config.settings import Address
from streams.errors import ConfigError
from streams.metrics.application import (
    BOUNDS,
    WHOLE_STEP,
    ApplicationMetrics,
    Histogram,
    MicroBatchFigures,
    Readiness,
)
from streams.metrics.catalogue import METRICS, Metric
from streams.metrics.recorder import MetricsRecorder

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from opentelemetry.sdk.metrics.export import MetricReader


class StreamsCollector(Collector):
    """The metrics of one application, read whenever Prometheus asks."""

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


_TEXT = ("Content-Type", "text/plain; charset=utf-8")


@contextmanager
def collector_served(
    collector: Collector, address: Address, readiness: Callable[[], Readiness] | None = None
) -> Iterator[Address]:
    """Serves a collector's metrics for Prometheus within the block, and yields the address.

    The server answers in threads, so a slow client does not hold up others.

    Args:
        collector: The metrics.
        address: The address to listen at.
        readiness: The answers of `/health` and `/ready` for an orchestrator; None: every path has the metrics.

    Raises:
        ConfigError: It cannot listen at the address.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    prometheus = make_wsgi_app(registry)
    server = _listening(address, prometheus if readiness is None else partial(_answer, prometheus, readiness))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def _answer(
    prometheus: Callable[..., Any], readiness: Callable[[], Readiness], environ: WSGIEnvironment, start: StartResponse
) -> Iterable[bytes]:
    path = environ.get("PATH_INFO", "/").rstrip("/")
    if path == "/metrics":
        answer: Iterable[bytes] = prometheus(environ, start)
        return answer
    found = readiness()
    if path == "/health":
        return _say(start, _status(found.alive), "alive" if found.alive else found.why)
    if path == "/ready":
        return _say(start, _status(found.ready), found.why)
    status = "200 OK" if not path else "404 Not Found"
    return _say(start, status, "/metrics: Prometheus' text; /health: does it live?; /ready: does it work?")


def metrics_served(recorder: MetricsRecorder, address: Address) -> AbstractContextManager[Address]:
    """Serves the metrics of an application, in the way of `collector_served`."""
    return collector_served(StreamsCollector(recorder.measured), address, recorder.readiness)


def check_free(address: Address) -> None:
    """Checks early whether a server can listen at an address.

    Raises:
        ConfigError: It cannot listen there.
    """
    _listening(address, lambda environ, start: _say(start, "404 Not Found", "")).server_close()


def _status(fine: bool) -> str:
    return "200 OK" if fine else "503 Service Unavailable"


def _say(start: StartResponse, status: str, text: str) -> list[bytes]:
    # A list of its own, because the server adds the length to it.
    start(status, [_TEXT])
    return [text.encode() + b"\n"]


log = logging.getLogger(__name__)
_REQUEST_S = 10.0
"""How long a client may take to send its request, and then to read each part of the answer."""
_MOST_CLIENTS = 32


class _Handler(WSGIRequestHandler):
    """Logs no requests, and waits only a limited time for one."""

    timeout = _REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _FewThreads(ThreadingWSGIServer):
    """If many clients are connected, the oldest connection is closed, because a silent client must not cost the driver a thread."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers a request in a thread of its own."""
        with self._lock:
            if len(self._open) >= _MOST_CLIENTS:
                first = next(iter(self._open))
                del self._open[first]
                with suppress(OSError):
                    first.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client went away, or has sent nothing in time, which is not worth a stack trace."""
        log.debug("a request for metrics has failed", exc_info=True)


def _listening(address: Address, answer: Callable[..., Iterable[bytes]]) -> WSGIServer:
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_ServerOfFamily", (_FewThreads,), {"address_family": family, "daemon_threads": True})
        return make_server(address.host, address.port, answer, kind, _Handler)
    except OSError as error:
        raise ConfigError(
            f"metrics cannot be served at {address}: {error.strerror or error}. Choose another address for the setting metrics "
            f"(--metrics HOST:PORT); port 0 takes a free one"
        ) from error


_END_MS = 5_000
"""How long the last export may take when the application ends."""


def check_installed() -> None:
    """Checks early whether OpenTelemetry is installed."""
    try:
        found = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        found = None
    if not found:
        raise ConfigError(
            "the setting otel (--otel) needs OpenTelemetry, which is not installed: pip install 'streams-on-spark[otel]'"
        )


class OtelExport:
    """Exports the metrics of an application by OTLP over HTTP within a `with` block; needs the extra `otel`.

    The endpoint, its headers and the interval are those of OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`,
    `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_METRIC_EXPORT_INTERVAL`, …). Names and labels are those of the catalogue; counters and
    gauges are observed when the export is due, histograms are recorded with each micro-batch, because OpenTelemetry has no observed
    ones. An export that fails is logged by OpenTelemetry and holds up nothing.

    Args:
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

    def __exit__(self, *_: object) -> None:
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


def check_serving(config: StreamsConfig) -> None:
    """Checks early, before anything else is started, whether the metrics can be served.

    Raises:
        ConfigError: The address is taken, or OpenTelemetry is not installed.
    """
    if config.metrics_address is not None and config.metrics_address.port:
        check_free(config.metrics_address)
    if config.otel:
        check_installed()


@contextmanager
def serving(config: StreamsConfig, recorder: MetricsRecorder, say: Callable[[str], None]) -> Iterator[None]:
    """Serves the metrics within the block.

    Raises:
        ConfigError: The address is taken, or OpenTelemetry is not installed.
    """
    with ExitStack() as stack:
        if config.metrics_address is not None:
            address = stack.enter_context(metrics_served(recorder, config.metrics_address))
            say(f"metrics: http://{address}/metrics, /health and /ready")
        if config.otel:
            stack.enter_context(OtelExport(recorder))
        yield
