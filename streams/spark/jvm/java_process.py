"""Spark's Java process as the driver sees it: when it has gone, every call to it fails in a way of its own, in pages.

All that is to be said then is one sentence. Nothing is lost: what was committed is in Kafka, and nothing else is visible.
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

from streams.errors import ApplicationFailedError

_CLOSES_WITHIN_S = 5.0
"""A process that is killed closes its sockets one after the other, and may write a dump of its memory before."""
_POLL_S = 0.05


@contextmanager
def needs_java(stopping: Callable[[], bool]) -> Iterator[None]:
    """Makes one error of whatever fails because Spark's Java process has gone.

    Args:
        stopping: Whether that is what is wanted: Ctrl-C ends spark-submit, which is the Java process, too.

    Raises:
        ApplicationFailedError: It has.
    """
    try:
        yield
    except Exception as error:
        if not has_gone(_CLOSES_WITHIN_S if _is_of_the_network(error) else 0):
            raise
        if stopping():
            return
        raise ApplicationFailedError(
            f"Spark's Java process has ended{_how()}. Nothing half-done is visible, and a start goes on where this one "
            f"stopped. If it comes again, it wants more memory (spark.driver.memory), or the machine does"
        ) from error


def tell_its_end_once(context: SparkContext) -> None:
    """Keeps the thread that takes Spark's accumulators from telling the end of the Java process by a stack trace of its own."""
    server = context._accumulatorServer
    told: Callable[[Any, Any], None] = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not has_gone(_CLOSES_WITHIN_S):
            told(request, address)

    server.handle_error = handle_error


def has_gone(within_s: float = 0) -> bool:
    """Whether nobody listens any more where the Java process did, or nobody does before that time is over, s."""
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


def _is_of_the_network(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _how() -> str:
    """The signal that has ended it, where it is a child of ours (under spark-submit it is our parent)."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None if process is None else process.poll()
    if code is None:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"
