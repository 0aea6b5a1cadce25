"""The Spark session that the engine runs in, and the settings that it needs."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from state.secrets import SPARK_PATTERN
from state.tables.files import private_temporary_folder
from streams.errors import ConfigError
from streams.spark.daemon_ahead import daemon_ahead
from streams.spark.delta import DELTA_MEMORY, check_delta, delta_settings
from streams.spark.executors import is_local, local_cluster, runs_on_manager, task_cpus
from streams.spark.java import archive_options, end_java, report_end_once, start_java_quietly
from streams.spark.late_session import late_session, session_itself, session_with

log = logging.getLogger(__name__)

SUPPORTED_SPARK = ((4, 2), (4, 3))
"""The versions of Spark that the engine is made for. The extra `spark` installs the first, which all tests run on."""

SPARK_SETTINGS: Mapping[str, str] = {
    # Removes zips from sys.path, imports modules and compiles kernels before the fork: see streams/spark/daemon.py.
    "spark.python.daemon.module": "streams.spark.daemon",
    "spark.python.worker.reuse": "true",
    # Checkpoint files without a fork of chmod/readlink for each: WAL and commit take a third of the time. This manager needs
    # atomic renames, which local disks have; `spark_settings` omits it for any checkpoint that is not on `file:`.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Rows are few and large, about a megabyte under load: a task's rows go to Python in parts, which are never measured row by row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # A batch without rows would have nothing to do: wall-clock steps come from ticks of the source.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Spark's state is one small row per task; the in-memory provider writes it without starting a RocksDB of its own.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Row values are compact blobs: compressing them again in the shuffle costs more than it saves on one host.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # A digest of all shuffled bytes, by which Spark sees whether a repeated reader gave other rows, and then repeats or aborts the
    # whole job. Ours give the same records in other portions, as they arrive; the commit marker sees what matters, for each task.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    # A second one, which would only name the cause of a failed fetch.
    "spark.shuffle.checksum.enabled": "false",
    # The engine's results are not tables: adaptive execution and code generation only add planning time to each micro-batch.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    # Projections of a few rows are interpreted: otherwise their Java source is generated again for each task.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The UI's history of jobs, stages and tasks: each micro-batch is a job, so the default of 1000 is memory without a use.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A segfault in native code becomes a readable stack.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # A function of more than a megabyte would be written to a temporary file, and with it the Kafka client's passwords.
    "spark.broadcast.UDFCompressionThreshold": "2147483647",
    # Spark's UI and its event log on disk show settings; these patterns also find a password inside an address.
    "spark.redaction.regex": SPARK_PATTERN,
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Each with its reason. The user's settings take precedence."""


def check_version(version: str) -> None:
    """Checks the version of Spark, which a platform may bring."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) not in SUPPORTED_SPARK:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in SUPPORTED_SPARK)
        raise ConfigError(
            f"This is Spark {version}, and streams-on-spark needs Spark {wanted}: use that, or another release."
        )


def _check_speculation(value: str | None) -> None:
    if str(value).lower() == "true":
        raise ConfigError(
            "spark.speculation=true is refused: two live attempts of a task would fence each other again and again"
        )


def spark_settings(user: Mapping[str, str], checkpoint_dir: str) -> dict[str, str]:
    """The engine's settings, overridden by the user's.

    Raises:
        ConfigError: A setting cannot work with the engine.
    """
    _check_speculation(user.get("spark.speculation"))
    settings = dict(SPARK_SETTINGS)
    if "://" in checkpoint_dir and not checkpoint_dir.startswith("file:"):
        del settings["spark.sql.streaming.checkpointFileManagerClass"]
    settings.update(user)
    return settings


DEFAULT_MASTER = "local[*,4]"
SILENCED_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.ContextCleaner",
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.broadcast.TorrentBroadcast",
)
"""Spark's loggers whose failures the engine reports itself, or that a stop interrupts: a job that is being handed out, the cleaner
of what is garbage anyway."""
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC -Xms96m -Xmn48m"
"""The JVM only plans and moves blobs: without its second compiler and concurrent collector it took 2.2 us of CPU a record
instead of 5.5 (the benchmark `devices`). Rows are garbage as soon as they are passed on, so a small young generation is enough, and
the rest of the heap grows only as far as it is needed; by default it begins with a 64th of the machine's memory. With one compiler,
Java reserves only 48 MB for compiled code, which queries with Delta fill in minutes, and then compiles nothing any more; reserved
addresses are not memory until there is code in them. Without effect where spark-submit has already started the JVM."""
LOCAL_MEMORY = "512m"
"""The heap's limit, about the smallest that Spark accepts: micro-batches pass through it in parts (Spark's own default: 1g)."""

LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the Java process in which Spark's scripts put the command line of the other one together: half of its CPU."""

MEMORY_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1024 * 1024),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""How the C library and Arrow allocate in the processes that Java starts, unless the environment says otherwise: few arenas, and
large blocks that go back to the system when they are freed. By default each of a client's many threads may keep an arena."""


def start_session(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False, late: bool = False
) -> SparkSession:
    """The Spark session with the engine's settings: the running one, or a new one.

    Args:
        application_id: Its name.
        user: The user's settings.
        checkpoint_dir: Where checkpoints are.
        delta: Whether it reads and writes Delta tables.
        late: Whether what stands for a session will do (`late_session`).

    Raises:
        ConfigError: A setting cannot work, or the session was started without the engine's daemon.
        DeltaMissingError: With `delta`: the running session has no Delta Lake.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    for ahead in _ahead:
        if ahead.asked == (application_id, user, checkpoint_dir, delta):
            return ahead.take() if late else session_itself(ahead.take())
    return _start(session_settings(application_id, user, checkpoint_dir, delta=delta), delta, late)


def _start(settings: Mapping[str, str], delta: bool, late: bool) -> SparkSession:
    prepare_environment()
    if "spark.log.level" not in settings:
        start_java_quietly(settings)
    # A process that spark-submit has started logs each of its own steps until it is given a level.
    quiet = {"spark.log.level": "ERROR"} if "PYSPARK_GATEWAY_PORT" in os.environ else {}
    session = (late_session if late else session_with)({**quiet, **settings})
    report_end_once(session.sparkContext)
    check_session(session, log.warning)
    if delta:
        check_delta(session)
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    if "spark.log.level" not in settings:
        _silence_duplicate_logs(session)
    return session


class _Ahead:
    """A session that starts in the background, for the `start_session` that asks for the same one."""

    def __init__(self, asked: tuple[str, Mapping[str, str], str, bool], settings: Mapping[str, str]) -> None:
        self.asked = asked
        self._taken = False
        self._session: Future[SparkSession] = Future()
        threading.Thread(target=self._run, args=(settings,), name="start-spark", daemon=True).start()

    def _run(self, settings: Mapping[str, str]) -> None:
        try:
            self._session.set_result(_start(settings, self.asked[-1], late=not self.asked[-1]))
        except BaseException as error:
            self._session.set_exception(error)

    def take(self) -> SparkSession:
        """The session, once it has started; raises why it has not."""
        self._taken = True
        return self._session.result()

    def end_unless_taken(self) -> None:
        """Ends the session and its Java, at once or as soon as it has started, unless somebody uses it."""
        if not self._taken:
            self._session.add_done_callback(_end)


def _end(started: Future[SparkSession]) -> None:
    if started.exception() is None:
        session = started.result()
        session.stop()
        end_java()


_ahead: list[_Ahead] = []


def starts_ahead() -> bool:
    """Whether the session of this process is one that `session_ahead` has started."""
    return bool(_ahead)


@contextmanager
def session_ahead(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> Iterator[None]:
    """Starts Spark, and what its Python workers are forked from, in the background for a `start_session` within the context.

    Both take longer than Python does to import the program and to look up its topics.

    Raises:
        ConfigError: A setting cannot work.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    settings = session_settings(application_id, user, checkpoint_dir, delta=delta)
    if (
        "PYSPARK_GATEWAY_PORT" in os.environ
        or "spark.log.level" in settings
        or SparkContext._gateway is not None
        or sys.platform == "win32"
    ):
        yield
        return
    prepare_environment()
    with daemon_ahead(settings):
        ahead = _Ahead((application_id, user, checkpoint_dir, delta), settings)
        _ahead.append(ahead)
        try:
            yield
        finally:
            _ahead.remove(ahead)
            ahead.end_unless_taken()


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
        settings.setdefault("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS + archive_options())
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
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
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


@contextmanager
def settings_meanwhile(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session, which may be the user's own, within the block."""
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

    On a cluster by its settings, since the executors may not have come yet. How many tasks run at once on all of them is
    `executors.tasks_at_once`.
    """
    context = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    conf = context.getConf()
    return max(1, _cores_of_host(context.master, conf) // task_cpus(conf))


def _cores_of_host(master: str, conf: SparkConf) -> int:
    if (cluster := local_cluster(master)) is not None:
        executors, cores = cluster
        return executors * cores
    if cores := conf.get("spark.executor.cores"):
        return int(cores)
    # In a standalone cluster an executor takes all cores of its worker, which are like the driver's as far as anybody knows.
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
    conf = session.sparkContext.getConf()
    _check_speculation(conf.get("spark.speculation"))
    master, tries = str(conf.get("spark.master") or ""), conf.get("spark.task.maxFailures") or "4"
    if (master and with_retries(master) != master) or (tries == "1" and not master.startswith("local")):
        say(
            f"this Spark session tries a task only once (spark.master={master}, spark.task.maxFailures={tries}): whatever makes an "
            f"attempt fail ends the application, though another attempt could succeed. Allow more, e.g. "
            f"{with_retries(master) if with_retries(master) != master else 'spark.task.maxFailures=4'}"
        )
    if conf.get("spark.python.daemon.module") != "streams.spark.daemon":
        say(
            "this Spark session was started without spark.python.daemon.module=streams.spark.daemon: "
            "each micro-batch will be slower. Start the session through streams, or set it."
        )
