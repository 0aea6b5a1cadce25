"""Spark's Java classes, read and verified once for all: an archive that Java maps into memory as it starts.

Much of the CPU that a start takes is Java reading its classes from jars: with an archive, Java took about 7 s instead of 16
(`streams run` of the word count, a busy machine, one run of each). It is Java's own application class-data sharing (JEP 350):
a run is recorded, and later ones start from the record. `make venv` records one (`python -m streams.spark.class_archive`);
`session.py` uses it where it starts Java itself, which spark-submit does not let it.

The archive (160 MB) is of the jars of one pyspark, so it lives in the Python environment beside that one, and goes with it.
Java checks that it fits its own version and the jars; one that does not is not used, and nothing else changes. But one that
was cut short would end Java: so its size is noted once it is whole, and without that size it counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructType

_END_S = 120.0
"""How long Java may take to write the archive, seconds."""


def archive() -> Path:
    """Where the archive of this Spark and this Java is, whether it exists or not."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256(str(java.resolve()).encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "streams-on-spark" / f"spark-{pyspark.__version__}-{digest}.jsa"


def java_options() -> str:
    """Java's options for using the archive, with a space before them; none if there is no archive."""
    path = archive()
    # Options are split at spaces. The log would tell of archives that do not fit, which is no matter of the user's.
    return f" -XX:SharedArchiveFile={path} -Xlog:disable" if is_whole(path) and " " not in str(path) else ""


def is_whole(path: Path) -> bool:
    """Whether an archive is there, as large as it was when Java had written it."""
    try:
        return path.stat().st_size == int(_size_note(path).read_text())
    except (OSError, ValueError):
        return False


def _size_note(path: Path) -> Path:
    return path.with_suffix(".size")


def record() -> None:
    """Makes the archive, unless it exists: runs a small query of the engine's kind, and has Java record its classes."""
    path = archive()
    if is_whole(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory(prefix="streams-classes-") as folder:
            ended_well = _run(folder, f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable")
        if ended_well and unfinished.exists():
            size = unfinished.stat().st_size
            _size_note(path).unlink(missing_ok=True)
            unfinished.rename(path)
            _size_note(path).write_text(f"{size}\n")
    finally:
        unfinished.unlink(missing_ok=True)


def _run(folder: str, options: str) -> bool:
    from streams.spark.session import LOCAL_JAVA_OPTIONS, start_session

    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": f"{LOCAL_JAVA_OPTIONS} {options}",
    }
    session = start_session("class-archive", settings, folder)
    gateway = session.sparkContext._gateway
    _run_query(session, folder)
    session.stop()
    # Java ends when its input does, and records as it ends.
    gateway.shutdown()
    gateway.proc.stdin.close()
    return bool(gateway.proc.wait(_END_S) == 0)


def _run_query(session: SparkSession, folder: str) -> None:
    session.dataSource.register(_Source)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    steps = (
        session.readStream.format(_Source.name())
        .load()
        .groupBy("task_key")
        .applyInPandasWithState(_step, "report STRING", "marker BINARY", "append", "NoTimeout")
    )

    def collect(frame: DataFrame, batch_id: int) -> None:
        frame.collect()

    query = (
        steps.writeStream.outputMode("append")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .foreachBatch(collect)
        .start()
    )
    query.awaitTermination()


def _step(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    yield from (frame[["payload"]].astype(str).set_axis(["report"], axis=1) for frame in frames)
    state.update((b"marker",))


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        yield 0, b"payload"


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "streams-class-archive"

    def schema(self) -> str:
        return "task_key INT, payload BINARY"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader()


if __name__ == "__main__":
    record()
