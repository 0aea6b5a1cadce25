"""What the driver says when Spark's Java process has gone; a process that is really killed is in `test_processes`."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from streams.errors import ApplicationFailedError
from streams.spark.java import has_gone, needs_java


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a Java process would listen; and a process that was killed."""
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killed.kill()
    killed.wait()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address, port = listening.getsockname()
        gateway = SimpleNamespace(gateway_parameters=SimpleNamespace(address=address, port=port), proc=killed)
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        yield listening


def fails(error: Exception, stopping: bool = False) -> None:
    with needs_java(lambda: stopping):
        raise error


def test_an_error_while_it_is_there_is_that_error(java: socket.socket) -> None:
    with pytest.raises(ValueError, match="mine"):
        fails(ValueError("mine"))
    assert not has_gone()


def test_all_errors_after_its_end_are_one_sentence(java: socket.socket) -> None:
    java.close()
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(), AttributeError("x")):
        with pytest.raises(
            ApplicationFailedError, match=r"Spark's Java process has ended \(SIGKILL\)\. Nothing half-done"
        ):
            fails(error)
    assert has_gone()


def test_a_stop_that_ends_it_is_no_error(java: socket.socket) -> None:
    java.close()
    fails(Py4JNetworkError("Answer from Java side is empty"), stopping=True)


def test_before_it_has_started_it_has_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert not has_gone()
