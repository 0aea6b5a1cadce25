"""The Spark session that the engine runs in."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streams.errors import ConfigError
from streams.spark.jvm import class_archive
from streams.spark.jvm.java_output import start_java_quietly
from streams.spark.jvm.java_process import tell_its_end_once
from streams.spark.settings import REFUSED, spark_settings

log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*,4]"
TOLD_BY_US = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)
"""Spark's loggers of failures."""
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only plans and moves blobs: without its second compiler and concurrent collector it took 2.2 us of CPU a record
instead of 5.5 (benchmarks.devices). It has no effect where spark-submit has started the JVM already."""


def start_session(application_id: str, user: Mapping[str, str], checkpoint_dir: str) -> SparkSession:
    """Starts Spark, or takes the running session, with the engine's settings.

    Args:
        application_id: Name shown in Spark's UI.
        user: The user's Spark settings; they win.
        checkpoint_dir: Decides how checkpoint files are written.

    Raises:
        ConfigError: A setting that cannot work, or a session that was started without the engine's daemon.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Under spark-submit Java runs already and alone knows its --master and --conf: without this they would be
        # overridden. Elsewhere it must not be started yet: its memory is one of the settings.
        SparkContext._ensure_initialized()
    submitted = dict(SparkConf().getAll())
    settings = spark_settings({**submitted, **user}, checkpoint_dir)
    settings["spark.master"] = with_retries(settings.get("spark.master", DEFAULT_MASTER))
    if settings["spark.master"].startswith("local["):
        settings.setdefault("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS + class_archive.java_options())
    _start_python_quickly()
    if settings["spark.master"].startswith("local-cluster["):
        # Its executors work in folders of their own: they shall find the modules of this one as `local` does.
        paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings.setdefault("spark.executorEnv.PYTHONPATH", os.pathsep.join(paths))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "spark.log.level" not in settings:
        start_java_quietly({"spark.app.name": application_id, **settings})
    builder = SparkSession.builder.appName(application_id)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    tell_its_end_once(session.sparkContext)
    check_session(session, log.warning)
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    if "spark.log.level" not in settings:
        _silence_duplicate_logs(session)
    return session


def _silence_duplicate_logs(session: SparkSession) -> None:
    """Silences the pages of stack traces by which Spark tells of each attempt of a task, and of the end of a query.

    What ends a query is raised as one sentence, with Spark's error as its cause. Any `spark.log.level` brings them back.
    """
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in TOLD_BY_US:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _start_python_quickly() -> None:
    """Puts `streams/spark/startup` on the PYTHONPATH that Spark hands to its Python processes; see there."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    startup = str(Path(__file__).parent / "startup")
    if startup not in entries:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*entries, startup]))


def with_retries(master: str) -> str:
    """`local[N]` tries a task once; `local[N,4]` tries it four times, as clusters do."""
    if master == "local":
        return "local[1,4]"
    simple = re.fullmatch(r"local\[([^,\]]+)\]", master)
    return f"local[{simple.group(1)},4]" if simple else master


def check_session(session: SparkSession, say: Callable[[str], object]) -> None:
    """Looks at the settings of a session, which may be the user's own.

    Args:
        session: The session.
        say: Told of what works, but not as it should.

    Raises:
        ConfigError: A setting that cannot work.
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
