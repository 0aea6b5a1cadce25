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
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from state.secrets import mask_line, redact
from streams.broker.java import find_java

_STDERR = 2
_BLOCK = 64 * 1024
_CHATTER = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|Using Spark's default log4j profile: "
    rb"|Setting default log level to \""
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|\S+ \S+ WARN Utils: Your hostname, .* resolves to a loopback address"
    rb"|\S+ \S+ WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address"
    rb"|\S+ \S+ WARN SparkConf: Note that spark\.local\.dir will be overridden by the value set by the cluster manager"
    rb"|\S+ \S+ WARN NativeCodeLoader: Unable to load native-hadoop library"
    rb'|\{.*"msg":"(?:Your hostname, |Set SPARK_LOCAL_IP if |Unable to load native-hadoop library)'
)


def start_java_quietly(settings: Mapping[str, str]) -> None:
    """Starts Spark's Java process, unless one is running, and passes on its output without the startup chatter."""
    if SparkContext._gateway is not None or sys.platform == "win32":
        return
    SparkContext._ensure_initialized(gateway=started_ahead(settings) or launch(settings))


@cache
def check_java() -> None:
    """Looks for a Java that can run Spark, unless that is running; Spark itself would only print pages.

    Raises:
        JavaError: Java is missing, does not run, or is too old.
    """
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        find_java()


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Starts the process, with its output filtered, and waits until it can be called."""
    check_java()
    conf = SparkConf()
    for key, value in on_the_command_line(settings).items():
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
    return gateway


def on_the_command_line(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that the process is started with: its command line, which every user of the host can read, has no secrets.

    Those reach Spark's context with the other settings of the session, once the process runs.
    """
    return {key: value for key, value in settings.items() if redact({key: value})[key] == value}


class _Ahead:
    """A Java process that is started in the background: for one session with the same settings, or for nobody."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.taken = False
        self.gateway: Future[JavaGateway] = Future()
        threading.Thread(target=self._launch, name="start-java", daemon=True).start()

    def _launch(self) -> None:
        try:
            self.gateway.set_result(launch(self.settings))
        except BaseException as error:
            self.gateway.set_exception(error)

    def end_unless_taken(self) -> None:
        """Ends the process, at once or as soon as it has started, unless a session uses it."""
        if not self.taken:
            self.gateway.add_done_callback(_end)


def _end(started: Future[JavaGateway]) -> None:
    if started.exception() is None:
        gateway = started.result()
        gateway.shutdown()
        # Spark's process ends with its standard input.
        gateway.proc.stdin.close()


_ahead: list[_Ahead] = []
"""The process that `java_ahead` has started, if any."""


@contextmanager
def java_ahead(settings: Mapping[str, str]) -> Iterator[None]:
    """Starts Java in the background for a session that starts within the context, which has the same settings.

    Java takes about as long to start as Python to import the program and to look up its topics.
    """
    if SparkContext._gateway is not None or sys.platform == "win32":
        yield
        return
    ahead = _Ahead(settings)
    _ahead.append(ahead)
    try:
        yield
    finally:
        _ahead.remove(ahead)
        ahead.end_unless_taken()


def started_ahead(settings: Mapping[str, str]) -> JavaGateway | None:
    """The process that was started ahead with these settings, once it can be called; None: there is none."""
    for ahead in _ahead:
        if ahead.settings == settings and not ahead.taken:
            ahead.taken = True
            return ahead.gateway.result()
    return None


def pass_on(source: int, target: int) -> None:
    """Copies whole lines from one file descriptor to another until the first ends, except startup chatter."""
    rest = b""
    with os.fdopen(source, "rb", buffering=0) as printed:
        while block := printed.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            _write(target, lines)
    if rest:
        os.write(target, mask_line(rest))


def _write(target: int, lines: list[bytes]) -> None:
    wanted = [mask_line(line) + b"\n" for line in lines if not _CHATTER.match(line)]
    if wanted:
        os.write(target, b"".join(wanted))
