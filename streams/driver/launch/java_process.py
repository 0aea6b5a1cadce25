"""Starts Spark's Java process without Spark's scripts, if nothing needs them: that saves starting one Java after another.

`bin/spark-submit` runs a Java process that assembles the command line of the other one, which begins with a part of Spark that
fetches jars and logs in to Hadoop. A local session of the installed pyspark needs none of this: its settings go into Spark's
context, and both ways end in `PythonGatewayServer`. All other sessions are started by Spark's scripts.

Nothing here imports pyspark, so that Java starts while Python imports pyspark.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from streams.driver.launch.settings import pyspark_folder, pyspark_version

_VERSION = "4.2."
"""The versions of Spark whose command line is known here."""
_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
_PLACE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_IGNORE_SIGNALS = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
"""Makes Java ignore signals. They are for the driver, which stops Spark in an orderly way. Service managers and terminals send
signals to all processes of a group, and Java would end at once, under running tasks, and print pages. Java never handles signals
that are ignored when it starts."""
_POLL_S = 0.005
_NUMBER = struct.Struct("!i")

JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""The options that Spark's launcher adds (`org.apache.spark.launcher.JavaModuleOptions`)."""

_PLAIN_SETTINGS = (
    "spark.app.name",
    "spark.broadcast.",
    "spark.cleaner.",
    "spark.default.parallelism",
    "spark.driver.bindAddress",
    "spark.driver.extraJavaOptions",
    "spark.driver.host",
    "spark.driver.maxResultSize",
    "spark.driver.memory",
    "spark.local.dir",
    "spark.master",
    "spark.network.",
    "spark.python.",
    "spark.redaction.",
    "spark.rpc.",
    "spark.scheduler.",
    "spark.shuffle.",
    "spark.sql.",
    "spark.task.",
    "spark.ui.",
)
"""Beginnings of the names of settings that only Spark's context or the command line uses, and not Spark's scripts."""
_PLAIN_VARIABLES = (
    "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_LOCAL_DIRS",
    "SPARK_LOCAL_HOSTNAME",
    "SPARK_LOCAL_IP",
    "SPARK_PUBLIC_DNS",
    "SPARK_USER",
)
"""Spark's variables that its scripts do not use; `SPARK_HOME` is compared separately."""
_OTHER_VARIABLES = ("PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def command_for(settings: Mapping[str, str]) -> list[str] | None:
    """Java's command line for a session with these settings; None: Spark's scripts are needed."""
    home = Path(os.path.realpath(pyspark_folder()))
    options = settings.get("spark.driver.extraJavaOptions", "")
    if not (
        os.name == "posix"
        and settings.get("spark.master", "").startswith("local[")
        and all(name.startswith(_PLAIN_SETTINGS) for name in settings)
        # Options with quotes are not parsed here: Spark's scripts do that.
        and not set(options) & set("\"'\\")
        and _is_plain_environment(home)
        and pyspark_version().startswith(_VERSION)
    ):
        return None
    java_home = os.environ.get("JAVA_HOME")
    jars = home / "jars"
    # In the same order as Spark's launcher, because the class archive matches no other order.
    places = [home / "conf", *sorted(jars.glob("slf4j-api-*.jar")), jars / "*"]
    memory = settings.get("spark.driver.memory", "1g")
    return [
        str(Path(java_home) / "bin" / "java") if java_home else "java",
        "-cp",
        os.pathsep.join(map(str, places)),
        f"-Xmx{memory}",
        *shlex.split(options),
        *JAVA_OPTIONS,
        _MAIN,
    ]


def _is_plain_environment(home: Path) -> bool:
    """Whether the environment sets nothing that Spark's launch scripts would act on."""
    names = [name for name in os.environ if name.startswith("SPARK_") or name in _OTHER_VARIABLES]
    own_home = os.path.realpath(os.environ.get("SPARK_HOME", home)) == str(home)
    return own_home and all(name in _PLAIN_VARIABLES for name in names) and not (home / "conf").exists()


class JavaProcess:
    """A Java process that waits for calls, or will soon.

    Attributes:
        process: The process. It ends with its standard input.
        errors: The file descriptor from which its standard error can be read.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._folder = Path(tempfile.mkdtemp(prefix="streams-java-"))
        self.errors, writing = os.pipe()
        home = os.path.realpath(pyspark_folder())
        # What Spark's scripts set.
        own = {"SPARK_HOME": home, "PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0", _PLACE: str(self._place)}
        try:
            self.process = subprocess.Popen(
                [*_IGNORE_SIGNALS, *command], stdin=subprocess.PIPE, stderr=writing, env={**os.environ, **own}
            )
        except OSError:
            os.close(self.errors)
            shutil.rmtree(self._folder)
            raise
        finally:
            os.close(writing)
        atexit.register(self.end)

    @property
    def _place(self) -> Path:
        return self._folder / "connection"

    def runs(self, command: Sequence[str]) -> bool:
        """Whether this command has started the process, and it has not ended."""
        return command == self._command and self.process.poll() is None

    def connection(self) -> tuple[int, str] | None:
        """Waits until the process listens, and returns its port and the secret; None: it has ended."""
        try:
            while not self._place.exists():
                if self.process.poll() is not None:
                    return None
                time.sleep(_POLL_S)
            port, size, secret = _parts(self._place.read_bytes())
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        assert len(secret) == size, "Java moves the file there when it is complete"
        # From now on it reads its standard input, and so ends with this process, however that ends.
        atexit.unregister(self.end)
        return port, secret.decode()

    def end(self) -> None:
        """Ends a Java process that has not run anything yet. If only its folder were deleted, it would wait for calls forever."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.end)


def _parts(data: bytes) -> tuple[int, int, bytes]:
    """Splits the process's message into the port, the length of the secret, and the secret."""
    (port,), (size,) = _NUMBER.unpack_from(data), _NUMBER.unpack_from(data, _NUMBER.size)
    return port, size, data[2 * _NUMBER.size :]


_ahead: list[JavaProcess] = []


@contextmanager
def java_ahead(settings: Mapping[str, str]) -> Iterator[None]:
    """Starts Java early for a session with these settings that is started within the context, unless it needs Spark's scripts."""
    process = _started(command_for(settings))
    if process is not None:
        _ahead.append(process)
    try:
        yield
    finally:
        if process in _ahead:
            _ahead.remove(process)
            process.end()
            os.close(process.errors)


def java_process(settings: Mapping[str, str]) -> JavaProcess | None:
    """A process for these settings: one that was started early, or a new one. None: only Spark's scripts can start it."""
    command = command_for(settings)
    if command is None:
        return None
    if _ahead and _ahead[-1].runs(command):
        return _ahead.pop()
    return _started(command)


def _started(command: Sequence[str] | None) -> JavaProcess | None:
    try:
        return None if command is None else JavaProcess(command)
    except OSError:
        # Without Java, Spark's scripts and the engine say what is missing.
        return None
