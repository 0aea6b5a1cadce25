"""The Java process that runs Spark: its start, its output, its local files, its planning processes and its end."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyspark.java_gateway
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from state.secrets import mask_line, redact
from streams.broker.jars import find_java
from streams.driver.launch.java_process import JavaProcess, java_process
from streams.errors import ApplicationFailedError

log = logging.getLogger(__name__)

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
    """Starts Spark's Java process, unless one is running, and passes on its output without the startup chatter.

    Java's warning about an incubator module comes from the virtual machine itself, before any logging is set up, so no setting of
    log4j can suppress it. So the process writes its standard error into a pipe, and everything is passed on except a few known
    lines, none of which is an error. The setting `spark.log.level` (`streams run --verbose`) shows everything.
    """
    if SparkContext._gateway is not None or sys.platform == "win32":
        return
    SparkContext._ensure_initialized(gateway=launch(settings))


@cache
def check_java() -> None:
    """Looks for a Java that can run Spark, unless Java is running; Spark itself would only print pages of errors.

    Raises:
        JavaError: Java is missing, does not run, or is too old.
    """
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        find_java()


def convert_without_imports() -> None:
    """Makes pyspark check for numpy arguments without numpy's test utilities, which import pandas."""

    def is_scalar(_: object, one: object) -> bool:
        return isinstance(one, np.generic)

    def is_array(_: object, one: object) -> bool:
        return isinstance(one, np.ndarray) and one.ndim == 1

    NumpyScalarConverter.can_convert, NumpyArrayConverter.can_convert = is_scalar, is_array  # type: ignore[method-assign]


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Starts the process, with its output filtered, and waits until it can be called."""
    check_java()
    convert_without_imports()
    conf = SparkConf()
    for key, value in on_the_command_line(settings).items():
        conf.set(key, value)
    if (process := java_process(settings)) is not None:
        return _connected(process)
    reading, writing = os.pipe()
    pump = _pump(reading)
    try:
        # In its own session, where it gets no signals of the driver's process group; see `java_process`.
        gateway = launch_gateway(conf, {"stderr": writing, "start_new_session": True})
    except BaseException:
        # The process has ended: its output should appear before the error about that.
        os.close(writing)
        pump.join(timeout=5)
        raise
    os.close(writing)
    return gateway


def _pump(source: int) -> threading.Thread:
    """Starts a thread that passes Java's output on."""
    pump = threading.Thread(target=pass_on, args=(source, _STDERR), name="java-output", daemon=True)
    pump.start()
    return pump


def _connected(process: JavaProcess) -> JavaGateway:
    """Connects to a Java process that was started without Spark's scripts, and returns the gateway for calls."""
    pump = _pump(process.errors)
    found = process.connection()
    if found is None:
        pump.join(timeout=5)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    port, secret = found
    environment = {**os.environ, "PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    # pyspark connects to a running process by these variables. Only pyspark gets them: child processes would inherit `os.environ`.
    with _environment_of_pyspark(environment):
        gateway = launch_gateway()
    gateway.proc = process.process
    return gateway


@contextmanager
def _environment_of_pyspark(environment: Mapping[str, str]) -> Iterator[None]:
    """Gives pyspark's module that connects to Java other environment variables, within the block."""
    own = pyspark.java_gateway.os
    pyspark.java_gateway.os = SimpleNamespace(environ=environment)
    try:
        yield
    finally:
        pyspark.java_gateway.os = own


def on_the_command_line(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for the command line of the process. It contains no secrets, because every user of the host can read it.

    Secrets reach Spark's context with the other settings of the session, once the process runs.
    """
    return {key: value for key, value in settings.items() if redact({key: value})[key] == value}


def end_java() -> None:
    """Ends the process that this one has started, so that another one can be started."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        # Spark's process ends when its standard input is closed.
        gateway.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None


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


_CLOSES_WITHIN_S = 5.0
"""How long a killed process may take to close its sockets, seconds: it closes them one by one, perhaps after a core dump."""
_POLL_S = 0.05
_CONTEXT_STOPPED = "Cannot call methods on a stopped"


@contextmanager
def needs_java(stopping: Callable[[], bool]) -> Iterator[None]:
    """Turns every failure caused by the end of Spark's Java process into one error; otherwise each would print pages.

    Nothing is lost: committed results are in Kafka, and nothing else is visible.
    """
    try:
        yield
    except Exception as error:
        if stopping() and _CONTEXT_STOPPED in str(error):
            # A signal to all processes of a service reached Java, too, which then ends more slowly than the wait below.
            return
        if not _did_not_start(error) and not has_gone(
            _CLOSES_WITHIN_S if stopping() or _is_of_the_network(error) else 0
        ):
            raise
        if stopping():
            return
        raise ApplicationFailedError(
            f"Spark's Java process has ended{_how()}. Nothing half-done is visible, and the next start continues where this one "
            f"stopped. If it happens again, it needs more memory (spark.driver.memory), or the machine does"
        ) from error


def report_end_once(context: SparkContext) -> None:
    """Prevents Spark's accumulator thread from printing one more stack trace when the Java process ends."""
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
    if isinstance(error, PySparkRuntimeError):
        return str(error.getCondition()) == "JAVA_GATEWAY_EXITED"
    # It may also end between its start and its first answers, before pyspark knows a gateway.
    return SparkContext._gateway is None and _is_of_the_network(error)


def _is_of_the_network(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _how() -> str:
    """How the Java process ended: its signal or exit code, if it is a child of this one (under spark-submit it is the parent)."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None if process is None else process.poll()
    if code is None:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"


# Hadoop's local files without an external process for each: permissions are set by Java itself.
#
# Without its native library, Hadoop starts `chmod` for every file that it creates. Spark creates about ten checkpoint files in
# each micro-batch, so these processes took a large part of a small micro-batch's time. The class below differs from Hadoop's
# `LocalFileSystem` only in how it sets permissions; files, checksums and renames are the same. It is compiled by Janino, which is
# part of Spark, and becomes the instance that Hadoop keeps for the scheme `file`. Only the driver's process has it: in local mode
# that is the process that writes the files.

_LOCAL_FILES = "streams.LocalFiles"
_LOCAL_FILES_SOURCE = """
package streams;

public class LocalFiles extends org.apache.hadoop.fs.LocalFileSystem {
    public LocalFiles() { super(new Raw()); }

    public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(
            org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
        ) throws java.io.IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            java.nio.file.Files.setPosixFilePermissions(
                pathToFile(path).toPath(),
                java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
        }
    }
}
"""


def write_files_without_processes(session: SparkSession) -> bool:
    """Replaces Hadoop's local file system in the driver's process, unless it is replaced already; returns whether it could.

    It takes half a second of CPU, and only queries with checkpoints need it.
    """
    jvm = session.sparkContext._jvm
    try:
        conf = jvm.org.apache.hadoop.conf.Configuration(session.sparkContext._jsc.hadoopConfiguration())
        files = jvm.org.apache.hadoop.fs.FileSystem
        local = jvm.java.net.URI.create("file:///")
        if str(files.get(local, conf).getClass().getName()) == _LOCAL_FILES:
            return True
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_LOCAL_FILES_SOURCE)
        conf.setClassLoader(compiler.getClassLoader())
        conf.set("fs.file.impl", _LOCAL_FILES)
        # Closing the instance that Hadoop keeps makes room for another one.
        files.get(local, conf).close()
        return str(files.get(local, conf).getClass().getName()) == _LOCAL_FILES
    except (Py4JError, TypeError) as error:
        log.debug("Hadoop's own local files are used: %s", error)
        return False


PLANNERS = tuple(
    f"pyspark.sql.worker.{name}" for name in ("lookup_data_sources", "create_data_source", "plan_data_source_read")
)
"""The modules that a query needs only when it starts.

Spark plans a Python data source in processes of its own, two for each of three kinds (a server, and the worker that it has
forked): 150 MB in all. It keeps the workers for a minute and the servers forever, and a running query needs none of them. A
query that starts later gets new ones.
"""

_planning_lock = threading.Lock()
_planned: set[str] = set()
"""The queries of this process that Spark may be planning.

A process has only one Java, even with several sessions and applications.
"""


class Planning:
    """Knows which queries of an application Spark is planning, and ends the planning processes when no application needs them.

    Args:
        names: The queries that will be started, and for which `begins` and `done` are called.
        others: Whether there may be further queries, of the user or for lakes; then nothing is ended until `close`.
    """

    def __init__(self, application_id: str, names: Iterable[str], others: bool) -> None:
        self._prefix = f"{application_id}/"
        with _planning_lock:
            _planned.update(self._prefix + name for name in names)
            if others:
                _planned.add(self._prefix)

    def begins(self, name: str) -> None:
        """Notes that a query is about to be planned, for the first time or again."""
        with _planning_lock:
            _planned.add(self._prefix + name)

    def done(self, name: str, session: SparkSession) -> None:
        """Notes that a query has run a micro-batch. The planning processes are ended if it was the last query without one."""
        with _planning_lock:
            if self._prefix + name in _planned:
                _planned.discard(self._prefix + name)
                if not _planned:
                    end_planners(session)

    def close(self) -> None:
        with _planning_lock:
            _planned.difference_update([one for one in _planned if one.startswith(self._prefix)])


def end_planners(session: SparkSession) -> int:
    """Ends the planning processes as Spark itself does at its end, and returns how many (`PythonWorkerFactory.stop`).

    It reaches Spark's own method through private fields, because Spark would stumble over a server that a signal has ended. A query
    that is planning a Python data source in the same session at this moment fails. No method of `SparkEnv` is called: py4j would
    look at all of its methods, and in Spark 4.3 some of them name classes of Protobuf, which pyspark does not include. The asking
    thread would end.
    """
    jvm = session.sparkContext._jvm
    assert jvm is not None
    try:
        environment = _private_field(jvm, "org.apache.spark.SparkEnv$", "env").get(None)
        factories = _private_field(jvm, "org.apache.spark.SparkEnv", "pythonWorkers").get(environment).iterator()
        ended = 0
        while factories.hasNext():
            key, factory = (entry := factories.next())._1(), entry._2()
            if key.workerModule() in PLANNERS:
                factory.stop()
                ended += 1
    except Py4JError:
        return 0
    return ended


def _private_field(jvm: Any, owner: str, name: str) -> Any:
    field = jvm.java.lang.Class.forName(owner).getDeclaredField(name)
    field.setAccessible(True)
    return field
