"""The Spark session that the engine runs in."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from state.tables.private_folder import private_temporary_folder
from streams.errors import ConfigError
from streams.spark.delta.session import DELTA_MEMORY, check_delta, delta_settings
from streams.spark.jvm import class_archive
from streams.spark.jvm.java_output import java_ahead, start_java_quietly
from streams.spark.jvm.java_process import report_end_once
from streams.spark.jvm.local_files import write_files_without_processes
from streams.spark.settings import REFUSED, spark_settings

log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*,4]"
SILENCED_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)
"""Spark's loggers whose failures the engine reports itself."""
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC -Xms96m -Xmn48m"
"""The JVM only plans and moves blobs: without its second compiler and concurrent collector it took 2.2 us of CPU a record
instead of 5.5 (the benchmark `devices`). Rows are garbage as soon as they are passed on, so a small young generation is enough, and
the rest of the heap grows only as far as it is needed; by default it begins with a 64th of the machine's memory. With one compiler,
Java reserves only 48 MB for compiled code, which queries with Delta fill in minutes, and then compiles nothing any more; reserved
addresses are no memory until there is code in them. Without effect where spark-submit has already started the JVM."""
LOCAL_MEMORY = "512m"
"""The heap's limit, about the smallest that Spark accepts: micro-batches pass through it in parts (Spark's own default: 1g)."""

MEMORY_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1024 * 1024),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""How the C library and Arrow allocate in the processes that Java starts, unless the environment says otherwise: few arenas, and
large blocks that go back to the system when they are freed. By default each of a client's many threads may keep an arena."""


def start_session(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> SparkSession:
    """The Spark session with the engine's settings: the running one, or a new one.

    Raises:
        ConfigError: A setting cannot work, or the session was started without the engine's daemon.
        DeltaMissingError: With `delta`: the running session has no Delta Lake.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    settings = session_settings(application_id, user, checkpoint_dir, delta=delta)
    prepare_environment()
    if "spark.log.level" not in settings:
        start_java_quietly(settings)
    builder = SparkSession.builder
    # A process that spark-submit has started logs each of its own steps until it is given a level.
    quiet = {"spark.log.level": "ERROR"} if "PYSPARK_GATEWAY_PORT" in os.environ else {}
    for key, value in {**quiet, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if settings["spark.master"].startswith("local["):
        write_files_without_processes(session)
    report_end_once(session.sparkContext)
    check_session(session, log.warning)
    if delta:
        check_delta(session)
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    if "spark.log.level" not in settings:
        _silence_duplicate_logs(session)
    return session


def session_ahead(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> AbstractContextManager[None]:
    """Starts Java in the background for a `start_session` with the same arguments within the context.

    Raises:
        ConfigError: A setting cannot work.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    settings = session_settings(application_id, user, checkpoint_dir, delta=delta)
    if "PYSPARK_GATEWAY_PORT" in os.environ or "spark.log.level" in settings:
        return nullcontext()
    prepare_environment()
    return java_ahead(settings)


def session_settings(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> dict[str, str]:
    """All settings of a session; see `start_session`."""
    submitted_to = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted_to:
        # Under spark-submit, Java is already running and alone knows --master and --conf: without this call they would be
        # overridden. Elsewhere Java must not be started yet: its memory is one of the settings.
        SparkContext._ensure_initialized()
    submitted = dict(SparkConf().getAll())
    settings = {"spark.app.name": application_id, **spark_settings({**submitted, **user}, checkpoint_dir)}
    settings["spark.master"] = with_retries(settings.get("spark.master", DEFAULT_MASTER))
    if delta:
        settings = delta_settings(settings, running=submitted_to)
    if settings["spark.master"].startswith("local["):
        settings.setdefault("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS + class_archive.java_options())
        settings.setdefault("spark.driver.memory", DELTA_MEMORY if delta else LOCAL_MEMORY)
        if "SPARK_LOCAL_DIRS" not in os.environ:
            # Shuffle files hold records, and Spark makes their folders readable for all; cluster managers have private ones.
            settings.setdefault("spark.local.dir", str(private_temporary_folder("streams-spark")))
        # The web server would be a part of each start; `--set spark.ui.enabled=true` starts it.
        settings.setdefault("spark.ui.enabled", "false")
    else:
        # Executors elsewhere do not have this process's environment.
        for name, value in MEMORY_ENVIRONMENT.items():
            settings.setdefault(f"spark.executorEnv.{name}", value)
    if settings["spark.master"].startswith("local-cluster["):
        # Executors run in folders of their own, but must find the modules of this folder as `local` does.
        paths = [os.getcwd(), *filter(None, [_with_startup(os.environ.get("PYTHONPATH", ""))])]
        settings.setdefault("spark.executorEnv.PYTHONPATH", os.pathsep.join(paths))
    return settings


def prepare_environment() -> None:
    """Sets what Java and the processes that it starts find in their environment."""
    os.environ["PYTHONPATH"] = _with_startup(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in MEMORY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _silence_duplicate_logs(session: SparkSession) -> None:
    """Silences the pages of stack traces that Spark logs for each attempt of a task and for the end of a query.

    The error that ends a query is raised as one sentence, with Spark's error as its cause. Any `spark.log.level` brings the
    stack traces back.
    """
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in SILENCED_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _with_startup(path: str) -> str:
    """A PYTHONPATH with `streams/spark/startup`, for Spark's Python processes; see `sitecustomize.py` there."""
    entries = path.split(os.pathsep)
    startup = str(Path(__file__).parent / "startup")
    return os.pathsep.join(filter(None, [*entries, *([] if startup in entries else [startup])]))


def with_retries(master: str) -> str:
    """The master with retries: `local[N]` tries a task once, `local[N,4]` four times, as clusters do."""
    if master == "local":
        return "local[1,4]"
    simple = re.fullmatch(r"local\[([^,\]]+)\]", master)
    return f"local[{simple.group(1)},4]" if simple else master


def processes_of(session: SparkSession) -> int:
    """The number of Python processes that work at once on a host: one for each core that Spark uses there."""
    context = session.sparkContext
    if context.master.startswith("local["):
        return int(context.defaultParallelism)
    return int(context.getConf().get("spark.executor.cores") or os.cpu_count() or 1)


def readers_of(session: SparkSession) -> int | None:
    """How many tasks Spark runs at once; None on a cluster, whose executors may not have come yet."""
    return processes_of(session) if session.sparkContext.master.startswith("local[") else None


def check_session(session: SparkSession, say: Callable[[str], object]) -> None:
    """Checks the settings of a session, which may be the user's own.

    Raises:
        ConfigError: A setting cannot work.
    """
    conf = session.sparkContext.getConf()
    for key, (value, why) in REFUSED.items():
        if str(conf.get(key) or "").lower() == value:
            raise ConfigError(f"{key}={value} is refused: {why}")
    master, tries = str(conf.get("spark.master") or ""), conf.get("spark.task.maxFailures") or "4"
    if (master and with_retries(master) != master) or (tries == "1" and not master.startswith("local")):
        say(
            f"this Spark session tries a task only once (spark.master={master}, spark.task.maxFailures={tries}): whatever makes an "
            f"attempt fail ends the application, though another attempt would go on. Give it more, e.g. "
            f"{with_retries(master) if with_retries(master) != master else 'spark.task.maxFailures=4'}"
        )
    if conf.get("spark.python.daemon.module") != "streams.spark.daemon":
        say(
            "this Spark session was started without spark.python.daemon.module=streams.spark.daemon: "
            "each micro-batch will be slower. Start the session through streams, or set it."
        )
