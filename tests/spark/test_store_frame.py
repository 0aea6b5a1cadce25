"""Stores as DataFrames, on real Spark and Kafka: the committed rows of all tasks, by SQL, with the position they show."""

from __future__ import annotations

import pytest

from streams import JsonSerde, KafkaStreams, Materialized, StreamsBuilder, TimeWindows, Topology
from streams.errors import ConfigError
from tests.spark.harness import Harness, Sent


def topology(source: str) -> Topology:
    builder = StreamsBuilder()
    flights = builder.stream(source, value_serde=JsonSerde()).group_by_key()
    flights.aggregate(dict, lambda key, flight, total: {"sum": total.get("sum", 0) + flight}, Materialized(name="sums"))
    flights.windowed_by(TimeWindows.of_size_with_no_grace(3_600_000)).count(Materialized(name="hourly"))
    return builder.build()


def test_a_store_is_read_by_sql_as_of_the_last_commits(harness: Harness) -> None:
    source = harness.topic("in", 2)
    hour = 3_600_000
    harness.send(source, [Sent(b"UA", b"3", 5), Sent(b"UA", b"4", 6), Sent(b"DL", b"7", hour + 1)])
    harness.run(topology(source))
    streams = KafkaStreams(topology(source), harness.config())
    streams.store_dataframe("sums", harness.spark, value_schema="struct<sum:bigint>").createOrReplaceTempView("sums")
    streams.store_dataframe("hourly", harness.spark, value_schema="bigint").createOrReplaceTempView("hourly")
    sums = harness.spark.sql(
        "SELECT key, value.sum AS sum, timestamp, window_start, _version FROM sums ORDER BY key"
    ).collect()
    assert [(row.key, row.sum, row.window_start, row._version) for row in sums] == [
        ("DL", 7, None, 1),
        ("UA", 7, None, 1),
    ]
    hourly = harness.spark.sql(
        "SELECT key, unix_millis(window_start) AS start, unix_millis(window_end) AS end, value, _changelog_offset AS at "
        "FROM hourly ORDER BY key"
    ).collect()
    assert [(row.key, row.start, row.end, row.value) for row in hourly] == [
        ("DL", hour, 2 * hour, 1),
        ("UA", 0, hour, 2),
    ]
    assert all(row.at > 0 for row in hourly)

    # The view follows the application: each query reads what is committed by then.
    harness.send(source, [Sent(b"DL", b"1", hour + 2)])
    harness.run(topology(source))
    assert harness.spark.sql("SELECT sum(value.sum) AS sum FROM sums").collect()[0].sum == 15


def test_a_store_that_does_not_exist_is_named(harness: Harness) -> None:
    streams = KafkaStreams(topology("in"), harness.config())
    with pytest.raises(ConfigError, match=r"no store 'hourley'; it has: hourly, sums.*hourly"):
        streams.store_dataframe("hourley", harness.spark)
