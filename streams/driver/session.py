"""The Spark session that the engine runs in: its start, and the checks of a running session."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streams.driver.delta import check_delta
from streams.driver.executors import conf_of, is_local, local_cluster, runs_on_manager, task_cpus
from streams.driver.java import report_end_once, start_java_quietly
from streams.driver.launch.settings import (
    check_speculation,
    is_submitted,
    prepare_environment,
    with_retries,
)
from streams.errors import ConfigError

log = logging.getLogger(__name__)

SUPPORTED_SPARK = ((4, 2), (4, 3))
"""The versions of Spark that the engine supports. The extra `spark` installs the first one, with which all tests run."""


def check_version(version: str) -> None:
    """Checks the version of Spark, which may come from a platform."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) not in SUPPORTED_SPARK:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in SUPPORTED_SPARK)
        raise ConfigError(
            f"This is Spark {version}, and streams-on-spark needs Spark {wanted}: use that version of Spark, or another release."
        )


SILENCED_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.ContextCleaner",
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.broadcast.TorrentBroadcast",
)
"""Spark's loggers of failures that the engine reports itself, or that only a stop causes, such as an interrupted broadcast."""


def start_with(settings: Mapping[str, str], delta: bool, late: bool) -> SparkSession:
    """Starts a session with these settings (`session_settings`); called by `streams.driver.launch.ahead.start_session`."""
    prepare_environment()
    if "spark.log.level" not in settings:
        start_java_quietly(settings)
    # A process started by spark-submit logs each of its own steps until its log level is set.
    quiet = {"spark.log.level": "ERROR"} if is_submitted() else {}
    session = (late_session if late else session_with)({**quiet, **settings})
    report_end_once(session.sparkContext)
    check_session(session, log.warning)
    if delta:
        check_delta(session)
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    if "spark.log.level" not in settings:
        _silence_duplicate_logs(session)
    return session


def _silence_duplicate_logs(session: SparkSession) -> None:
    """Silences the pages of stack traces that Spark logs for each attempt of a task and for the end of a query.

    The error that ends a query is raised as one sentence, with Spark's error as its cause. Any `spark.log.level` brings the
    stack traces back.
    """
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in SILENCED_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def settings_meanwhile(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of a session, which may be the user's own, within the block."""
    before = {name: session.conf.get(name, None) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def processes_of(session: SparkSession) -> int:
    """The number of Python processes that work at once on a host: one for each task that Spark runs there.

    On a cluster the settings decide, since the executors may not have come yet. `executors.tasks_at_once` counts the tasks of all
    executors.
    """
    context = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    conf = conf_of(context)
    return max(1, _cores_of_host(context.master, conf) // task_cpus(conf))


def _cores_of_host(master: str, conf: SparkConf) -> int:
    if (cluster := local_cluster(master)) is not None:
        executors, cores = cluster
        return executors * cores
    if cores := conf.get("spark.executor.cores"):
        return int(cores)
    # In a standalone cluster, an executor takes all cores of its worker. Workers are assumed to have as many as the driver.
    return 1 if runs_on_manager(master) else os.cpu_count() or 1


def readers_of(session: SparkSession) -> int | None:
    """How many tasks Spark runs at once; None on a cluster, whose executors may not have come yet."""
    return processes_of(session) if session.sparkContext.master.startswith("local[") else None


def check_session(session: SparkSession, say: Callable[[str], object]) -> None:
    """Checks the version and the settings of a session, which may be the user's own.

    Raises:
        ConfigError: The version or a setting cannot work.
    """
    check_version(session.version)
    conf = conf_of(session.sparkContext)
    check_speculation(conf.get("spark.speculation"))
    master, tries = str(conf.get("spark.master") or ""), conf.get("spark.task.maxFailures") or "4"
    if (master and with_retries(master) != master) or (tries == "1" and not master.startswith("local")):
        say(
            f"this Spark session tries a task only once (spark.master={master}, spark.task.maxFailures={tries}): whatever makes an "
            f"attempt fail ends the application, though another attempt could succeed. Allow more, e.g. "
            f"{with_retries(master) if with_retries(master) != master else 'spark.task.maxFailures=4'}"
        )
    if conf.get("spark.python.daemon.module") != "streams.engine.spark.daemon":
        say(
            "this Spark session was started without spark.python.daemon.module=streams.engine.spark.daemon: "
            "each micro-batch will be slower. Start the session through streams, or set it."
        )


class _LateSession:
    """A stand-in for a session. It makes a real one at the first request that Spark's context cannot answer.

    Live execution needs no SQL, and a session takes one and a half seconds of Java's CPU: Spark registers the functions of its
    library of machine learning in each one, by reflection.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        self._settings = settings
        self._lock = Lock()
        self._made: SparkSession | None = None
        self.sparkContext = SparkContext.getOrCreate(conf)

    @property
    def version(self) -> str:
        return str(self.sparkContext.version)

    @property
    def _jvm(self) -> Any:
        return self.sparkContext._jvm

    def session(self) -> SparkSession:
        """The session itself."""
        with self._lock:
            if self._made is None:
                self._made = session_with(self._settings)
            return self._made

    def stop(self) -> None:
        """Stops Spark."""
        (self._made or self.sparkContext).stop()

    def __getattr__(self, name: str) -> Any:
        # Not for names that are looked up while an object is copied or made.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.session(), name)


def session_with(settings: Mapping[str, str]) -> SparkSession:
    """A session with these settings: the running one, or a new one."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def late_session(settings: Mapping[str, str]) -> SparkSession:
    """A substitute for a session, with the same methods and attributes."""
    return cast(SparkSession, _LateSession(settings))


def session_itself(session: SparkSession) -> SparkSession:
    """The real session, for code that looks at its type, such as other libraries."""
    return session.session() if isinstance(session, _LateSession) else session  # type: ignore[unreachable]
