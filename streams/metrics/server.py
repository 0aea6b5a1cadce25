"""Metrics over HTTP for Prometheus: the text format, the server, and the application that it serves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import isinf
from types import TracebackType
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
from streams.metrics.application import ApplicationMetrics, Readiness
from streams.metrics.catalogue import METRICS, Metric
from streams.metrics.histogram import Histogram
from streams.metrics.recorder import MetricsRecorder

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# --- An application's figures as Prometheus metrics: a collector that reads them whenever Prometheus asks.


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


# --- The HTTP server of an application's figures: `/metrics` for Prometheus, `/health` and `/ready` for whoever starts programs.
#
# The server answers from threads of its own and reads what the driver has anyway, so a slow client holds up nothing.

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


class MetricsServer:
    """Serves the figures of an application within a `with` block.

    Args:
        address: Where.
        recorder: The figures.

    Raises:
        ConfigError: It cannot listen there.
    """

    def __init__(self, address: Address, recorder: MetricsRecorder) -> None:
        self._recorder = recorder
        registry = CollectorRegistry()
        registry.register(StreamsCollector(recorder.measured))
        self._prometheus = make_wsgi_app(registry)
        self._server = _listening(address, self._answer)
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/").rstrip("/")
        if path == "/metrics":
            answer: Iterable[bytes] = self._prometheus(environ, start)
            return answer
        if path in ("/health", "/ready"):
            found = self._recorder.readiness()
            fine = found.alive if path == "/health" else found.ready
            return _say(start, "200 OK" if fine else "503 Service Unavailable", _sentence(path, found))
        status = "200 OK" if not path else "404 Not Found"
        return _say(start, status, "/metrics: Prometheus' text; /health: does it live?; /ready: does it work?")


def check_free(address: Address) -> None:
    """Finds out early whether a server can listen at an address.

    Raises:
        ConfigError: It cannot.
    """
    _listening(address, _nothing).server_close()


def _sentence(path: str, found: Readiness) -> str:
    return "alive" if path == "/health" and found.alive else found.why


def _say(start: StartResponse, status: str, text: str) -> list[bytes]:
    # A list of its own, because the server adds the length to it.
    start(status, [_TEXT])
    return [text.encode() + b"\n"]


def _nothing(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
    return _say(start, "404 Not Found", "")


class _Handler(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _listening(address: Address, answer: Callable[..., Iterable[bytes]]) -> WSGIServer:
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_ServerOfFamily", (ThreadingWSGIServer,), {"address_family": family, "daemon_threads": True})
        return make_server(address.host, address.port, answer, kind, _Handler)
    except OSError as error:
        raise ConfigError(
            f"metrics cannot be served at {address}: {error.strerror or error}. Choose another address for the setting metrics "
            f"(--metrics HOST:PORT); port 0 takes a free one"
        ) from error


# --- Serves an application's figures as its settings say: to Prometheus, by OpenTelemetry, both, or not at all.


def check_serving(config: StreamsConfig) -> None:
    """Finds out early, before anything else is started, whether the figures can be served.

    Raises:
        ConfigError: The address is taken, or OpenTelemetry is not installed.
    """
    if config.metrics_address is not None and config.metrics_address.port:
        from streams.metrics.server import check_free

        check_free(config.metrics_address)
    if config.otel:
        from streams.metrics.otel import check_installed

        check_installed()


@contextmanager
def serving(config: StreamsConfig, recorder: MetricsRecorder, say: Callable[[str], None]) -> Iterator[None]:
    """Serves the figures within the block.

    Raises:
        ConfigError: The address is taken, or OpenTelemetry is not installed.
    """
    with ExitStack() as stack:
        # Imported only where they are wanted, because both take time to import.
        if config.metrics_address is not None:
            from streams.metrics.server import MetricsServer

            server = stack.enter_context(MetricsServer(config.metrics_address, recorder))
            say(f"metrics: http://{server.address}/metrics, /health and /ready")
        if config.otel:
            from streams.metrics.otel import OtelExport

            stack.enter_context(OtelExport(recorder))
        yield
