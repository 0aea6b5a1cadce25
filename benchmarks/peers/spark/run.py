"""What the three Spark peers share: the harness's configuration, the session, Kafka's source and sink, and the end by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.environments import jars_of
from streams.broker.jars import class_path

NOT_SUPPORTED: Final = 64
READING: Final = "d string, s long, t long, v array<double>"
EVENT: Final = "n long, v double"

# The others of the set (Hadoop, Scala, codecs) are in pyspark already.
_MISSING_IN_PYSPARK: Final = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
_RECORDS_PER_TRIGGER: Final = "1000000"


@dataclass(frozen=True)
class Run:
    """The harness's configuration file; `benchmarks/README.md` explains the fields."""

    workload: str
    application_id: str
    bootstrap_servers: str
    topics: Mapping[str, str]
    partitions: int
    threads: int
    guarantee: str
    state_dir: str
    parameters: Mapping[str, int]
    settings: Mapping[str, str]

    @classmethod
    def load(cls, path: str) -> Run:
        """The configuration in a file."""
        values: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    def session(self) -> SparkSession:
        """A local Spark with RocksDB for the state, whose checkpoints are changelogs; `settings` may override everything."""
        folder = class_path(jars_of("spark")).removesuffix("*")
        jars = [str(jar) for jar in sorted(Path(folder).glob("*.jar")) if jar.name.startswith(_MISSING_IN_PYSPARK)]
        state = "spark.sql.streaming.stateStore"
        settings = {
            "spark.master": f"local[{self.threads}]",
            "spark.app.name": self.application_id,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": os.pathsep.join(jars),
            "spark.sql.shuffle.partitions": str(self.partitions),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.metricsEnabled": "false",
            f"{state}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
            **{name: value for name, value in self.settings.items() if name.startswith("spark.")},
        }
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers' Python
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session

    def read(self, spark: SparkSession, role: str, schema: str) -> DataFrame:
        """The records of a topic: `key`, `timestamp`, `ms` (the same as a number), `offset`, and the fields of the value.

        Args:
            spark: The session.
            role: The role of the topic.
            schema: The fields of the JSON values, as DDL.
        """
        records = self.read_bytes(spark, role)
        value = F.from_json(F.col("value").cast("string"), schema)
        places = (
            F.col("key").cast("string").alias("key"),
            "timestamp",
            F.unix_millis("timestamp").alias("ms"),
            "offset",
        )
        return records.select(*places, value.alias("value")).select("key", "timestamp", "ms", "offset", "value.*")

    def read_both(self, spark: SparkSession, one: str, other: str, schema: str) -> DataFrame:
        """As `read`, of two topics with their `role`: one source advances in both topics at the same pace.

        Args:
            spark: The session.
            one: The role of one topic.
            other: The role of the other one.
            schema: The fields of both.
        """
        value = F.from_json(F.col("value").cast("string"), schema).alias("value")
        role = F.when(F.col("topic") == self.topics[one], one).otherwise(other).alias("role")
        key, ms = F.col("key").cast("string").alias("key"), F.unix_millis("timestamp").alias("ms")
        records = self.read_bytes(spark, one, other).select(key, "timestamp", ms, role, value)
        return records.select("key", "timestamp", "ms", "role", "value.*")

    def read_bytes(self, spark: SparkSession, *roles: str) -> DataFrame:
        """The records of topics as Spark's Kafka source gives them."""
        most = {"maxOffsetsPerTrigger": self.settings.get("maxOffsetsPerTrigger", _RECORDS_PER_TRIGGER)}
        return spark.readStream.format("kafka").options(**self._from_the_start(*roles), **most).load()

    def read_table(self, spark: SparkSession, role: str) -> DataFrame:
        """The records of a topic as a static table, which is read once."""
        return spark.read.format("kafka").options(**self._from_the_start(role)).load().cache()

    def _from_the_start(self, *roles: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(self.topics[role] for role in roles),
            "startingOffsets": "earliest",
        }

    def consumers(self, spark: SparkSession) -> DataFrame:
        """The events of ShuffleBench by consumer: `key`, `timestamp` and `ms`."""
        number = F.conv(F.hex(F.substring("value", 1, 8)), 16, 10).cast("decimal(20,0)").alias("h")
        kept = self.read_bytes(spark, "events").select("timestamp", number).where("h % 1000000 < 200000")
        consumer = F.expr(f"cast((h div 1000000) % {self.parameters['consumers']} as string)")
        key = F.concat(F.lit("c-"), F.lpad(consumer, 7, "0")).alias("key")
        return kept.select(key, "timestamp", F.unix_millis("timestamp").alias("ms"))

    def write(self, results: DataFrame, role: str = "out", mode: str = "append") -> None:
        """Starts a query that writes `key` and `value` to a topic.

        Args:
            results: The results, with two columns.
            role: The role of the topic.
            mode: Spark's output mode.
        """
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "topic": self.topics[role],
            "checkpointLocation": f"{self.state_dir}/checkpoint/{role}",
        }
        results.writeStream.format("kafka").options(**options).outputMode(mode).queryName(role).start()

    def milliseconds(self, parameter: str) -> str:
        """A parameter as an interval in SQL."""
        return f"{self.parameters[parameter]} milliseconds"


def as_json(**fields: Column | str) -> Column:
    """A column of JSON objects; missing values are written as null."""
    columns = [(F.col(value) if isinstance(value, str) else value).alias(name) for name, value in fields.items()]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value")


def joined_key(*parts: str | Column) -> Column:
    """A key of several parts with `|` between them."""
    return F.concat_ws("|", *parts).alias("key")


def rows_of(frames: Iterable[pd.DataFrame]) -> list[tuple[Any, ...]]:
    """The rows of a key's frames in order of time, without key and timestamp; equal times in order of arrival."""
    rows: list[tuple[Any, ...]] = []
    for frame in frames:
        rows += zip(*(frame[name].tolist() for name in frame.columns[2:]), strict=True)
    rows.sort(key=lambda row: row[0])
    return rows


def results_of(results: Sequence[tuple[str, str | None]]) -> pd.DataFrame:
    """Keys and values as a frame."""
    return pd.DataFrame({"key": [key for key, _ in results], "value": [value for _, value in results]}, dtype=object)


class Progress:
    """Commits what the queries have processed to a consumer group, which Spark itself does not do, so that others see the lag.

    Args:
        run: The run; the group is named like its application.
    """

    def __init__(self, run: Run) -> None:
        servers, group = run.bootstrap_servers, run.application_id
        self._group = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
        self._committed: dict[tuple[str, int], int] = {}

    def commit(self, spark: SparkSession) -> None:
        """Commits the ends of the last micro-batches, of several queries over one topic the smaller one."""
        ends: dict[tuple[str, int], int] = {}
        for query in spark.streams.active:
            progress = query.lastProgress
            if progress is None:
                return
            for source in progress.sources:
                for topic, partitions in json.loads(source.endOffset or "{}").items():
                    for partition, offset in partitions.items():
                        place = (topic, int(partition))
                        ends[place] = min(offset, ends.get(place, offset))
        if ends and ends != self._committed:
            offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
            self._group.commit(offsets=offsets, asynchronous=False)
            self._committed = ends


def main(workloads: Mapping[str, Any], arguments: Sequence[str]) -> int:
    """Runs the workload of a configuration file until SIGTERM.

    Args:
        workloads: By name, a function that starts the queries of a workload, given the run and the session.
        arguments: The path of the configuration file.

    Returns:
        The exit code.
    """
    run = Run.load(arguments[0])
    start = workloads.get(run.workload)
    if start is None:
        print(f"there is no program for {run.workload}", file=sys.stderr)
        return NOT_SUPPORTED
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = run.session()
    start(run, spark)
    progress = Progress(run)
    while not stop.wait(0.2):
        progress.commit(spark)
        for query in spark.streams.active:
            if query.exception() is not None:
                print(query.exception(), file=sys.stderr)
                return 1
        if not spark.streams.active:
            print("all queries have ended", file=sys.stderr)
            return 1
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    return 0
