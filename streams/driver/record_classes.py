"""Creates the archive of Spark's classes (`streams.driver.launch.settings`) from the classes that Java loads for a small query.

`make venv` calls it: `python -m streams.driver.record_classes`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streams.broker.class_archive import record
from streams.driver.launch.ahead import start_session
from streams.driver.launch.settings import LOCAL_JAVA_OPTIONS, archive

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructType


_END_S = 120.0
"""How long Java may take to write the archive, seconds."""


def record_spark() -> None:
    """Creates the archive, unless it exists, from the classes that Java loads for a small query like the engine's."""
    with tempfile.TemporaryDirectory(prefix="streams-classes-") as folder:
        record(archive(), lambda options: _run(folder, " ".join(options)))


def _run(folder: str, options: str) -> bool:
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        # A setting for Spark's scripts: started by them, Java also loads the classes that it needs only then.
        "spark.submit.deployMode": "client",
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": f"{LOCAL_JAVA_OPTIONS} {options}",
    }
    session = start_session("class-archive", settings, folder)
    gateway = session.sparkContext._gateway
    _run_query(session, folder)
    session.stop()
    # Java exits when its standard input is closed, and writes the archive as it exits.
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
    record_spark()
