"""`SqliteSink`: the contract, the types of its columns, and what it refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streams.errors import LakePositionError, LakeSchemaError, SinkUnavailableError
from streams.sinks import SinkTable, SqliteSink
from streams.sinks import sql as module
from streams.testing import check_sink
from tests.sinks.rows import NONE, NUMBERS, ROW, SCHEMA, numbers


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.mark.slow
def test_it_has_each_row_once_whatever_is_killed(path: Path) -> None:
    check_sink(lambda name: SqliteSink(path, name), lambda name: rows_of(path, name))


def test_columns_have_the_types_of_the_database(path: Path) -> None:
    sink = SqliteSink(path, "flights")
    sink.open(SinkTable("app/sink", SCHEMA))
    sink.write(pa.Table.from_pylist([ROW, dict.fromkeys(ROW)], SCHEMA), pa.table({}))
    sink.commit("1", None)
    full, empty = rows_of(path, "flights")
    assert full == {
        **ROW,
        "yes": 1,
        "at": "2026-01-02T03:00:00+00:00",
        "day": "2026-01-02",
        "price": "9.500000000000000000",
        "tags": '{"a":"b"}',
        "legs": '[{"from":"JFK","miles":null}]',
    }
    assert set(empty.values()) == {None}


@pytest.mark.parametrize(
    "create",
    ["CREATE TABLE orders (key TEXT PRIMARY KEY)", "CREATE TABLE orders (key TEXT, n INTEGER)"],
    ids=["a column is missing", "no unique index"],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(path: Path, create: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(create)
    with pytest.raises(LakeSchemaError, match=r"app/sink: the sqlite table orders .* does not have the columns"):
        SqliteSink(path, "orders").open(NUMBERS)


def test_a_table_of_the_users_gets_the_rows_in_its_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (n INTEGER, note TEXT DEFAULT 'new', key TEXT PRIMARY KEY)")
    sink = SqliteSink(path, "orders")
    assert sink.open(NUMBERS) is None
    sink.write(numbers(("a", 1)), NONE)
    sink.commit("1", None)
    assert rows_of(path, "orders") == [{"n": 1, "note": "new", "key": "a"}]


def test_a_batch_that_the_table_refuses_leaves_nothing(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (key TEXT PRIMARY KEY, n INTEGER CHECK (n < 9))")
    sink = SqliteSink(path, "orders")
    sink.open(NUMBERS)
    with pytest.raises(LakeSchemaError, match="does not take this batch: CHECK constraint failed"):
        sink.write(numbers(("a", 1), ("b", 10)), NONE)
    assert rows_of(path, "orders") == []
    assert sink.open(NUMBERS) is None


def test_a_table_that_was_dropped_is_not_begun_again_behind_its_position(path: Path) -> None:
    sink = SqliteSink(path, "orders")
    sink.open(NUMBERS)
    sink.write(numbers(("a", 1)), NONE)
    sink.commit("1", None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE orders")
    with pytest.raises(LakePositionError, match="was dropped") as refused:
        SqliteSink(path, "orders").open(NUMBERS)
    forget = str(refused.value).rpartition(": ")[2].rstrip(".")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(forget)
        connection.commit()
    assert SqliteSink(path, "orders").open(NUMBERS) is None


def test_two_sinks_share_a_table_and_keep_their_own_positions(path: Path) -> None:
    for owner, key in (("app/one", "a"), ("app/two", "b")):
        sink = SqliteSink(path, "orders")
        assert sink.open(SinkTable(owner, NUMBERS.schema, ("key",))) is None
        sink.write(numbers((key, 1)), NONE)
        sink.commit(owner, None)
    assert [row["key"] for row in rows_of(path, "orders")] == ["a", "b"]
    assert SqliteSink(path, "orders").open(SinkTable("app/one", NUMBERS.schema, ("key",))) == "app/one"


def test_a_file_that_another_transaction_holds_is_away_and_not_wrong(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0)
    sink = SqliteSink(path, "orders")
    sink.open(NUMBERS)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkUnavailableError, match="does not answer: database is locked"):
            sink.write(numbers(("a", 1)), NONE)


def _sees_a_batch_before_its_commit(path: Path) -> SqliteSink:
    class Hasty(SqliteSink):
        def write(self, rows: pa.Table, deleted: pa.Table) -> None:
            super().write(rows, deleted)
            self._run("COMMIT")
            self._run("BEGIN")

    return Hasty(path, "orders")


def _lets_zombies_write(path: Path) -> SqliteSink:
    class Trusting(SqliteSink):
        def commit(self, position: str, after: str | None) -> None:
            insert = f"INSERT INTO {self._positions} VALUES (?, ?)"
            self._run(f"{insert} ON CONFLICT DO UPDATE SET position = excluded.position", self._table.owner, position)
            self._run("COMMIT")
            self._has_table = self._has_positions = True

    return Trusting(path, "orders")


def _keeps_the_position_apart(path: Path) -> SqliteSink:
    class Apart(SqliteSink):
        def commit(self, position: str, after: str | None) -> None:
            self._run("COMMIT")
            self._run("BEGIN")
            super().commit(position, after)

    return Apart(path, "orders")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_sees_a_batch_before_its_commit, "is written and not committed"),
        (_lets_zombies_write, "another writer had already passed"),
        (_keeps_the_position_apart, "a second writer has failed"),
    ],
)
def test_the_check_finds_sinks_that_break_the_contract(
    path: Path, broken: Callable[[Path], SqliteSink], said: str
) -> None:
    def make(name: str) -> SqliteSink:
        sink = broken(path)
        sink._name = name
        return sink

    with pytest.raises(AssertionError, match=said):
        check_sink(make, lambda name: rows_of(path, name), keys=False, kills=0)
