"""The startup output of Spark's Java process, without the lines that are of no use to the user.

Java's warning about an incubator module comes from the virtual machine itself, before any logging is set up, so no setting of
log4j can suppress it. So the process writes its standard error into a pipe, and everything is passed on except a few known
lines, none of which is an error. The setting `spark.log.level` (`streams run --verbose`) shows everything.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_STDERR = 2
_BLOCK = 64 * 1024
_CHATTER = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|Using Spark's default log4j profile: "
    rb"|Setting default log level to \""
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|\S+ \S+ WARN Utils: Your hostname, .* resolves to a loopback address"
    rb"|\S+ \S+ WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address"
    rb"|\S+ \S+ WARN NativeCodeLoader: Unable to load native-hadoop library"
)


def start_java_quietly(settings: Mapping[str, str]) -> None:
    """Starts Spark's Java process, unless one is running, and passes on its output without the startup chatter.

    Args:
        settings: Spark's settings; those of the process itself (memory, Java options) must be known before the start.
    """
    if SparkContext._gateway is not None or sys.platform == "win32":
        return
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    reading, writing = os.pipe()
    pump = threading.Thread(target=pass_on, args=(reading, _STDERR), name="java-output", daemon=True)
    pump.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})
    except BaseException:
        # The process has ended: its output should appear before the error about that.
        os.close(writing)
        pump.join(timeout=5)
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)


def pass_on(source: int, target: int) -> None:
    """Copies whole lines from one file descriptor to another until the first ends, except startup chatter."""
    rest = b""
    with os.fdopen(source, "rb", buffering=0) as printed:
        while block := printed.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            _write(target, lines)
    if rest:
        os.write(target, rest)


def _write(target: int, lines: list[bytes]) -> None:
    wanted = [line + b"\n" for line in lines if not _CHATTER.match(line)]
    if wanted:
        os.write(target, b"".join(wanted))
