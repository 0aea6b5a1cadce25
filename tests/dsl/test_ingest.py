"""Sources outside Kafka in a program: their records, their names, and what is refused. Neither Spark nor Kafka runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from state.commit.ingest import Rows
from streams import BytesSerde, Int64Serde, JsonSerde, StreamsBuilder, StringSerde
from streams.application.ingests import ingest_partitions
from streams.dsl.builder import DeltaRead
from streams.errors import TopologyError
from streams.runtime.outputs import Outputs, UnlimitedTopics
from streams.runtime.settings import TaskSettings
from streams.spark.ingest.writer import RowRecords
from streams.testing import TopologyTestDriver
from streams.topology.ingest import Ingest
from streams.topology.plan import build_plan


def test_records_of_a_source_outside_kafka_go_through_the_topology() -> None:
    builder = StreamsBuilder()
    orders = builder.from_delta("/lake/orders", key="id", change_feed=True).to_table()
    orders.filter(lambda key, order: order["amount"] > 5).to_stream().to("large")
    with TopologyTestDriver(builder.build()) as driver:
        changes, large = driver.create_input_topic("delta-orders"), driver.create_output_topic("large")
        changes.pipe_input("1", {"id": 1, "amount": 7})
        changes.pipe_input("1", None)
        assert [(one.key, one.value) for one in large.read_records_to_list()] == [
            ("1", {"id": 1, "amount": 7}),
            ("1", None),
        ]


def test_the_topics_of_a_source_are_called_after_it() -> None:
    builder = StreamsBuilder()
    builder.from_dataframe(lambda spark: spark.range(3), "numbers", key="id", partitions=3).to("out")
    topology = builder.build()
    assert ingest_partitions(topology, "app") == {"app-numbers-repartition": 3}
    internal = build_plan(topology, "app").internal_topics
    assert internal["app-numbers-ingest-commits"] == "the commits of the source 'numbers'"
    assert topology.needs_delta is False


def test_a_topic_that_would_share_the_commits_of_a_source_is_refused() -> None:
    builder = StreamsBuilder()
    builder.from_dataframe(lambda spark: spark.range(3), "numbers").to("out")
    builder.stream("numbers-ingest").to("other")
    with pytest.raises(TopologyError, match="Two sub-topologies would be called 'numbers-ingest'"):
        build_plan(builder.build(), "app")


def test_a_topology_that_reads_a_delta_table_needs_delta() -> None:
    builder = StreamsBuilder()
    builder.from_delta("orders").to("out")
    assert builder.build().needs_delta is True


class _Reader:
    """Records how a DataFrame is asked for."""

    def __init__(self) -> None:
        self.said: list[tuple[str, ...]] = []
        self.readStream = self

    def __getattr__(self, name: str) -> Any:
        def say(*given: str, **options: str) -> _Reader:
            self.said.append((name, *given, *map("=".join, options.items())))
            return self

        return say


@pytest.mark.parametrize(
    ("table", "read"), [("/lake/orders", "load"), ("s3://lake/orders", "load"), ("sales.orders", "table")]
)
def test_a_delta_table_is_read_by_its_path_or_its_name(table: str, read: str) -> None:
    builder = StreamsBuilder()
    builder.from_delta(table, key="id", change_feed=True, options={"startingVersion": "7"}, named="orders")
    frame, spark = builder._graph.topology.ingests["orders"].frame, _Reader()
    assert isinstance(frame, DeltaRead)
    frame(spark)
    assert spark.said == [
        ("format", "delta"),
        ("options", "startingVersion=7"),
        ("option", "readChangeFeed", "true"),
        (read, table),
    ]


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda builder: builder.from_delta("t", change_feed=True), r"from_delta\(change_feed=True\) needs key="),
        (lambda builder: builder.from_dataframe(3, "n"), r"takes a function that makes the DataFrame"),
        (lambda builder: builder.from_dataframe(lambda spark: 0, "n", partitions=0), "at least one partition, not 0"),
        (lambda builder: builder.from_dataframe(lambda spark: 0, "a name"), "a name"),
        (lambda builder: [builder.from_delta("a/t"), builder.from_delta("b/t")], "are called 'delta-t'.*named="),
    ],
    ids=["a change feed without a key", "no function", "no partition", "a bad name", "a name twice"],
)
def test_a_source_that_cannot_be_is_refused(add: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        add(StreamsBuilder())


@pytest.mark.parametrize(
    ("key", "key_serde", "text", "data"),
    [
        ((), StringSerde(), None, None),
        (("id",), StringSerde(), "7", b"7"),
        (("id",), Int64Serde(), '{"id":7}', (7).to_bytes(8, "big")),
        (("a", "b"), JsonSerde(), '{"a":1,"b":"x"}', b'{"a":1,"b":"x"}'),
    ],
    ids=["no key", "text", "a number", "several columns"],
)
def test_keys_are_written_by_the_source_s_serde(key: Any, key_serde: Any, text: str | None, data: bytes | None) -> None:
    ingest = Ingest("n", 1, lambda spark: None, key, key_serde, JsonSerde())
    rows = written(ingest, text, '{"id":7}')
    assert (rows.keys.to_pylist(), rows.values.to_pylist(), list(rows.timestamps)) == ([data], [b'{"id":7}'], [3])


def test_deleted_rows_are_tombstones_whatever_the_serde() -> None:
    for serde in (JsonSerde(), BytesSerde()):
        ingest = Ingest("n", 1, lambda spark: None, ("id",), StringSerde(), serde)
        assert written(ingest, "7", None).values.to_pylist() == [None]


def written(ingest: Ingest, key: str | None, value: str | None) -> Rows:
    """A row as the record that is written."""
    texts = {"key": pa.array([key], pa.string()), "value": pa.array([value], pa.string())}
    part = pa.RecordBatch.from_pydict({**texts, "timestamp": [3], "hash": [1]})
    return RowRecords(ingest, Outputs(UnlimitedTopics(), TaskSettings("app")), "topic", 0, 0).of(part)
