"""Left and outer joins of streams write the rows of unmatched records that Kafka Streams writes, and continue with those it wrote.

`tests/golden/kafka-streams-stream-joins.jsonl` has the records, changelogs and results of Kafka Streams 4.3.1, as
`tests/interop/Golden.java` writes them (`TopologyTestDriver`, without a throttle). Stores with headers (KIP-1271) give the same.
"""

from __future__ import annotations

import collections
import json
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.headers import decode_headers, encode_headers
from state.stores.changelog_records import ChangelogBatch
from state.stores.row_formats import misfit
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.stores.unmatched_lists import HEADERS, in_one_row, local_value, records_in
from state.stores.unmatched_rows import local_values, logged_columns, records_of, rows_of_one
from state.tables.table import MemoryTable
from streams import Consumed, JoinWindows, JsonSerde, Produced, StreamJoined, StreamsBuilder, StringSerde, Topology
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-streams-stream-joins.jsonl"
TEXT = StringSerde()
SHARED = {"lj": "lj-left-shared-join-store", "oj": "oj-outer-shared-join-store"}
STORE = StoreSpec("s", StoreKind.KEY_VALUE, rows=RowFormat.UNMATCHED)


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def theirs(name: str, topic: str) -> list[dict[str, Any]]:
    return [one for one in lines() if one.get("join") == name and one["topic"] == topic]


def program(name: str) -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, Consumed(TEXT, TEXT)) for topic in ("in-l", "in-r"))
    join = left.outer_join if name == "oj" else left.left_join
    windows = JoinWindows.of_time_difference_and_grace(timedelta(seconds=10), timedelta(seconds=5))
    how = StreamJoined(TEXT, TEXT, TEXT, name=name, store_name=name)
    join(right, lambda one, other: f"{one or 'null'}+{other or 'null'}", windows, how).to("out", Produced(TEXT, TEXT))
    return builder.build()


def played(driver: TopologyTestDriver, records: list[dict[str, Any]]) -> list[tuple[Any, Any, int]]:
    topics = {name: driver.create_input_topic(name, TEXT, TEXT) for name in ("in-l", "in-r")}
    for one in records:
        trace = (("trace", (one["v"] or "").encode()),)
        topics[one["in"]].pipe_input(one["k"], one["v"], one["t"], headers=trace)
    found = driver.create_output_topic("out", TEXT, TEXT).read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in found]


INPUT = [one for one in lines() if "in" in one]


@pytest.mark.parametrize("name", SHARED)
def test_the_changelog_has_kafka_streams_rows(name: str) -> None:
    with TopologyTestDriver(program(name), "x", mode="compat", emit_interval_ms=0) as driver:
        results = played(driver, INPUT)
        rows = driver._kafka.log(f"x-{SHARED[name]}-changelog", 0).readable()
    expected = theirs(name, f"x-{SHARED[name]}-changelog")
    mine = [(row.key, row.value) for row in rows]
    assert collections.Counter(mine) == collections.Counter((data(one["k"]), data(one["v"])) for one in expected)
    assert all([header for header, _ in decode_headers(row.headers)] == [HEADERS] for row in rows if row.value)
    out = theirs(name, "out")
    assert sorted(results) == sorted((data(one["k"]).decode(), data(one["v"]).decode(), one["t"]) for one in out)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_what_waits_is_continued_from_its_changelog(name: str, mode: str) -> None:
    with TopologyTestDriver(program(name), "x", mode=mode, **_interval(mode)) as driver:
        whole = played(driver, INPUT)
    with TopologyTestDriver(program(name), "x", mode=mode, **_interval(mode)) as driver:
        found = played(driver, INPUT[:8])
        driver.restart(wipe_state=True)
        found += played(driver, INPUT[8:])
    assert whole
    assert sorted(found) == sorted(whole)


def _interval(mode: str) -> dict[str, Any]:
    return {"emit_interval_ms": 0} if mode == "compat" else {}


def batch(key: bytes, value: bytes | None, headers: bytes | None = None) -> ChangelogBatch:
    cells = None if headers is None else pa.array([headers], pa.binary())
    return ChangelogBatch(pa.array([key], pa.binary()), pa.array([value], pa.binary()), np.zeros(1, np.int64), cells)


@pytest.mark.parametrize("name", SHARED)
def test_rows_of_kafka_streams_fit_and_come_back_as_they_were(name: str) -> None:
    rows = theirs(name, f"x-{SHARED[name]}-changelog")
    expected = {data(one["k"]): data(one["v"]) for one in rows}
    with TaskStore(MemoryTable(), [STORE]) as store:
        for one in rows:
            key, value = data(one["k"]), data(one["v"])
            assert key is not None
            assert misfit(RowFormat.UNMATCHED, batch(key, value)) is None
            store.restore("s", [key], [value], [one["t"]])
        found = dict(store.rows("s"))
    assert {key: value[4:] for key, value in found.items()} == {k: v for k, v in expected.items() if v is not None}


ROW = struct.pack(">qB", 5, 1) + b"k"


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (ROW[:8], b"\1\0\0\0\1\0\0\0\2\1v", None),
        (struct.pack(">qB", 5, 2), b"\1\0\0\0\1\0\0\0\2\2v", None),
        (ROW, b"\1\0\0\0\1\0\0\0\2\0v", None),  # of the other side
        (ROW, b"\0\0\0\0\1\0\0\0\2\1v", None),  # values of equal lengths, which the list does not have
        (ROW, b"\1\0\0\0\0", None),
        (ROW, b"\1\0\0", None),
        (ROW, b"\1\0\0\0\1\0\0\0\3\1v", None),
        (ROW, b"\1\0\0\0\1\xff\xff\xff\xff", None),
        (ROW, b"\1\0\0\0\2\0\0\0\2\1v", None),
        (ROW, b"\1\0\0\0\2\0\0\0\2\1v\0\0\0\2\0v", None),
        (ROW, b"\1\0\0\0\1\0\0\0\2\1v", encode_headers([(HEADERS, bytes(8))])),
        (ROW, b"\1\0\0\0\1\0\0\0\2\1v", encode_headers([(HEADERS, b"\0\0\0\1x")])),
        # A row of a release before 1.0: time, side, key and number; side, headers and value.
        (ROW + bytes(8), b"\1\0\0\0\0value", None),
    ],
)
def test_other_rows_are_refused(key: bytes, value: bytes, headers: bytes | None) -> None:
    assert misfit(RowFormat.UNMATCHED, batch(key, value, headers)) is not None


HEADER_CELLS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), min_size=1).map(
    encode_headers
)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.tuples(st.binary(max_size=5), HEADER_CELLS), min_size=1, max_size=3))
    )
)
def test_rows_as_columns_are_rows_one_by_one(rows: list[tuple[int, list[tuple[bytes, bytes | None]]]]) -> None:
    singles = [[local_value(side, [value], [cell]) for value, cell in records] for side, records in rows]
    cells = pa.array([in_one_row(own) for own in singles], pa.binary())
    found = records_of(cells)
    each = [(row, *record) for row, (_, records) in enumerate(rows) for record in records]
    headers = found.headers or [None] * len(each)
    assert list(zip(found.rows.tolist(), found.values.to_pylist(), headers, strict=True)) == each
    sides = np.array([side for side, records in rows for _ in records], np.int64)
    assert rows_of_one(sides, found.headers, found.values).to_pylist() == [one for own in singles for one in own]
    assert [[tuple(one) for one in records_in(cell)] for cell in cells.to_pylist()] == [
        [(side, *record) for record in records] for side, records in rows
    ]
    logged, marks = logged_columns(cells)
    assert local_values(logged, marks) == cells
    for (side, _), value, mark in zip(
        rows, logged.to_pylist(), [None] * len(rows) if marks is None else marks.to_pylist(), strict=True
    ):
        assert misfit(RowFormat.UNMATCHED, batch(struct.pack(">qB", 5, side), value, mark)) is None


@pytest.mark.slow
@pytest.mark.parametrize("before_s", [0, 40])
def test_sides_that_wait_for_different_times(before_s: int) -> None:
    """Records of the side that waits less leave first, also after a restart, and each once."""
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_and_grace(timedelta(seconds=20), timedelta(0)).before(
        timedelta(seconds=before_s)
    )
    left, right = builder.stream("in-l"), builder.stream("in-r")
    left.outer_join(right, lambda one, other: [one, other], windows, StreamJoined(name="oj")).to("out")
    with TopologyTestDriver(builder.build(), "x") as driver:
        topics = [driver.create_input_topic(name) for name in ("in-l", "in-r")]
        for second in range(100):
            topics[second % 2].pipe_input(f"k{second}", second, 1000 * second)
            if second % 30 == 29:
                driver.restart(wipe_state=second % 60 == 29)
        found = [(r.key, r.value) for r in driver.create_output_topic("out").read_records_to_list()]
    due = [(second + (before_s if second % 2 else 20), second) for second in range(100)]
    expected = [second for end, second in sorted(due) if end < 99]
    assert [key for key, _ in found] == [f"k{second}" for second in expected]


def test_serdes_of_both_sides_may_differ() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("in-l", Consumed(TEXT, TEXT)), builder.stream("in-r", Consumed(TEXT, JsonSerde()))
    how = StreamJoined(TEXT, TEXT, JsonSerde(), name="oj")
    left.outer_join(right, lambda one, other: [one, other], JoinWindows(5, 5, 0), how).to(
        "out", Produced(TEXT, JsonSerde())
    )
    with TopologyTestDriver(builder.build(), "x") as driver:
        for value in ("a", "b"):
            driver.create_input_topic("in-l", TEXT, TEXT).pipe_input("k", value, 1)
        driver.create_input_topic("in-r", TEXT, JsonSerde()).pipe_input("q", {"x": 1}, 1)
        driver.restart(wipe_state=True)
        driver.create_input_topic("in-l", TEXT, TEXT).pipe_input("k", "c", 1)
        driver.create_input_topic("in-l", TEXT, TEXT).pipe_input("z", "end", 50)
        found = driver.create_output_topic("out", TEXT, JsonSerde()).read_records_to_list()
    assert [(r.key, r.value) for r in found] == [
        ("q", [None, {"x": 1}]),
        ("k", ["a", None]),
        ("k", ["b", None]),
        ("k", ["c", None]),
    ]
