"""Joins of a stream with a table that have grace write the rows that Kafka Streams writes, and continue with those it wrote.

`tests/golden/kafka-streams-grace.jsonl` has the records, changelogs and results of Kafka Streams 4.3.1, as
`tests/interop/Golden.java` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.headers import decode_headers, encode_headers
from state.stores.buffer_values import buffered_record, buffered_value
from state.stores.changelog_records import ChangelogBatch
from state.stores.row_formats import misfit
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams import Consumed, Joined, Materialized, Produced, StreamsBuilder, StringSerde, Topology
from streams.model.record import LEFT, WaitingKey, WaitingRecord
from streams.serdes.internal import BufferedKeySerde, BufferedSerde
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-streams-grace.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
INPUT = [one for one in LINES if "in" in one]
TEXT = StringSerde()
NAMES = ("gi", "gl")
STORE = StoreSpec("s", StoreKind.KEY_VALUE, rows=RowFormat.BUFFERED)


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def theirs(name: str, topic: str) -> list[dict[str, Any]]:
    return [one for one in LINES if one.get("join") == name and one["topic"] == topic]


def buffer_of(name: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(data(one["k"]), data(one["v"])) for one in theirs(name, f"x-{name}-Buffer-changelog")]


def program(name: str) -> Topology:
    builder = StreamsBuilder()
    history = Materialized(name="t", key_serde=TEXT, value_serde=TEXT, history_retention=timedelta(minutes=30))
    table, stream = builder.table("in-t", Consumed(TEXT, TEXT), history), builder.stream("in-s", Consumed(TEXT, TEXT))
    join = stream.left_join if name == "gl" else stream.join
    how = Joined(TEXT, TEXT, name=name, grace=timedelta(seconds=10))
    join(table, lambda one, other: f"{one}+{other or 'null'}", how).to("out", Produced(TEXT, TEXT))
    return builder.build()


def played(driver: TopologyTestDriver, records: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    topics = {name: driver.create_input_topic(name, TEXT, TEXT) for name in ("in-s", "in-t")}
    for one in records:
        trace = (("trace", (one["v"] or "").encode()),)
        topics[one["in"]].pipe_input(one["k"], one["v"], one["t"], headers=trace)
    found = driver.create_output_topic("out", TEXT, TEXT).read_records_to_list()
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in found]


def expected(name: str) -> list[tuple[Any, ...]]:
    def text(cell: str) -> str:
        return bytes.fromhex(cell).decode()

    return [
        (text(one["k"]), text(one["v"]), one["t"], [(header, data(value)) for header, value in one["h"]])
        for one in theirs(name, "out")
    ]


def without_place(row: bytes | None) -> tuple[int, Any, bytes] | None:
    """A row without offset, topic and partition, which ours do not have."""
    if row is None:
        return None
    time, headers, value = buffered_record(row)
    return time, decode_headers(headers), value


@pytest.mark.parametrize("name", NAMES)
def test_the_changelog_has_kafka_streams_rows(name: str) -> None:
    with TopologyTestDriver(program(name), "x", mode="compat") as driver:
        assert played(driver, INPUT) == expected(name)
        rows = driver._kafka.log(f"x-{name}-Buffer-changelog", 0).readable()
    # Each record is a step here, whose rows are in the order of their keys.
    mine = sorted((row.key, row.value is not None, without_place(row.value)) for row in rows)
    assert mine == sorted((key, value is not None, without_place(value)) for key, value in buffer_of(name))
    assert not any(row.headers for row in rows)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("wipe", [True, False])
def test_what_waits_is_continued(name: str, mode: str, wipe: bool) -> None:
    with TopologyTestDriver(program(name), "x", mode=mode) as driver:
        found = []
        for one in INPUT:
            found += played(driver, [one])
            driver.restart(wipe_state=wipe)
    assert found == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_kafka_streams_fit_and_come_back_as_they_were(name: str) -> None:
    rows = buffer_of(name)
    live = {key: value for key, value in dict(rows).items() if value is not None}
    with TaskStore(MemoryTable(), [STORE]) as store:
        for key, value in rows:
            assert key is not None
            assert misfit(RowFormat.BUFFERED, batch(key, value)) is None
            store.restore("s", [key], [value], [0])
        assert dict(store.rows("s")) == live
    assert len(live) == 4
    for key, value in live.items():
        place, held = BufferedKeySerde().deserialize("t", key), BufferedSerde(TEXT).deserialize("t", value)
        assert place is not None
        assert held is not None
        assert (place.time, held.headers) == (held.time, (("trace", held.data),))
        assert BufferedKeySerde().serialize("t", place) == key


def batch(key: bytes, value: bytes | None) -> ChangelogBatch:
    return ChangelogBatch(pa.array([key], pa.binary()), pa.array([value], pa.binary()), np.zeros(1, np.int64))


KEY = BufferedKeySerde().serialize("t", WaitingKey(5, LEFT, b"k", 1)) or b""
VALUE = buffered_value(5, encode_headers([("a", None)]), b"value")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (KEY[:12], VALUE, "fewer than 13 bytes"),
        (KEY, VALUE[:-1], "lengths inside its value"),
        (KEY, VALUE + b"x", "lengths inside its value"),
        (KEY, b"", "lengths inside its value"),
        (KEY, buffered_value(6, b"", b"value"), "different times"),
        # A row of a release before 1.0: time, side, key and number; side, headers and value.
        (b"\0\0\0\0\0\0\0\5\1k" + bytes(8), b"\1\0\0\0\0value", "lengths inside its value"),
    ],
)
def test_other_rows_are_refused(key: bytes, value: bytes, why: str) -> None:
    assert misfit(RowFormat.BUFFERED, batch(KEY, VALUE)) is None
    found = misfit(RowFormat.BUFFERED, batch(key, value))
    assert found is not None
    assert why in found[1]


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3).map(tuple)


@given(st.integers(0, 2**62), st.binary(max_size=5), st.integers(0, 2**31 - 1), HEADERS, st.text(max_size=5))
def test_rows_are_read_as_they_were_written(time: int, key: bytes, number: int, headers: Any, value: str) -> None:
    place, held = WaitingKey(time, LEFT, key, number), WaitingRecord(LEFT, value, headers, value.encode(), time)
    cell, row = BufferedKeySerde().serialize("t", place), BufferedSerde(TEXT).serialize("t", held)
    assert cell is not None
    assert BufferedKeySerde().deserialize("t", cell) == place
    assert BufferedSerde(TEXT).deserialize("t", row) == held
    assert misfit(RowFormat.BUFFERED, batch(cell, row)) is None


def test_numbers_begin_again_at_2_to_the_31() -> None:
    cells = [BufferedKeySerde().serialize("t", WaitingKey(5, LEFT, b"k", number)) for number in (1, 2**31 + 1)]
    assert cells[0] == cells[1]
