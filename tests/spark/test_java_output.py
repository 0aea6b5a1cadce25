"""What Spark's Java process prints is passed on, save the chatter of its start. (No Java runs here.)"""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from state import secrets
from streams.spark import java
from streams.spark.java import java_ahead, on_the_command_line, pass_on, started_ahead

CHATTER = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
    "26/11/22 09:22:02 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead",
    "26/11/22 09:22:02 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address",
    "26/11/22 09:22:04 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin",
]
TOLD = [
    "WARNING: Using incubator modules: jdk.incubator.concurrent",
    "26/11/22 09:22:04 ERROR SparkContext: Error initializing SparkContext.",
    "Error: Could not create the Java Virtual Machine.",
    "26/11/22 09:22:02 WARN Utils: Service 'SparkUI' could not bind on port 4040.",
]


def passed_on(*blocks: bytes) -> bytes:
    source, writing = os.pipe()
    reading, target = os.pipe()
    for block in blocks:
        os.write(writing, block)
    os.close(writing)
    pass_on(source, target)
    os.close(target)
    with os.fdopen(reading, "rb") as found:
        return found.read()


@pytest.mark.parametrize("line", CHATTER)
def test_chatter_is_left_out(line: str) -> None:
    assert passed_on(f"{line}\n".encode()) == b""


@pytest.mark.parametrize(
    "message", ["Your hostname, vm, resolves", "Set SPARK_LOCAL_IP if you", "Unable to load native-hadoop library"]
)
def test_chatter_is_left_out_of_the_structured_log_too(message: str) -> None:
    line = f'{{"ts":"2026-11-22T09:22:02Z","level":"WARN","msg":"{message}","logger":"Utils"}}'
    assert passed_on(f"{line}\n".encode()) == b""


def test_what_java_prints_has_no_secret() -> None:
    secrets.remember({"sasl.password": "canary"})
    assert passed_on(b"login with canary\nand canary") == b"login with ********\nand ********"


def test_the_command_line_of_java_has_no_secret() -> None:
    settings = {
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": "s",
        "spark.executorEnv.DB_PASSWORD": "s",
        "spark.sql.catalog.url": "jdbc://user:s@host/db",
    }
    assert on_the_command_line(settings) == {"spark.driver.memory": "1g"}


@pytest.mark.parametrize("line", TOLD)
def test_everything_else_is_passed_on(line: str) -> None:
    assert passed_on(f"{line}\n".encode()) == f"{line}\n".encode()


def test_what_comes_last_needs_no_end_of_line() -> None:
    assert passed_on(b"Fatal Python error: Segm", b"entation fault") == b"Fatal Python error: Segmentation fault"


class Gateway:
    """Stands for a Java process that was started."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.proc = SimpleNamespace(stdin=SimpleNamespace(close=self.ended.set))

    def shutdown(self) -> None:
        pass


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    started = Gateway()
    monkeypatch.setattr(java, "launch", lambda settings: started)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return started


def test_a_session_with_the_same_settings_gets_the_process_that_was_started_ahead(gateway: Gateway) -> None:
    with java_ahead({"spark.driver.memory": "1g"}):
        assert started_ahead({"spark.driver.memory": "1g"}) is gateway
        assert started_ahead({"spark.driver.memory": "1g"}) is None, "it serves one session"
    assert not gateway.ended.is_set()


def test_a_process_that_was_started_ahead_for_nobody_is_ended(gateway: Gateway) -> None:
    with java_ahead({"spark.driver.memory": "1g"}):
        assert started_ahead({"spark.driver.memory": "2g"}) is None
    assert gateway.ended.wait(60)


def test_a_failure_to_start_ahead_is_raised_where_the_process_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: object) -> None:
        raise OSError("no Java")

    monkeypatch.setattr(java, "launch", fail)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with java_ahead({}), pytest.raises(OSError, match="no Java"):
        started_ahead({})
