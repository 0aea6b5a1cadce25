"""Spark settings that the engine needs, each with its reason. The user's settings take precedence, except refused ones."""

from __future__ import annotations

from collections.abc import Mapping

from state.secrets import SPARK_PATTERN
from streams.errors import ConfigError

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

REFUSED: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("true", "two live attempts of a task would fence each other again and again"),
}


def spark_settings(user: Mapping[str, str], checkpoint_dir: str) -> dict[str, str]:
    """The engine's settings, overridden by the user's.

    Raises:
        ConfigError: A setting cannot work with the engine.
    """
    for key, (value, why) in REFUSED.items():
        if str(user.get(key, "")).lower() == value:
            raise ConfigError(f"{key}={value} is refused: {why}")
    settings = dict(SPARK_SETTINGS)
    if "://" in checkpoint_dir and not checkpoint_dir.startswith("file:"):
        del settings["spark.sql.streaming.checkpointFileManagerClass"]
    settings.update(user)
    return settings
