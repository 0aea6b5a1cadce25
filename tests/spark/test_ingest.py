"""DataFrames as sources, on real Spark and Kafka: each row once, through batches that run again and starts that find all read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state.changelog import commits_topic
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from streams import Int64Serde, StreamsBuilder, Topology
from streams.driver.ingest.query import check_table
from streams.errors import ApplicationFailedError, ConfigError
from tests.spark.harness import Harness

BERLIN = {"spark.sql.adaptive.enabled": "true", "spark.sql.session.timeZone": "Europe/Berlin"}
"""Settings of a user's own session: adaptive execution is Spark's default."""
SCHEMA = "carrier STRING, delay INT, at TIMESTAMP"


def flights(folder: Path, *rows: tuple[str, int, str]) -> None:
    """Adds a file to the folder that a streaming DataFrame reads."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(("carrier", "delay", "at"), row, strict=True))) for row in rows]
    (folder / f"{len(list(folder.iterdir()))}.json").write_text("\n".join(lines))


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in BERLIN}
    for settings in (BERLIN, before):
        for name, value in settings.items():
            spark.conf.set(name, value)
        if settings is BERLIN:
            yield


def topology(folder: Path, delays: str, airlines: str) -> Topology:
    builder = StreamsBuilder()
    builder.from_dataframe(
        lambda spark: spark.readStream.schema(SCHEMA).json(str(folder)),
        "flights",
        key="carrier",
        timestamp="at",
        partitions=2,
    ).map_values(lambda flight: flight["delay"]).to(delays)
    builder.from_dataframe(
        lambda spark: spark.createDataFrame([(1, "UA", "United"), (2, "DL", "Delta")], "id INT, code STRING, name STRING"),
        "airlines", key="id", key_serde=Int64Serde(), partitions=2,
    ).to(airlines)  # fmt: skip
    return builder.build()


@pytest.mark.micro_batches("so that all reports are those of the sources")
def test_rows_of_dataframes_are_read_exactly_once(harness: Harness) -> None:
    delays, airlines, folder = harness.topic("delays"), harness.topic("airlines"), harness.folder / "in"
    flights(folder, ("UA", 3, "2013-01-01T05:00:00Z"), ("DL", 7, "2013-01-01T06:00:00Z"))
    harness.run(topology(folder, delays, airlines))
    flights(folder, ("UA", 5, "2013-01-01T07:00:00Z"))
    harness.run(topology(folder, delays, airlines))

    # Spark does not know that the last batch was written, so it runs again; so does the part of the other source.
    checkpoint = Path(harness.config().checkpoint_dir) / "flights-ingest"
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    progress = harness.run(topology(folder, delays, airlines))
    assert {report.decision for report in progress.reports} == {"skip"}

    found = sorted((record.key, record.value, record.timestamp) for record in harness.read(delays))
    assert found == [(b"DL", b"7", 1357020000000), (b"UA", b"3", 1357016400000), (b"UA", b"5", 1357023600000)]
    assert sorted((record.key, record.value) for record in harness.read(airlines)) == [
        ((1).to_bytes(8, "big"), b'{"id":1,"code":"UA","name":"United"}'),
        ((2).to_bytes(8, "big"), b'{"id":2,"code":"DL","name":"Delta"}'),
    ]

    # Files have offsets that only their lost checkpoint explains.
    shutil.rmtree(checkpoint)
    with pytest.raises(
        ApplicationFailedError, match=r"(?s)should write batch 0 .*has last written batch 1 of query .*Put back"
    ):
        harness.run(topology(folder, delays, airlines))
    assert len(harness.read(delays)) == 3


def test_a_column_that_is_missing_is_named_before_anything_is_written(harness: Harness) -> None:
    builder = StreamsBuilder()
    builder.from_dataframe(lambda spark: spark.range(3), "numbers", key="number").to(harness.topic("out"))
    with pytest.raises(ConfigError, match="the source 'numbers' has no column 'number'; it has id"):
        harness.run(builder.build())


@pytest.mark.long
def test_a_checkpoint_that_is_one_batch_behind_is_refused_until_the_right_one_is_put_back(
    harness: Harness, berlin: None
) -> None:
    """In a session of the user's own, in which a batch without rows had no tasks."""
    delays, folder = harness.topic("delays"), harness.folder / "in"
    checkpoint = Path(harness.config().checkpoint_dir) / "flights-ingest"
    program = topology(folder, delays, harness.topic("airlines"))
    flights(folder, ("UA", 1, "2013-01-01T05:00:00Z"), ("DL", 2, "2013-01-01T05:00:00Z"))
    harness.run(program)
    flights(folder)
    harness.run(program)
    shutil.copytree(checkpoint, harness.folder / "yesterday")
    flights(folder, ("UA", 3, "2013-01-01T05:00:00Z"))
    harness.run(program)
    assert sorted(int(record.value or b"") for record in harness.read(delays)) == [1, 2, 3]

    checkpoint.rename(harness.folder / "today")
    (harness.folder / "yesterday").rename(checkpoint)
    flights(
        folder, ("UA", 4, "2013-01-01T05:00:00Z"), ("DL", 5, "2013-01-01T05:00:00Z"), ("AA", 6, "2013-01-01T05:00:00Z")
    )
    with pytest.raises(
        ApplicationFailedError, match=r"(?s)has last written batch 2 of query .*, which ended elsewhere"
    ):
        harness.run(program)
    assert len(harness.read(delays)) == 3
    shutil.rmtree(checkpoint)
    (harness.folder / "today").rename(checkpoint)
    harness.run(program)
    assert sorted(int(record.value or b"") for record in harness.read(delays)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.micro_batches("so that all reports are those of the sources")
def test_times_are_in_utc_in_any_session_and_lost_markers_are_refused(harness: Harness, berlin: None) -> None:
    rows = (
        "SELECT timestamp'2013-10-27T00:30:00Z' at, date'2013-03-31' day, timestamp_ntz'2013-03-31T02:30:00.123' local "
        "UNION ALL SELECT timestamp'2013-10-27T01:30:00.5Z', date'2013-04-01', timestamp_ntz'2013-04-01T00:00:00'"
    )
    builder, topics = StreamsBuilder(), {}
    for name, key, time in (("plain", "at", "at"), ("both", ("at", "day"), "day"), ("free", "local", "local")):
        topics[name] = harness.topic(name, 1)
        builder.from_dataframe(lambda spark: spark.sql(rows), name, key=key, timestamp=time, partitions=2).to(
            topics[name]
        )
    builder.from_dataframe(lambda spark: spark.sql(rows).where("false"), "empty", partitions=2).to(topics["plain"])
    program = builder.build()
    harness.run(program)
    found = {
        name: sorted((record.key, record.timestamp) for record in harness.read(topic)) for name, topic in topics.items()
    }
    assert found == {
        "plain": [(b"2013-10-27 00:30:00", 1382833800000), (b"2013-10-27 01:30:00.5", 1382837400500)],
        "both": [
            (b'{"at":"2013-10-27T00:30:00.000Z","day":"2013-03-31"}', 1364688000000),
            (b'{"at":"2013-10-27T01:30:00.500Z","day":"2013-04-01"}', 1364774400000),
        ],
        "free": [(b"2013-03-31 02:30:00.123", 1364697000123), (b"2013-04-01 00:00:00", 1364774400000)],
    }
    assert all(b'Z","day"' in (record.value or b"") for record in harness.read(topics["plain"]))
    # All are read, the one without rows as well.
    assert harness.run(program).reports == []
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        admin.delete_topics([commits_topic(harness.application_id, "plain-ingest")])
    with pytest.raises(
        CheckpointMismatchError, match=r"no task of .*/plain-ingest has a marker of a batch, but the topic"
    ):
        harness.run(program)
    assert len(harness.read(topics["plain"])) == 2


def test_rows_that_cannot_be_written_do_not_stop_a_source(harness: Harness) -> None:
    delays, dead, folder = harness.topic("delays", 1), harness.topic("dead", 1), harness.folder / "in"
    program = topology(folder, delays, harness.topic("airlines"))
    flights(folder, ("UA", 1, "1900-01-01T00:00:00Z"), ("L" * 1_100_000, 2, "2013-01-01T05:00:00Z"))
    with pytest.raises(
        ApplicationFailedError, match=r"a row of a source outside Kafka, key b'LLL.*set the policy 'production'"
    ):
        harness.run(program)
    # The tasks without such a row have written their part; the batch is finished by another policy.
    progress = harness.run(program, production="dlq", dead_letter_topic=dead)
    flights(folder, ("UA", 3, "1969-12-31T23:59:59Z"))
    reports = [*progress.reports, *harness.run(program).reports]
    assert sum(report.counters.get("dead_letters:production", 0) for report in reports) == 1
    assert any(report.counters.get("early:flights") for report in reports)
    assert [(record.value, record.timestamp) for record in harness.read(delays)] == [(b"1", 0), (b"3", 0)]
    (letter,) = harness.read(dead)
    assert dict(letter.headers)["__streams.errors.exception"] == b"OversizedRecordError"


# --- Delta's change data feed as a source, on real Delta, Spark and Kafka.


def feed(table: Path, topic: str) -> Topology:
    builder = StreamsBuilder()
    builder.from_delta(table, key="id", change_feed=True, named="orders", partitions=2).to(topic)
    return builder.build()


def test_a_table_that_is_missing_or_records_no_changes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    spark.range(1).write.format("delta").save(str(plain))
    for table, told in ((tmp_path / "missing", "and there is none"), (plain, "that table records no changes")):
        (ingest,) = feed(table, "out").ingests.values()
        with pytest.raises(ConfigError, match=told):
            check_table(spark, ingest)


def test_the_changes_of_a_table_follow_its_rows_and_a_lost_checkpoint_is_made_again(harness: Harness) -> None:
    target, table, spark = harness.topic("target", 1), harness.folder / "orders", harness.spark
    rows = spark.createDataFrame([(1, 5.0), (2, 7.5)], "id INT, amount DOUBLE").coalesce(1)
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(table))
    program = feed(table, target)
    harness.run(program)
    spark.sql(f"UPDATE delta.`{table}` SET amount = 6.0 WHERE id = 1")
    harness.run(program)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 2")
    shutil.rmtree(Path(harness.config().checkpoint_dir) / "orders-ingest")
    told = harness.run(program).console.file.getvalue()  # type: ignore[attr-defined]
    assert "the checkpoint of 'orders' was missing: made again up to batch 1" in " ".join(told.split())
    found = [(record.key, record.value) for record in harness.read(target)]
    assert sorted(found[:2]) == [(b"1", b'{"id":1,"amount":5.0}'), (b"2", b'{"id":2,"amount":7.5}')]
    assert found[2:] == [(b"1", b'{"id":1,"amount":6.0}'), (b"2", None)]
