"""Lake sinks on real Spark, Kafka and Delta: each record once through faults at every step, and what Delta itself does."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from state.kafka.admin import KafkaAdmin
from streams import JsonSerde, StreamsBuilder, Topology
from streams.application.adopt import lost_sinks
from streams.application.prepare import plan_application
from streams.checkpoint.files import LocalFiles
from streams.cli.main import app
from streams.cli.target import load_topology
from streams.driver.lake.delta_table import SparkDeltaTable
from streams.engine.source.offsets import TopicOffsets
from streams.errors import ApplicationFailedError, LakePositionError, LakeSchemaError
from streams.lake.commit import SinkCommit, SinkId, write_checkpoint
from streams.lake.writer import WriteConflictError
from streams.model.table_columns import RecordPart, RowLayout, ScalarType, TableColumn
from streams.sinks import SqliteSink
from streams.topology.graph import DeltaTable
from tests.spark.harness import Harness, Sent

SINK = SinkId("app", "delta-orders")
KEY = TableColumn("key", ScalarType("STRING"), RecordPart.KEY)
AMOUNT = TableColumn("amount", ScalarType("BIGINT"), RecordPart.FIELD)
NOTE = TableColumn("note", ScalarType("STRING"), RecordPart.FIELD)


def order(number: int) -> Sent:
    return Sent(f"k{number % 3}".encode(), orjson.dumps({"id": number}), 1000 + number)


FAULTS = ("offsets_logged", "rows_written", "table_committed", "function_returned")


@pytest.mark.parametrize("faults", [FAULTS[2:], pytest.param(FAULTS, marks=pytest.mark.long)], ids=["late", "all"])
def test_each_record_is_in_the_tables_once_after_faults_at_every_step(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, faults: tuple[str, ...]
) -> None:
    orders = harness.topic("orders")
    appended, counted = harness.folder / "appended", harness.folder / "counted"
    database = harness.folder / "shop.db"
    handed_over: list[tuple[int, list[Any]]] = []

    def hand_over(frame: DataFrame, batch_id: int) -> None:
        handed_over.append((batch_id, sorted(row.id for row in frame.collect())))

    def build() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(orders, value_serde=JsonSerde())
        stream.to_delta(appended, schema={"id": int})
        counts = stream.filter(lambda one: one["id"] >= 0).group_by_key().count()
        counts.to_delta(counted, value="orders")
        counts.to_sink(SqliteSink(database, "counted"), "counted-db", value="orders")
        stream.foreach_batch(hand_over, "handed-over", schema={"id": int})
        return builder.build()

    def fails_at(point: str) -> Callable[[], Callable[[str], None]]:
        def reach(at: str) -> None:
            if at == point:
                raise OSError(f"a fault at {at}")

        return lambda: reach

    sent = 0
    for point in (*faults, "none"):
        harness.send(orders, map(order, range(sent, sent + 5)))
        sent += 5
        monkeypatch.setattr("streams.driver.lake.query.faults_from_environment", fails_at(point))
        if point == "none":
            harness.run(build())
        else:
            with pytest.raises(ApplicationFailedError, match=f"a fault at {point}"):
                harness.run(build())
    rows = harness.spark.read.format("delta").load(str(appended)).collect()
    assert sorted(row.id for row in rows) == list(range(sent))
    counts = {row.key: row.orders for row in harness.spark.read.format("delta").load(str(counted)).collect()}
    assert counts == Counter(f"k{number % 3}" for number in range(sent))
    with closing(sqlite3.connect(database)) as connection:
        assert dict(connection.execute("SELECT key, orders FROM counted")) == counts
    by_number = dict(handed_over)
    assert all(by_number[number] == found for number, found in handed_over), "a repeated batch has the same rows"
    assert len(handed_over) > len(by_number), "a batch was repeated"
    assert sorted(one for found in by_number.values() for one in found) == list(range(sent))


@pytest.mark.long
def test_a_project_with_the_template_for_the_lake_writes_its_two_tables(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(harness.folder)
    monkeypatch.delitem(sys.modules, "app", raising=False)
    assert CliRunner().invoke(app, ["init", "shop", "--template", "lake"]).exit_code == 0
    visits, lake = harness.topic("visits"), harness.folder / "lake"
    program = Path("shop", "app.py")
    program.write_text(program.read_text().replace('"visits")', f'"{visits}")', 1).replace('"lake/', f'"{lake}/'))
    names = ("ann", "bob", "eve")
    harness.send(visits, [Sent(b"/home", orjson.dumps({"user": name}), 1000 + n) for n, name in enumerate(names)])
    harness.run(load_topology("shop/app.py"))
    tables = harness.spark.read.format("delta")
    rows = tables.load(str(lake / "visits")).collect()
    assert sorted((row.page, row.user) for row in rows) == [("/home", name) for name in names]
    assert [(row.page, row.visits) for row in tables.load(str(lake / "visits_by_hour")).collect()] == [("/home", 3)]


@pytest.mark.long
def test_a_function_gets_no_number_again_with_other_rows_and_may_leave_the_program(harness: Harness) -> None:
    orders = harness.topic("orders")
    checkpoint = Path(harness.config().checkpoint_dir)
    handed_over: list[tuple[int, list[int]]] = []

    def hand_over(frame: DataFrame, batch_id: int) -> None:
        handed_over.append((batch_id, sorted(row.id for row in frame.collect())))
        if handed_over.count(handed_over[-1]) == 1 and batch_id == 2:
            raise OSError("the archive is away")

    def adopt() -> None:
        shutil.rmtree(checkpoint / "archive")
        files = LocalFiles(str(checkpoint))
        with KafkaAdmin(harness.config().client) as admin:
            lost = lost_sinks(plan_application(build(), harness.config(), admin), files, admin)
        write_checkpoint(files, "archive", lost["archive"])

    def build(name: str = "archive") -> Topology:
        builder = StreamsBuilder()
        builder.stream(orders, value_serde=JsonSerde()).foreach_batch(hand_over, name, schema={"id": int})
        return builder.build()

    harness.send(orders, map(order, range(5)))
    harness.run(build())
    shutil.copytree(checkpoint / "archive", checkpoint / "copy")
    harness.send(orders, map(order, range(5, 10)))
    harness.run(build())
    shutil.rmtree(checkpoint / "archive")
    with pytest.raises(LakePositionError, match="is missing, but batch 1 was handed over last"):
        harness.run(build())
    shutil.move(checkpoint / "copy", checkpoint / "archive")
    with pytest.raises(LakePositionError, match="ends with batch 0, but batch 1 was handed over last"):
        harness.run(build())
    adopt()
    harness.send(orders, map(order, range(10, 12)))
    with pytest.raises(ApplicationFailedError, match="the archive is away"):
        harness.run(build())
    adopt()
    harness.send(orders, [order(12)])
    harness.run(build())
    harness.send(orders, [order(13)])
    harness.run(build("renamed"))
    assert handed_over == [
        (0, [0, 1, 2, 3, 4]),
        (1, [5, 6, 7, 8, 9]),
        (2, [10, 11]),
        (2, [10, 11]),
        (3, [12]),
        (0, [13]),
    ]


def test_rows_that_wait_can_be_given_up_where_the_errors_advise_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, table = harness.topic("orders"), harness.folder / "table"
    checkpoint = Path(harness.config().checkpoint_dir)
    handed_over: list[tuple[int, list[int]]] = []

    def hand_over(frame: DataFrame, batch_id: int) -> None:
        handed_over.append((batch_id, sorted(row.id for row in frame.collect())))

    def build() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(orders, value_serde=JsonSerde())
        stream.group_by_key().count(named="counts").to_stream().to(counts)
        stream.to_delta(table, schema={"id": int})
        stream.foreach_batch(hand_over, "archive", schema={"id": int})
        return builder.build()

    def follow_advice(error: str) -> None:
        (advice,) = re.findall(r"`streams (reset \S+ --drop-sink \S+)`", error)
        options = ["-b", harness.servers, "--base-dir", str(harness.folder), "--yes"]
        result = CliRunner().invoke(app, [*advice.split(), *options])
        assert result.exit_code == 0, result.output

    def dies(at: str) -> None:
        if at == "offsets_logged":
            raise OSError("the driver dies")

    monkeypatch.setattr("streams.application.reset.RECENT_MS", 0)
    counts = harness.topic("counts")
    harness.send(orders, map(order, range(3)))
    harness.run(build())
    with monkeypatch.context() as patch:
        patch.setattr("streams.driver.lake.query.faults_from_environment", lambda: dies)
        harness.send(orders, map(order, range(3, 6)))
        with pytest.raises(ApplicationFailedError, match="the driver dies"):
            harness.run(build())
    shutil.rmtree(table)
    shutil.rmtree(checkpoint / "archive")
    with pytest.raises(LakePositionError, match="was dropped or replaced") as refused:
        harness.run(build())
    follow_advice(str(refused.value))
    with pytest.raises(LakePositionError, match="is missing, but batch 0 was handed over last") as refused:
        harness.run(build())
    follow_advice(str(refused.value))
    harness.send(orders, map(order, range(6, 9)))
    harness.run(build())
    rows = harness.spark.read.format("delta").load(str(table)).collect()
    assert sorted(row.id for row in rows) == [6, 7, 8], "3 to 5 were given up"
    assert handed_over == [(0, [0, 1, 2]), (0, [6, 7, 8])]
    assert len(harness.read(counts)) == 9, "the rest of the state goes on"


def test_records_that_break_a_rule_of_the_table_meet_the_policy(harness: Harness) -> None:
    orders, dead, path = harness.topic("orders"), harness.topic("dead"), harness.folder / "table"
    harness.spark.sql(
        f"CREATE TABLE delta.`{path}` (key STRING, timestamp TIMESTAMP, id BIGINT NOT NULL, note VARCHAR(4)) USING delta"
    )
    builder = StreamsBuilder()
    schema = {"id": int | None, "note": str | None}
    builder.stream(orders, value_serde=JsonSerde()).to_delta(path, schema=schema)
    values = [{"id": 1, "note": "fine"}, {"note": "none"}, {"id": 3, "note": "too long"}, {"id": 4}]
    harness.send(orders, [Sent(b"k", orjson.dumps(value), 1000) for value in values])
    harness.run(builder.build(), processing="dlq", dead_letter_topic=dead)
    rows = harness.spark.read.format("delta").load(str(path)).collect()
    assert sorted(row.id for row in rows) == [1, 4]
    assert sorted(read.value for read in harness.read(dead)) == sorted(map(orjson.dumps, values[1:3]))


def commit(version: int, attempt: str) -> SinkCommit:
    return SinkCommit(version, TopicOffsets("topic-1", (version,)), attempt)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], columns: str = "key STRING, amount BIGINT") -> DataFrame:
    return spark.createDataFrame(rows, f"{columns}, _partition INT, _offset BIGINT, _deleted BOOLEAN")


def read(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


def test_a_table_takes_a_version_once_and_evolves_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    target = DeltaTable(str(path), True)
    table = SparkDeltaTable(spark, SINK, target, RowLayout((KEY, AMOUNT)))
    table_id = table.prepare()
    assert table.newest_commit() is None
    table.write(frame(spark, [("a", 1, 0, 0, False)]), commit(1, "mine"))
    table.write(frame(spark, [("a", 2, 0, 0, False)]), commit(1, "another"))
    assert read(spark, path) == [("a", 1)]
    assert table.newest_commit() == commit(1, "mine")
    wider = RowLayout((KEY, AMOUNT, NOTE))
    with pytest.raises(LakeSchemaError, match="has no column note"):
        SparkDeltaTable(spark, SINK, target, wider).prepare()
    other = TableColumn("amount", ScalarType("STRING"), RecordPart.FIELD)
    with pytest.raises(LakeSchemaError, match=r"'amount' of the table .* is bigint, and the sink writes string"):
        SparkDeltaTable(spark, SINK, target, RowLayout((KEY, other))).prepare()
    grown = SparkDeltaTable(spark, SINK, DeltaTable(str(path), True, add_columns=True), wider)
    assert grown.prepare() == table_id
    new = frame(spark, [("b", 3, "n", 0, 1, False)], "key STRING, amount BIGINT, note STRING")
    grown.write(new, commit(2, "mine"))
    assert read(spark, path) == [("a", 1, None), ("b", 3, "n")]
    grown.write(new.limit(0), commit(3, "no rows: only what ends transactions"))
    assert grown.newest_commit() == commit(3, "no rows: only what ends transactions")
    with pytest.raises(LakeSchemaError, match="is partitioned by nothing, and the sink by key"):
        SparkDeltaTable(spark, SINK, DeltaTable(str(path), True, ("key",)), RowLayout((KEY, AMOUNT))).prepare()


def test_of_two_writers_at_once_delta_refuses_the_slower_one(spark: SparkSession, tmp_path: Path) -> None:
    path, begun, go_on = tmp_path / "orders", str(tmp_path / "begun"), str(tmp_path / "go-on")
    table = SparkDeltaTable(spark, SINK, DeltaTable(str(path), True), RowLayout((KEY, AMOUNT)))
    table.prepare()

    def held(batches: Iterator[Any]) -> Iterator[Any]:
        Path(begun).touch()
        while not Path(go_on).exists():
            time.sleep(0.05)
        yield from batches

    rows = frame(spark, [("a", 1, 0, 0, False)]).coalesce(1)
    with ThreadPoolExecutor(1) as pool:
        slower = pool.submit(table.write, rows.mapInPandas(held, rows.schema), commit(1, "slower"))
        while not Path(begun).exists() and not slower.done():
            time.sleep(0.05)
        table.write(rows, commit(1, "faster"))
        Path(go_on).touch()
        with pytest.raises(WriteConflictError):
            slower.result(60)
    assert table.newest_commit() == commit(1, "faster")
    assert read(spark, path) == [("a", 1)]


def test_an_upsert_takes_the_last_row_of_a_key_and_deletes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = SparkDeltaTable(spark, SINK, DeltaTable(str(path), True), RowLayout((KEY, AMOUNT), ("key",)))
    table.prepare()
    first = [("a", 1, 0, 0, False), ("a", 3, 0, 2, False), ("a", 2, 0, 1, False), ("b", 1, 1, 0, False)]
    table.write(frame(spark, [*first, ("c", None, 1, 1, True)]), commit(1, "mine"))
    assert read(spark, path) == [("a", 3), ("b", 1)]
    table.write(frame(spark, [("b", 5, 1, 2, False), ("b", None, 1, 3, True)]), commit(2, "mine"))
    table.write(frame(spark, [("a", 0, 0, 0, False)]), commit(1, "an older batch"))
    assert read(spark, path) == [("a", 3)]
    table.write(frame(spark, [("unknown", None, 0, 9, True)]), commit(3, "nothing to delete"))
    assert table.newest_commit() == commit(3, "nothing to delete")
    shutil.rmtree(path)
    with pytest.raises(LakePositionError, match="was dropped or replaced while the application ran"):
        table.write(frame(spark, [("d", 1, 0, 10, False)]), commit(4, "mine"))
    assert not path.exists()


CHECKED = (("a", -1, 0, 0, False), "CHECK constraint positive .* amount : -1", "DROP CONSTRAINT positive")
NO_NULL = (
    ("b", None, 0, 1, False),
    "NOT NULL constraint violated for column: amount",
    "ALTER COLUMN amount DROP NOT NULL",
)
SHORT = (("long", 1, 0, 2, False), 'Value "long" exceeds', "ALTER COLUMN key TYPE STRING")


@pytest.mark.parametrize(("keys", "rules"), [((), [NO_NULL]), (("key",), [CHECKED, SHORT])], ids=["append", "upsert"])
def test_a_row_that_breaks_a_rule_of_the_table_is_named_and_the_advice_helps(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...], rules: list[tuple[tuple[Any, ...], str, str]]
) -> None:
    path = tmp_path / "orders"
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (key VARCHAR(3), amount BIGINT NOT NULL) USING delta")
    if CHECKED in rules:
        spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (amount > 0)")
    table = SparkDeltaTable(spark, SINK, DeltaTable(str(path), True), RowLayout((KEY, AMOUNT), keys))
    table.prepare()
    for version, (row, says, advice) in enumerate(rules, 1):
        with pytest.raises(LakeSchemaError, match=rf"does not take a row of this batch: {says}.*Nothing of the batch"):
            table.write(frame(spark, [row]), commit(version, "mine"))
        spark.sql(f"ALTER TABLE {name} {advice}")
        table.write(frame(spark, [row]), commit(version, "mine"))
    assert read(spark, path) == sorted(row[:2] for row, *_ in rules)
