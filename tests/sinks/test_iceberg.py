"""`IcebergSink` with a catalog in SQLite: the contract, other writers, and positions behind snapshots that have expired."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError, ServiceUnavailableError

from streams.errors import LakeConflictError, LakePositionError, LakeSchemaError, SinkUnavailableError
from streams.sinks import IcebergSink, SinkTable
from streams.testing import check_sink

NUMBERS = SinkTable("app/sink", pa.schema([("key", pa.string()), ("n", pa.int64())]), ("key",))
NONE = pa.table({"key": pa.array([], pa.string())})
NAME = "shop.orders"


def catalog_of(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def sink_of(folder: Path, name: str = NAME) -> IcebergSink:
    return IcebergSink("test", name, catalog_of(folder))


def table_of(folder: Path, name: str = NAME) -> Any:
    return load_catalog("test", **catalog_of(folder)).load_table(name)


def rows_of(folder: Path, name: str = NAME) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = table_of(folder, name).scan().to_arrow().to_pylist()
        return rows
    except NoSuchTableError:
        return []


def numbers(*rows: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "n": n} for key, n in rows], NUMBERS.schema)


def write(sink: IcebergSink, n: int) -> None:
    """Opens the sink, and commits a row behind the last position, which is the number of the row."""
    after = sink.open(NUMBERS)
    sink.write(numbers((f"k{n}", n)), NONE)
    sink.commit(str(n), after)


@pytest.mark.slow
def test_it_has_each_row_once_whatever_is_killed(tmp_path: Path) -> None:
    check_sink(lambda name: sink_of(tmp_path, f"shop.{name}"), lambda name: rows_of(tmp_path, f"shop.{name}"), kills=1)


def test_columns_have_the_types_of_iceberg(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(38, 18)),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("legs", pa.list_(pa.struct([("from", pa.string()), ("miles", pa.int64())]))),
        ]
    )
    row = {
        "at": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "price": Decimal("9.5"),
        "tags": [("a", 1)],
        "legs": [{"from": "JFK", "miles": None}],
    }
    sink = sink_of(tmp_path)
    sink.open(SinkTable("app/sink", schema))
    sink.write(pa.Table.from_pylist([row], schema), pa.table({}))
    sink.commit("1", None)
    assert rows_of(tmp_path) == [row]


def test_keys_of_several_columns_are_updated(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.string()), ("window_start", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink = sink_of(tmp_path)
    sink.open(SinkTable("app/sink", schema, ("key", "window_start")))
    hours = [datetime(2026, 1, 2, hour, tzinfo=timezone.utc) for hour in range(2)]
    after = None
    for n in range(2):
        rows = [{"key": key, "window_start": at, "n": n} for key in "ab" for at in hours[: 2 - n]]
        sink.write(pa.Table.from_pylist(rows, schema), schema.empty_table().select(["key", "window_start"]))
        sink.commit(str(n), after)
        after = str(n)
    assert sorted((row["key"], row["window_start"].hour, row["n"]) for row in rows_of(tmp_path)) == [
        ("a", 0, 1),
        ("a", 1, 0),
        ("b", 0, 1),
        ("b", 1, 0),
    ]


def test_another_writer_of_the_table_costs_another_try_and_no_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(tmp_path)
    write(sink, 1)
    found, others = sink._found, iter([1, 2])

    def overtaken() -> Any:
        table = found()
        if (number := next(others, None)) is not None:
            table_of(tmp_path).append(numbers(("other", number)))
        return table

    pauses: list[float] = []
    sink._pause = pauses.append
    monkeypatch.setattr(sink, "_found", overtaken)
    sink.write(numbers(("k2", 2)), NONE)
    sink.commit("2", "1")
    assert pauses == [0.5, 1.0]
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [1, 1, 2, 2]
    assert sink_of(tmp_path).open(NUMBERS) == "2"


def test_a_second_instance_that_commits_in_between_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path)
    write(sink, 1)
    found, others = sink._found, iter([2])

    def overtaken() -> Any:
        table = found()
        if (number := next(others, None)) is not None:
            write(sink_of(tmp_path), number)
        return table

    sink._pause = lambda seconds: None
    monkeypatch.setattr(sink, "_found", overtaken)
    sink.write(numbers(("zombie", 0)), NONE)
    with pytest.raises(LakeConflictError, match="another instance of the application has written"):
        sink.commit("zombie", "1")
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [1, 2]


def test_the_position_outlives_its_snapshot_and_goes_back_with_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    write(sink, 1)
    first = table_of(tmp_path).current_snapshot().snapshot_id
    write(sink, 2)
    own = [one.snapshot_id for one in table_of(tmp_path).snapshots()]
    table_of(tmp_path).append(numbers(("other", 9)))
    assert sink_of(tmp_path).open(NUMBERS) == "2"
    expire = table_of(tmp_path).maintenance.expire_snapshots()
    for snapshot in own:
        expire = expire.by_id(snapshot)
    expire.commit()
    assert sink_of(tmp_path).open(NUMBERS) == "2"
    other = tmp_path / "other"
    other.mkdir()
    for n in (1, 2):
        write(sink_of(other), n)
    first = table_of(other).snapshots()[0].snapshot_id
    table_of(other).manage_snapshots().set_current_snapshot(first).commit()
    assert sink_of(other).open(NUMBERS) == "1"


def test_a_table_without_a_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write(sink_of(tmp_path), 1)
    wanted = SinkTable("app/sink", pa.schema([("key", pa.string()), ("amount", pa.int64())]), ("key",))
    with pytest.raises(LakeSchemaError, match=r"the iceberg table shop\.orders of test has no column amount"):
        sink_of(tmp_path).open(wanted)


def test_a_column_of_another_type_leaves_nothing(tmp_path: Path) -> None:
    write(sink_of(tmp_path), 1)
    wanted = SinkTable("app/sink", pa.schema([("key", pa.string()), ("n", pa.string())]), ("key",))
    sink = sink_of(tmp_path)
    after = sink.open(wanted)
    sink.write(pa.Table.from_pylist([{"key": "a", "n": "x"}], wanted.schema), NONE)
    with pytest.raises(LakeSchemaError, match="does not take this batch"):
        sink.commit("2", after)
    assert [row["n"] for row in rows_of(tmp_path)] == [1]


def test_a_table_that_is_dropped_is_not_made_again(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    write(sink, 1)
    load_catalog("test", **catalog_of(tmp_path)).drop_table(NAME)
    sink.write(numbers(("k2", 2)), NONE)
    with pytest.raises(LakePositionError, match="was dropped while the application ran"):
        sink.commit("2", "1")


def test_a_catalog_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path)
    sink.open(NUMBERS)
    sink.write(numbers(("a", 1)), NONE)

    def away() -> Any:
        raise ServiceUnavailableError("503")

    monkeypatch.setattr(sink, "_found", away)
    with pytest.raises(SinkUnavailableError, match="does not answer: 503"):
        sink.commit("1", None)
