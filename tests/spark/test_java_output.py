"""What Spark's Java process prints is passed on, save the chatter of its start. (No Java runs here.)"""

from __future__ import annotations

import os

import pytest

from streams.spark.jvm.java_output import pass_on

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


@pytest.mark.parametrize("line", TOLD)
def test_everything_else_is_passed_on(line: str) -> None:
    assert passed_on(f"{line}\n".encode()) == f"{line}\n".encode()


def test_what_comes_last_needs_no_end_of_line() -> None:
    assert passed_on(b"Fatal Python error: Segm", b"entation fault") == b"Fatal Python error: Segmentation fault"
