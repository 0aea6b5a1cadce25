"""The processes in which Spark inspects and plans a query's source: what they import, and their end once the query runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.serializers import read_int, write_int, write_with_length
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streams.drills.processes import own_environment, wait_until
from streams.driver.java import PLANNERS, Planning, end_planners
from streams.driver.launch.settings import MEMORY_ENVIRONMENT
from streams.driver.source import KafkaSource
from tests.spark.processes import command_lines

NO_FUNCTION = -1
"""No number of a function of a reader."""
PROGRAM = """
import sys
import streams.driver.source
from streams.engine.source.planner import live_planner
from streams.engine.source.topics import SourceSpec

live_planner({"bootstrap.servers": "127.0.0.1:1"}, SourceSpec({}))
print({"numba", "rocksdict", "pandas", "streams.api", "streams.operators", "streams.dsl"} & set(sys.modules))
"""


def test_a_process_that_plans_imports_neither_operators_nor_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_a_driver_builds_and_plans_a_topology_without_numba() -> None:
    program = """
import sys
import streams.driver.runner
from streams import StreamsBuilder, TimeWindows, agg
from streams.topology.plan import build_plan

builder = StreamsBuilder()
windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
windowed.aggregate(count=agg.count()).to_stream().to("out")
build_plan(builder.build(), "application")
print({"numba", "llvmlite"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


class Numbers(DataSource):
    """A stream of three numbers."""

    @classmethod
    def name(cls) -> str:
        return "numbers-of-a-planner-test"

    def schema(self) -> str:
        return "n INT"

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        return NumbersReader()


class NumbersReader(DataSourceStreamReader):
    """Its three offsets."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": 3}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(n) for n in range(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


@pytest.mark.slow
@pytest.mark.spark
def test_processes_that_plan_are_ended_and_come_again_with_the_next_query(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(Numbers)
    for run in range(2):
        seen: list[int] = []
        query = (
            spark.readStream.format(Numbers.name())
            .load()
            .writeStream.foreachBatch(lambda frame, _, seen=seen: seen.extend(row.n for row in frame.collect()))
            .option("checkpointLocation", str(tmp_path / str(run)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sorted(seen) == [0, 1, 2]
        assert planners()
        # One server for each of the three kinds; nobody else plans in the session of the tests.
        assert end_planners(spark) == 3
        wait_until(lambda: not planners(), 20, "the processes remain")


@pytest.mark.parametrize("failing", [False, True])
def test_a_reader_ends_quietly_when_spark_hangs_up(tmp_path: Path, failing: bool) -> None:
    """As at Ctrl-C on a slow machine, where the process may print something before Spark ends it. Real errors are printed."""
    with socket.socket(socket.AF_UNIX) as spark_side:
        spark_side.bind(str(tmp_path / "socket"))
        spark_side.listen()
        spark_side.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            stderr=subprocess.PIPE,
            text=True,
            env={**own_environment(), "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "socket")},
        )
        with spark_side.accept()[0] as connection, connection.makefile("rwb") as spark:
            assert read_int(spark) == process.pid
            for text in (f"{sys.version_info.major}.{sys.version_info.minor}", str(tmp_path)):
                write_with_length(text.encode(), spark)
            write_int(0, spark)  # files to import from
            write_with_length(cloudpickle.dumps(KafkaSource({})), spark)
            write_with_length(StructType().json().encode(), spark)
            write_int(1, spark)  # records of an Arrow batch
            spark.flush()
            assert read_int(spark) == 0  # the reader is there
            process.send_signal(signal.SIGSTOP)
            if failing:
                write_int(NO_FUNCTION, spark)
    process.send_signal(signal.SIGCONT)
    printed = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    if failing:
        assert "IllegalArgumentException" in printed
    else:
        assert printed == ""


class OtherSpark:
    """A session whose Spark has no such field."""

    @property
    def sparkContext(self) -> OtherSpark:
        return self

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self

    def getDeclaredField(self, name: str) -> Any:
        raise Py4JError(f"NoSuchFieldException: {name}")


def test_private_fields_are_of_a_spark_that_was_looked_at() -> None:
    """`end_planners` reads private fields of `SparkEnv`: look at them again before this is raised."""
    assert tuple(map(int, pyspark.__version__.split(".")[:2])) <= (4, 2)


def test_a_spark_without_the_private_field_keeps_the_processes() -> None:
    assert end_planners(cast(SparkSession, OtherSpark())) == 0


def test_processes_are_ended_while_no_application_plans_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    monkeypatch.setattr("streams.driver.java.end_planners", ended.append)
    session = cast(SparkSession, "session")
    planning = Planning("app", ["a", "b"], others=False)
    planning.begins("a")
    planning.done("a", session)
    assert ended == []  # b is still to come
    planning.done("b", session)
    planning.done("b", session)
    assert len(ended) == 1
    for name in ("a", "b"):  # both are started again
        planning.begins(name)
    planning.done("b", session)
    assert len(ended) == 1
    planning.done("a", session)
    assert len(ended) == 2
    lake = Planning("lake", ["a"], others=True)
    lake.done("a", session)
    planning.begins("a")
    planning.done("a", session)
    assert len(ended) == 2  # the lake's other queries may be planned at any time
    lake.close()
    planning.begins("a")
    planning.done("a", session)
    assert len(ended) == 3


def planners() -> list[str]:
    """The command lines of the processes, below this one, in which Spark plans sources."""
    return [line for line in command_lines() if line.endswith(PLANNERS)]


# --- The memory of a Python worker under a backlog is bounded by its share, not by how long it has worked; no Spark is started.

TOPIC, PARTITIONS, RECORDS = "in", 4, 24_000
MOST_MIB = 100
"""About 50 are usual; 150 without `MEMORY_ENVIRONMENT`, and more the longer the worker runs."""


@pytest.fixture
def servers() -> Iterator[str]:
    """librdkafka's own broker within this process, which keeps about 5 MB of each partition, with records of 160 bytes."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "3"})
    (broker,) = cluster.list_topics(timeout=20).brokers.values()
    address = f"{broker.host}:{broker.port}"
    producer = Producer({"bootstrap.servers": address, "linger.ms": "50"})
    for number in range(RECORDS):
        value = (b'{"v":%d,"pad":"' % number).ljust(158, b"x") + b'"}'
        for partition in range(PARTITIONS):
            key = b"key-%04d" % ((number + partition) % 1000)
            producer.produce(TOPIC, value, key, partition, timestamp=1_700_000_000_000 + number)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    yield address
    del cluster


@pytest.mark.slow
def test_a_worker_stays_within_its_memory(servers: str) -> None:
    command = [sys.executable, "-m", "tests.spark.memory_of_a_worker", servers, TOPIC, str(PARTITIONS), str(RECORDS)]
    done = subprocess.run(
        command, env={**os.environ, **MEMORY_ENVIRONMENT}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < MOST_MIB
