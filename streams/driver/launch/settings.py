"""The settings of the engine's Spark sessions, and the environment of its processes.

Nothing here imports pyspark, so that Spark's processes can be started before pyspark is imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from state.secrets import SPARK_PATTERN
from state.tables.files import private_temporary_folder
from streams.broker.class_archive import archive_in, options_for
from streams.errors import ConfigError

SPARK_SETTINGS: Mapping[str, str] = {
    # streams/engine/spark/daemon.py removes zips from sys.path, imports modules and compiles kernels before it forks workers.
    "spark.python.daemon.module": "streams.engine.spark.daemon",
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
    # whole job. Our readers give the same records in other portions, as they arrive. The commit marker records what matters, for
    # each task.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    # A second checksum, which would only name the cause of a failed fetch.
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
"""The engine's settings, each with its reason in a comment. The user's settings take precedence."""


def check_speculation(value: str | None) -> None:
    if str(value).lower() == "true":
        raise ConfigError(
            "spark.speculation=true is refused: two live attempts of a task would fence each other again and again"
        )


def spark_settings(user: Mapping[str, str], checkpoint_dir: str) -> dict[str, str]:
    """The engine's settings, overridden by the user's.

    Raises:
        ConfigError: A setting cannot work with the engine.
    """
    check_speculation(user.get("spark.speculation"))
    settings = dict(SPARK_SETTINGS)
    if "://" in checkpoint_dir and not checkpoint_dir.startswith("file:"):
        del settings["spark.sql.streaming.checkpointFileManagerClass"]
    settings.update(user)
    return settings


DEFAULT_MASTER = "local[*,4]"
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC -Xms96m -Xmn48m"
"""The JVM only plans and moves blobs: without its second compiler and concurrent collector it took 2.2 us of CPU a record
instead of 5.5 (the benchmark `devices`). Rows are garbage as soon as they are passed on, so a small young generation is enough, and
the rest of the heap grows only as far as it is needed; by default it begins with a 64th of the machine's memory. With one compiler,
Java reserves only 48 MB for compiled code, which queries with Delta fill in minutes, and then stops compiling; reserved
addresses are not memory until there is code in them. Has no effect if spark-submit has already started the JVM."""
LOCAL_MEMORY = "512m"
"""The heap's limit, about the smallest that Spark accepts: micro-batches pass through it in parts (Spark's own default: 1g)."""

LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the Java process in which Spark's scripts assemble the command line of the other one: they halve its CPU time."""

MEMORY_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1024 * 1024),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""How the C library and Arrow allocate in the processes that Java starts, unless the environment says otherwise: few arenas, and
large blocks that go back to the system when they are freed. By default each of a client's many threads may keep an arena. A new
block is paid for in huge pages, where the system allows them (`madvise`), and not page by page."""


def is_submitted() -> bool:
    """Whether spark-submit has started Java, and this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """The settings of the running Java process; empty if none runs."""
    if is_submitted():
        from pyspark import SparkContext

        # Only Java knows --master and --conf. Without this call, other settings would replace them. Without spark-submit, Java must
        # not start yet, because its memory is one of the settings.
        SparkContext._ensure_initialized()
    if "pyspark" not in sys.modules:
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def session_settings(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> dict[str, str]:
    """All settings of a session; the arguments are as for `start_session`."""
    settings = {"spark.app.name": application_id, **spark_settings({**_submitted(), **user}, checkpoint_dir)}
    settings["spark.master"] = with_retries(settings.get("spark.master", DEFAULT_MASTER))
    memory = LOCAL_MEMORY
    if delta:
        from streams.driver.delta import DELTA_MEMORY, delta_settings

        settings, memory = delta_settings(settings, running=is_submitted()), DELTA_MEMORY
    if settings["spark.master"].startswith("local["):
        settings.setdefault("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS + archive_options())
        settings.setdefault("spark.driver.memory", memory)
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
    """Sets the environment variables for Java and the processes that it starts.

    Raises:
        ConfigError: There is no Spark in `SPARK_HOME`.
    """
    home = os.environ.get("SPARK_HOME")
    if home and not (Path(home) / "bin" / "spark-submit").is_file():
        raise ConfigError(
            f"SPARK_HOME is {home!r}, and there is no Spark in that folder (no bin/spark-submit): correct it, or unset it to use "
            f"the pyspark of this Python"
        )
    os.environ["PYTHONPATH"] = _with_startup(os.environ.get("PYTHONPATH", ""))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
    for name, value in MEMORY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _with_startup(path: str) -> str:
    """A PYTHONPATH with `streams/engine/spark/startup`, whose `sitecustomize.py` Spark's Python processes import."""
    entries = path.split(os.pathsep)
    startup = str(Path(__file__).parents[2] / "engine" / "spark" / "startup")
    return os.pathsep.join(filter(None, [*entries, *([] if startup in entries else [startup])]))


def with_retries(master: str) -> str:
    """The master with retries: `local[N]` tries a task once, `local[N,4]` four times, as clusters do."""
    if master == "local":
        return "local[1,4]"
    simple = re.fullmatch(r"local\[([^,\]]+)\]", master)
    return f"local[{simple.group(1)},4]" if simple else master


def pyspark_folder() -> Path:
    """The folder of the package pyspark."""
    spec = find_spec("pyspark")
    assert spec is not None, "streams.driver has looked"
    assert spec.origin is not None, "it is a package of files"
    return Path(spec.origin).parent


@cache
def pyspark_version() -> str:
    """The version of the package pyspark, read from its own file."""
    text = (pyspark_folder() / "version.py").read_text(encoding="utf-8")
    return next(iter(re.findall(r"""^__version__.*=\s*["'](.*)["']""", text, re.MULTILINE)), "")


# The archive of Spark's Java classes (`streams/broker/class_archive.py`).
#
# With an archive, Java took about 7 s of CPU at a start instead of 16 (`streams run` of the word count, a busy machine, one run of
# each). `make venv` records the archive (`streams.driver.record_classes`). The engine uses it only if it starts Java itself, so not
# under spark-submit. An archive (160 MB) fits the jars of one pyspark. So it is stored in that pyspark's Python environment, and is
# deleted together with the environment.


def archive() -> Path:
    """The path of the archive for this Spark and this Java, whether it exists or not."""
    return archive_in(Path(sys.prefix) / "share" / "streams-on-spark", f"spark-{pyspark_version()}")


def archive_options() -> str:
    """Java's options for using the archive, each with a leading space; empty without an archive, and under spark-submit.

    spark-submit has started Java already, and pyspark comes from a zip then, so that the package has no folder.
    """
    if is_submitted():
        return ""
    path = archive()
    # Options are split at spaces.
    return "" if " " in str(path) else "".join(f" {option}" for option in options_for(path))
