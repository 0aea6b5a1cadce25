"""`to_sink` in a topology, and `OpenSink`: what a sink gets of a batch, and the positions that it is refused with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streams import JsonSerde, StreamsBuilder, TopologyError
from streams.engine.source.offsets import TopicOffsets
from streams.errors import LakeConflictError, LakePositionError
from streams.lake.commit import SavedCommit, SinkCommit, SinkId, TopicLog, resume
from streams.lake.sink import OpenSink
from streams.lake.writer import LakeWriter, arrow_schema
from streams.model.table_columns import ColumnRule, RecordPart, RowLayout, ScalarType, TableColumn
from streams.sinks import SqliteSink
from streams.testing import TopologyTestDriver

OF = SinkId("app", "db")
LAYOUT = RowLayout(
    (
        TableColumn("key", ScalarType("STRING"), RecordPart.KEY),
        TableColumn("n", ScalarType("BIGINT"), RecordPart.FIELD),
    ),
    ("key",),
)
LOG = TopicLog("app-db-repartition", "topic-1", [0, 0], [9, 9])


class Frame:
    """Rows as Spark gives them, in any order."""

    def __init__(self, *rows: tuple[str, int | None, int, int]) -> None:
        names = ("key", "n", "_partition", "_offset")
        self._rows = [{**dict(zip(names, row, strict=True)), "_deleted": row[1] is None} for row in rows]

    def toArrow(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, arrow_schema(LAYOUT))


def writer(path: Path, saved: SavedCommit | None = None, log: TopicLog = LOG) -> LakeWriter[Any]:
    sink = OpenSink(OF, SqliteSink(path, "orders"), LAYOUT)
    found = sink.newest_commit() if sink.exists() else None
    return LakeWriter(OF, sink, resume(OF, "sqlite table orders", found, sink.table_id(), saved, log))


def end(*offsets: int) -> TopicOffsets:
    return TopicOffsets("topic-1", offsets)


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT key, n FROM orders"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def test_the_last_row_of_each_key_decides_and_the_next_start_continues_there(path: Path) -> None:
    first = writer(path)
    first.write(Frame(("a", 2, 0, 1), ("b", 1, 1, 0), ("a", 1, 0, 0)), end(2, 1))
    first.write(
        Frame(("b", None, 1, 1), ("c", None, 1, 2), ("c", 3, 1, 3), ("a", 9, 0, 2), ("a", None, 0, 3)), end(4, 4)
    )
    assert rows(path) == [("c", 3)]
    again = writer(path)
    assert again.at == SinkCommit(2, end(4, 4), again.at.attempt)
    again.write(Frame(("a", 5, 0, 4)), end(5, 4))
    assert rows(path) == [("a", 5), ("c", 3)]


def test_of_two_drivers_that_continue_from_one_position_one_writes(path: Path) -> None:
    one, other = writer(path), writer(path)
    one.write(Frame(("a", 1, 0, 0)), end(1, 0))
    with pytest.raises(LakeConflictError, match="app/db: another instance of the application has written"):
        other.write(Frame(("b", 1, 1, 0)), end(0, 1))
    assert rows(path) == [("a", 1)]


def test_a_store_without_the_position_that_it_had_is_refused(path: Path) -> None:
    first = writer(path)
    first.write(Frame(("a", 1, 0, 0)), end(1, 0))
    saved = SavedCommit(first.at, "sink")
    with pytest.raises(LakePositionError, match="the sqlite table orders is not the one that was written last"):
        writer(path.with_name("other.db"), saved)


def test_rows_of_before_a_reset_are_refused(path: Path) -> None:
    writer(path).write(Frame(("a", 1, 0, 0)), end(1, 0))
    with pytest.raises(LakePositionError, match=r"has rows of the internal topic .* as it was before"):
        writer(path, log=TopicLog(LOG.name, "topic-2", [0, 0], [0, 0]))


def test_a_position_that_somebody_else_has_written_is_refused(path: Path) -> None:
    writer(path).write(Frame(("a", 1, 0, 0)), end(1, 0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE streams_positions SET position = '7'")
        connection.commit()
    with pytest.raises(LakePositionError, match="a position of this sink that was not written by it: '7'"):
        writer(path)


def test_rows_by_key_need_a_key(path: Path) -> None:
    assert OpenSink(OF, SqliteSink(path, "orders"), LAYOUT).rules() == (ColumnRule("key", required=True),)
    assert OpenSink(OF, SqliteSink(path, "orders"), RowLayout(LAYOUT.columns)).rules() == ()


def test_declaring_a_sink_opens_nothing_and_the_test_driver_shows_its_rows(path: Path) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value_serde=JsonSerde())
    orders.group_by_key().count().to_sink(SqliteSink(path, "counts"), "counts-db", value="orders")
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("orders")
        for key in ("a", "b", "a"):
            piped.pipe_input(key, {"n": 1}, 5)
        assert {row["key"]: row["orders"] for row in driver.table_rows("counts-db")} == {"a": 2, "b": 1}
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((object(), "db"), "takes an object with target, open, write, commit and close"),
        ((SqliteSink, "db"), "takes an object with target, open, write, commit and close"),
        ((SqliteSink("a", "b"), ""), "name"),
        ((SqliteSink("a", "b"), "db", "replace"), "the mode is 'append' or 'upsert'"),
    ],
)
def test_a_wrong_sink_is_refused_where_it_is_declared(arguments: tuple[Any, ...], said: str) -> None:
    stream = StreamsBuilder().stream("orders", value_serde=JsonSerde())
    with pytest.raises(TopologyError, match=said):
        stream.to_sink(*arguments, schema={"n": int})


def test_keys_with_parts_are_refused() -> None:
    stream = StreamsBuilder().stream("orders", value_serde=JsonSerde())
    with pytest.raises(TopologyError, match="tags has parts, so no row can be found by it"):
        stream.to_sink(SqliteSink("a", "b"), "db", "upsert", keys="tags", schema={"tags": list[str]})
