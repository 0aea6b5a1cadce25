"""Sources: outside Kafka, with timestamps of their own, and partitioners on the way out. Neither Spark nor Kafka runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from state.commit.ingest import Rows
from state.kafka.key_hash import partition_for_key
from streams import (
    BytesSerde,
    Consumed,
    ConsumedRecord,
    FailOnInvalidTimestamp,
    Int64Serde,
    JsonSerde,
    LogAndSkipOnInvalidTimestamp,
    Produced,
    Repartitioned,
    StreamsBuilder,
    StringSerde,
    TimestampError,
    TimestampExtractor,
    TimeWindows,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    timestamp_field,
)
from streams.application.ingests import ingest_partitions
from streams.driver.ingest.writer import RowRecords
from streams.dsl.builder import DeltaRead
from streams.engine.graph.outputs import Outputs, UnlimitedTopics
from streams.engine.graph.settings import TaskSettings
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver
from streams.topology.graph.nodes import Ingest
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


# --- Timestamp extractors.


def record(timestamp=5, value=None):
    return ConsumedRecord("orders", 3, 17, timestamp, "k", value)


def test_valid_timestamps_pass():
    for extractor in (FailOnInvalidTimestamp(), LogAndSkipOnInvalidTimestamp(), UsePartitionTimeOnInvalidTimestamp()):
        assert extractor.extract(record(), 9, 100) == 5
        assert not extractor.needs_record


def test_invalid_timestamps():
    with pytest.raises(TimestampError, match="topic 'orders', partition 3, offset 17"):
        FailOnInvalidTimestamp().extract(record(-1), 9, 100)
    assert LogAndSkipOnInvalidTimestamp().extract(record(-7), 9, 100) < 0
    assert UsePartitionTimeOnInvalidTimestamp().extract(record(-1), 9, 100) == 9
    with pytest.raises(TimestampError, match="no earlier record"):
        UsePartitionTimeOnInvalidTimestamp().extract(record(-1), -1, 100)


def test_wall_clock_is_the_batchs():
    assert WallclockTimestampExtractor().extract(record(), 9, 100) == 100


@pytest.mark.parametrize(
    ("unit", "found", "expected"),
    [
        ("ms", 1_700_000_000_123, 1_700_000_000_123),
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("s", 1_700_000_000.5, 1_700_000_000_500),
        ("us", 1_700_000_000_123_999, 1_700_000_000_123),
        ("ns", 1_700_000_000_123_456_789, 1_700_000_000_123),
        ("iso", "2013-01-01T05:17:00Z", 1_357_017_420_000),
        ("iso", "2013-01-01T05:17:00", 1_357_017_420_000),
        ("iso", "2013-01-01T00:17:00.250-05:00", 1_357_017_420_250),
    ],
)
def test_field(unit, found, expected):
    extractor = timestamp_field("time.at", unit)
    assert extractor.needs_record
    assert extractor.extract(record(value={"time": {"at": found}}), -1, 0) == expected


@pytest.mark.parametrize("value", [None, {}, {"at": None}, {"at": True}, {"at": "soon"}, {"at": float("inf")}, 5])
@pytest.mark.parametrize("unit", ["ms", "iso"])
def test_field_without_a_time(value, unit):
    with pytest.raises(TimestampError, match="no time in the field 'at'"):
        timestamp_field("at", unit).extract(record(value=value), -1, 0)


def test_field_settings():
    for path, unit in (("at", "minutes"), ("", "ms"), ("a..b", "ms")):
        with pytest.raises(TopologyError):
            timestamp_field(path, unit)


def source_of(extractor):
    builder = StreamsBuilder()
    builder.stream("t", Consumed(timestamp_extractor=extractor))
    return next(builder.build().sources())


def test_functions_of_users():
    extractor = source_of(lambda record: record.value["at"] + 1).timestamp_extractor
    assert extractor.extract(record(value={"at": 1}), -1, 0) == 2
    extractor = source_of(lambda record, partition_time: partition_time).timestamp_extractor
    assert extractor.extract(record(), 44, 0) == 44
    with pytest.raises(TimestampError, match="must give epoch ms as int"):
        source_of(lambda record: 1.5).timestamp_extractor.extract(record(), -1, 0)


def test_a_class_as_in_java_is_called_for_each_record():
    class AsInJava(TimestampExtractor):
        def extract(self, record, partition_time):
            return record.value["at"]

    class AsHere(TimestampExtractor):
        def extract(self, record, partition_time, now_ms):
            return record.value["at"]

    for extractor in (AsInJava(), AsHere()):
        builder = StreamsBuilder()
        builder.stream("in", Consumed(timestamp_extractor=extractor)).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in").pipe_input("a", {"at": 44}, timestamp=1)
            assert driver.create_output_topic("out").read_record().timestamp == 44


def test_a_class_is_not_an_extractor():
    with pytest.raises(TopologyError, match=r"takes an object: WallclockTimestampExtractor\(\)"):
        source_of(WallclockTimestampExtractor)


# --- Custom partitioners: one partition, several (multicast, KIP-837), none (dropped), or Kafka's own choice.


def written_partitioners(partitioner, *values, **settings):
    """Partition and value of what is written_partitioners to four partitions, and how many records were dropped."""
    builder = StreamsBuilder()
    builder.stream("in").to("out", Produced(partitioner=partitioner))
    with TopologyTestDriver(builder.build(), partitions={"out": 4}, **settings) as driver:
        for at, value in enumerate(values):
            driver.create_input_topic("in").pipe_input("k", value, at, headers=(("h", b"1"),))
        records = driver.create_output_topic("out").read_records_to_list()
        assert all((r.key, r.headers) == ("k", (("h", b"1"),)) for r in records)
        return [(r.partition, r.value) for r in records], driver.dropped("no_partition")


def test_one_partition():
    assert written_partitioners(lambda topic, k, v, n: (v + n) % n, 1, 6) == ([(1, 1), (2, 6)], 0)


def test_none_is_kafkas_own_choice():
    assert written_partitioners(lambda topic, k, v, n: None, 5) == ([(partition_for_key(b"k", 4), 5)], 0)


@pytest.mark.parametrize("several", [{3, 0}, [3, 0, 3], (0, 3), frozenset({0, 3})])
def test_several_partitions_get_the_record_once_each(several):
    assert written_partitioners(lambda *_: several, 5, 6) == ([(0, 5), (0, 6), (3, 5), (3, 6)], 0)


def test_all_partitions():
    assert written_partitioners(lambda topic, k, v, n: range(n), 5) == ([(p, 5) for p in range(4)], 0)


def test_no_partition_drops_and_counts():
    assert written_partitioners(lambda topic, k, v, n: [] if v % 2 else [1], 1, 2, 3) == ([(1, 2)], 2)


@pytest.mark.parametrize("wrong", [4, -1, [0, 4]])
def test_a_partition_that_does_not_exist(wrong):
    with pytest.raises(RecordFailedError, match=r"topic 'out', which has 0\.\.3"):
        written_partitioners(lambda *_: wrong, 5)
    # All or nothing: the partitions before the wrong one get nothing either.
    assert written_partitioners(lambda *_: wrong, 5, production="skip")[0] == []


def test_a_topic_that_a_record_chooses_has_a_partitioner_too():
    builder = StreamsBuilder()
    builder.stream("in").to(lambda k, v, context: v, Produced(partitioner=lambda topic, k, v, count: count - 1))
    with TopologyTestDriver(builder.build(), partitions={"three": 3, "five": 5}) as driver:
        for value in ("three", "five"):
            driver.create_input_topic("in").pipe_input("k", value, 0)
            assert driver.create_output_topic(value).read_record().partition == {"three": 2, "five": 4}[value]


def test_a_topic_whose_partitions_are_not_known():
    target = Outputs(UnlimitedTopics(), TaskSettings("app", partition_counts={"known": 2})).target
    assert (target("known").partitions, target("unknown").partitions) == (2, 0)


def test_windowed_keys_are_handed_over_whole():
    builder = StreamsBuilder()
    seen = []
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    counts.to_stream().to("out", Produced(partitioner=lambda topic, k, v, n: seen.append(k) or [0, 2]))
    with TopologyTestDriver(builder.build(), partitions={"out": 4}) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 5)
        assert [r.partition for r in driver.create_output_topic("out").read_records_to_list()] == [0, 2]
    assert [key.key for key in seen] == ["k"]


def test_a_repartition_topic_may_multicast():
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(name="all", partitions=3, partitioner=lambda *_: {0, 2})).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [1, 1]
