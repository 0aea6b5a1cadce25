"""The end of Spark's Java process, reported as one error.

Once the process has ended, every call to it fails differently, each with pages of output; one sentence is enough. Nothing is
lost: committed results are in Kafka, and nothing else is visible.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from streams.errors import ApplicationFailedError

_CLOSES_WITHIN_S = 5.0
"""How long a killed process may take to close its sockets, seconds: it closes them one by one, perhaps after a core dump."""
_POLL_S = 0.05


@contextmanager
def needs_java(stopping: Callable[[], bool]) -> Iterator[None]:
    """Turns every failure that is due to the end of Spark's Java process into one error.

    Raises:
        ApplicationFailedError: The Java process has ended.
    """
    try:
        yield
    except Exception as error:
        if not _did_not_start(error) and not has_gone(
            _CLOSES_WITHIN_S if stopping() or _is_of_the_network(error) else 0
        ):
            raise
        if stopping():
            return
        raise ApplicationFailedError(
            f"Spark's Java process has ended{_how()}. Nothing half-done is visible, and a start goes on where this one "
            f"stopped. If it comes again, it wants more memory (spark.driver.memory), or the machine does"
        ) from error


def report_end_once(context: SparkContext) -> None:
    """Prevents Spark's accumulator thread from reporting the end of the Java process by a stack trace of its own."""
    server = context._accumulatorServer
    original: Callable[[Any, Any], None] = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not has_gone(_CLOSES_WITHIN_S):
            original(request, address)

    server.handle_error = handle_error


def has_gone(within_s: float = 0) -> bool:
    """Whether the Java process has stopped listening on its port, or stops within the given seconds."""
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    parameters = gateway.gateway_parameters
    deadline = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((parameters.address, parameters.port), timeout=1).close()
        except OSError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def _did_not_start(error: BaseException) -> bool:
    return isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"


def _is_of_the_network(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _how() -> str:
    """The signal or exit code of the Java process, if it is our child (under spark-submit it is our parent)."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None if process is None else process.poll()
    if code is None:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"
