"""The verifier of the drill with lake sinks finds what it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from streams.drills.topics import Read, delta_rows
from streams.drills.variants import calls_of, wrong_calls, wrong_rows


def order(key: str, number: int) -> Read:
    return Read(0, number, number, key.encode(), orjson.dumps({"id": f"orders-{number}"}))


ORDERS = [order("a", 0), order("b", 1), order("a", 2)]
EACH = [{"key": "a", "id": "orders-0"}, {"key": "b", "id": "orders-1"}, {"key": "a", "id": "orders-2"}]
LATEST = [{"key": "a", "id": "orders-2"}, {"key": "b", "id": "orders-1"}]


def test_right_tables_are_right() -> None:
    assert wrong_rows(ORDERS, reversed(EACH), LATEST) == []


@pytest.mark.parametrize(
    ("each", "latest", "said"),
    [
        ([*EACH, EACH[0]], LATEST, "1 doubled, 0 missing"),
        (EACH[1:], LATEST, "0 doubled, 1 missing"),
        ([*EACH, {"key": "c", "id": "orders-9"}], LATEST, "4 rows for 3 orders"),
        (
            EACH,
            [{"key": "a", "id": "orders-0"}, {"key": "b", "id": "orders-1"}],
            "other rows than the last orders of the keys a",
        ),
        (EACH, LATEST[:1], "other rows than the last orders of the keys b"),
    ],
)
def test_doubled_missing_and_old_rows_are_found(each: list[dict], latest: list[dict], said: str) -> None:
    assert said in "; ".join(wrong_rows(ORDERS, each, latest))


def called(*numbers: int) -> list[list[Any]]:
    return [[0, number, f"orders-{number}"] for number in numbers]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ({0: [called(0, 1), called(0, 1)], 1: [called(2)]}, ""),
        ({0: [called(0, 1), called(0, 1, 2)]}, "batch 0 had other rows when it ran again"),
        ({0: [called(0, 1)], 2: [called(2)]}, "the batches are 0, 2"),
        ({0: [called(0, 1)]}, "2 rows for 3 orders; 0 doubled, 1 missing"),
        ({0: [called(0, 1)], 1: [called(1, 2)]}, "4 rows for 3 orders; 1 doubled, 0 missing"),
    ],
)
def test_calls_with_other_rows_or_numbers_are_found(calls: dict[int, list[Any]], said: str, tmp_path: Path) -> None:
    for batch, of in calls.items():
        (tmp_path / str(batch)).mkdir()
        for number, rows in enumerate(of):
            (tmp_path / str(batch) / str(number)).write_bytes(orjson.dumps(rows))
    assert calls_of(tmp_path) == calls
    found = wrong_calls(ORDERS, calls)
    assert said in "; ".join(found)
    assert bool(found) is bool(said)


def test_rows_are_those_of_the_files_that_no_later_commit_has_removed(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for name in ("one file", "two", "three"):
        parquet.write_table(pa.table({"key": [name]}), tmp_path / f"{name}.parquet")
    commits = [
        [{"metaData": {}}, {"add": {"path": "one%20file.parquet"}}],
        [{"add": {"path": "two.parquet"}}],
        [{"remove": {"path": "two.parquet"}}, {"add": {"path": "three.parquet"}}],
    ]
    for number, actions in enumerate(commits):
        (log / f"{number:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))
    assert [row["key"] for row in delta_rows(tmp_path)] == ["one file", "three"]
