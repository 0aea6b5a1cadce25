"""`ParquetSink` and `JsonLinesSink`: the contract, and a writer that dies at each step of a commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.json
import pytest

from streams.errors import LakeConflictError, LakeSchemaError
from streams.sinks import FilesSink, JsonLinesSink, ParquetSink, SinkTable
from streams.testing import check_sink

NUMBERS = SinkTable("app/sink", pa.schema([("key", pa.string()), ("n", pa.int64())]))
NONE = pa.table({})


class DiedError(Exception):
    """Nothing that the writer would have done next happens."""


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows as pyarrow, Spark and DuckDB find them: in all files but those whose names begin with an underscore."""
    files: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist() if folder.exists() else []
    return files


def json_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl"))
    return [row for file in files for row in pyarrow.json.read_json(file).to_pylist()]


def numbers(*rows: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "n": n} for key, n in rows], NUMBERS.schema)


def write(sink: FilesSink, n: int) -> None:
    """Opens the sink, and commits a row behind the last position, which is the number of the row."""
    after = sink.open(NUMBERS)
    sink.write(numbers(("a", n)), NONE)
    sink.commit(str(n), after)


@pytest.mark.slow
@pytest.mark.parametrize(("sink", "rows"), [(ParquetSink, parquet_rows), (JsonLinesSink, json_rows)])
def test_it_has_each_row_once_whatever_is_killed(
    tmp_path: Path, sink: type[FilesSink], rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    check_sink(lambda name: sink(tmp_path / name), lambda name: rows(tmp_path / name), keys=False)


@pytest.mark.parametrize("step", ["link", "rename"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_writer_that_dies_at_a_step_of_a_commit_has_committed_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
) -> None:
    write(ParquetSink(tmp_path), 1)
    owner, real = (os, os.link) if step == "link" else (Path, Path.rename)

    def die(*arguments: Any) -> None:
        if done:
            real(*arguments)
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, die)
        with pytest.raises(DiedError):
            write(ParquetSink(tmp_path), 2)
    committed = step == "rename" or done
    assert ParquetSink(tmp_path).open(NUMBERS) == ("2" if committed else "1")
    assert [row["n"] for row in parquet_rows(tmp_path)] == ([1, 2] if committed else [1])
    write(ParquetSink(tmp_path), 3)
    assert [row["n"] for row in parquet_rows(tmp_path)] == ([1, 2, 3] if committed else [1, 3])
    assert all(path.suffix == ".json" for path in (tmp_path / "_streams" / "app-sink").iterdir()), (
        "nothing is left over"
    )


def test_a_writer_is_fenced_however_far_others_have_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(ParquetSink(tmp_path), 1)
    zombies = [ParquetSink(tmp_path), ParquetSink(tmp_path)]
    for zombie in zombies:
        assert zombie.open(NUMBERS) == "1"
        zombie.write(numbers(("zombie", 0)), NONE)
    for n in range(2, 7):
        write(ParquetSink(tmp_path), n)
    with pytest.raises(LakeConflictError):
        zombies[0].commit("zombie", "1")
    # It has looked before the others went on, whose manifest of its number is deleted by now.
    monkeypatch.setattr(zombies[1], "_newest", lambda: zombies[1]._last)
    with pytest.raises(LakeConflictError):
        zombies[1].commit("zombie", "1")
    assert ParquetSink(tmp_path).open(NUMBERS) == "6"
    assert [row["n"] for row in parquet_rows(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_batch_without_rows_moves_the_position_only(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.open(NUMBERS)
    sink.write(numbers(), NONE)
    sink.commit("1", None)
    assert ParquetSink(tmp_path).open(NUMBERS) == "1"
    assert parquet_rows(tmp_path) == []


def test_several_sinks_share_a_folder(tmp_path: Path) -> None:
    for owner in ("app/one", "app/two"):
        sink = JsonLinesSink(tmp_path)
        assert sink.open(SinkTable(owner, NUMBERS.schema)) is None
        sink.write(numbers((owner, 1)), NONE)
        sink.commit("1", None)
    assert [row["key"] for row in json_rows(tmp_path)] == ["app/one", "app/two"]


def test_json_has_the_values_that_it_can(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(38, 18)),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("raw", pa.binary()),
        ]
    )
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    row = {"at": at, "price": Decimal("9.500000000000000000"), "tags": [("a", 1)], "raw": b"\0"}
    sink = JsonLinesSink(tmp_path)
    sink.open(SinkTable("app/sink", schema))
    sink.write(pa.Table.from_pylist([row], schema), NONE)
    sink.commit("1", None)
    (file,) = tmp_path.glob("*.jsonl")
    assert orjson.loads(file.read_bytes()) == {
        "at": "2026-01-02T00:00:00+00:00",
        "price": "9.500000000000000000",
        "tags": {"a": 1},
        "raw": "AA==",
    }


def test_updates_by_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeSchemaError, match="files are not updated by key"):
        ParquetSink(tmp_path).open(SinkTable("app/sink", NUMBERS.schema, ("key",)))
