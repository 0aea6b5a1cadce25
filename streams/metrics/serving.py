"""Serves an application's figures as its settings say: to Prometheus, by OpenTelemetry, both, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from streams.config import StreamsConfig
from streams.metrics.recorder import MetricsRecorder


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

    Args:
        config: The settings.
        recorder: The figures.
        say: Shows a message to the user.

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
