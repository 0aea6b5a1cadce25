"""Stores with headers (KIP-1271) write what Kafka Streams writes, take up what it wrote, and show processors headers and values.

`tests/golden/kafka-streams-headers.jsonl` has the changelogs of Kafka Streams 4.3.1 with `dsl.store.format=HEADERS`, as
`tests/interop/Golden.java` writes them: those of its own operators, and of a processor with stores with and without headers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.headers import decode_headers, encode_headers
from state.stores.header_rows import headers_in_front, without_headers
from state.stores.spec import RowFormat
from streams import (
    Consumed,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    Topology,
    TopologyError,
    ValueAndHeaders,
    Window,
    Windowed,
)
from streams.errors import RecordFailedError
from streams.serdes.internal import HeadersSerde
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-streams-headers.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
TEXT, MINUTE = StringSerde(), timedelta(minutes=1)
STORES = ("own", "own-windows", "own-sessions")
Row = tuple[bytes, bytes | None, int, list[tuple[str, bytes | None]]]


def theirs(store: str) -> list[Row]:
    def data(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    return [
        (bytes.fromhex(one["k"]), data(one["v"]), one["t"], [(name, data(value)) for name, value in one["h"]])
        for one in LINES
        if one.get("topic") == f"x-{store}-changelog"
    ]


class Storing(Processor[str, str, str, Any]):
    """Puts each record into all stores, as Java's does; says what it has, for a record without a value."""

    def process(self, record: Record[str, str]) -> None:
        own, windows, sessions = map(self.ctx.store, STORES)
        at = record.timestamp
        if record.value is None:
            self.ctx.forward(record.with_value([own.get(record.key), list(windows.all()), list(sessions.all())]))
            return
        row = ValueAndHeaders(record.value, (("kept", record.value.encode()), ("null", None)))
        own.put(record.key, row)
        windows.put(record.key, row, at)
        sessions.put(Windowed(record.key, Window(at - 1, at)), row)


def program() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_key_value_store_with_headers("own", TEXT, TEXT))
    builder.add_state_store(Stores.timestamped_window_store_with_headers("own-windows", TEXT, TEXT, retention=MINUTE))
    builder.add_state_store(Stores.persistent_session_store_with_headers("own-sessions", TEXT, TEXT, retention=MINUTE))
    builder.stream("in-s", Consumed(TEXT, TEXT)).process(Storing, stores=list(STORES)).map_values(repr).to("out")
    return builder.build()


def play(driver: TopologyTestDriver, records: list[dict[str, Any]]) -> None:
    topic = driver.create_input_topic("in-s", TEXT, TEXT)
    for one in records:
        topic.pipe_input(one["k"], one["v"], one["t"], headers=(("trace", b"of the record"),))


INPUT = [one for one in LINES if one.get("in") == "in-s"]


def test_the_changelogs_are_those_of_kafka_streams() -> None:
    with TopologyTestDriver(program(), "x") as driver:
        play(driver, INPUT)
        for store in STORES:
            rows = driver._kafka.log(f"x-{store}-changelog", 0).readable()
            found = [(row.key, row.value, row.timestamp, decode_headers(row.headers)) for row in rows]
            assert found == theirs(store)
            assert len(found) == 3


@pytest.mark.parametrize("wipe", [True, False])
def test_rows_come_back_with_their_headers(wipe: bool) -> None:
    with TopologyTestDriver(program(), "x") as driver:
        play(driver, INPUT)
        out = driver.create_output_topic("out")
        asked = {"k": "a", "v": None, "t": INPUT[-1]["t"]}
        play(driver, [asked])
        before = out.read_value()
        driver.restart(wipe_state=wipe)
        play(driver, [asked])
        assert out.read_value() == before
    row = ValueAndHeaders("s2", (("kept", b"s2"), ("null", None)))
    assert repr(row) in before
    assert before.count("ValueAndHeaders") == 7


def test_a_value_without_headers_is_refused() -> None:
    class Bare(Processor[str, str, str, Any]):
        def process(self, record: Record[str, str]) -> None:
            self.ctx.store("own").put(record.key, record.value)

    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_key_value_store_with_headers("own", TEXT, TEXT))
    builder.stream("in-s", Consumed(TEXT, TEXT)).process(Bare, stores=["own"])
    with (
        TopologyTestDriver(builder.build(), "x") as driver,
        pytest.raises(RecordFailedError, match="takes ValueAndHeaders"),
    ):
        play(driver, INPUT)


def test_its_serdes_must_be_given() -> None:
    with pytest.raises(TopologyError, match="lacks key_serde, value_serde"):
        Stores.session_store_with_headers("s", retention=1)


@pytest.mark.parametrize("kind", ["timestamped_key_value_store", "timestamped_window_store", "session_store"])
@pytest.mark.parametrize("begin", ["", "persistent_"])
def test_each_is_the_store_without_but_for_its_values(kind: str, begin: str) -> None:
    more = {} if "key" in kind else {"retention": MINUTE}
    made = getattr(Stores, f"{begin}{kind}_with_headers")("s", TEXT, TEXT, **more)
    without = getattr(Stores, kind)("s", TEXT, TEXT, **more)
    assert made.spec == replace(without.spec, rows=RowFormat.WITH_HEADERS)
    assert made.value_serde == HeadersSerde(TEXT)


CELLS = st.none() | st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), min_size=1, max_size=3
).map(encode_headers)


@given(st.lists(st.tuples(CELLS, st.none() | st.binary(max_size=4)), max_size=6))
def test_columns_are_taken_apart_as_they_were_made(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    values = pa.array([value for _, value in rows], pa.binary())
    cells = [cell if value is not None else None for cell, value in rows]
    found, headers = without_headers(headers_in_front(values, cells))
    assert found == values
    assert (headers or [None] * len(rows)) == cells
    assert np.array_equal(found.is_valid(), values.is_valid())
