"""`suppress` writes the rows that Kafka Streams writes, takes up those that it wrote, and continues rows of releases before 1.0.

`tests/golden/kafka-streams-suppress.jsonl` has the changelogs of Kafka Streams 4.3.1 (`TopologyTestDriver`, without a cache) for
the records of `in-win` in `tests/golden/input.tsv`.
"""

from __future__ import annotations

import json
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from state.headers import decode_headers, encode_headers
from state.stores.buffer_values import headers_in, headers_part
from state.stores.changelog_records import ChangelogBatch
from state.stores.row_formats import misfit
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.stores.suppressed_rows import VERSION
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
)
from streams.operators.table import suppress
from streams.operators.table.suppress import BufferedUpdate, Suppress, UpdateColumns
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden"
MINUTE, GRACE = timedelta(minutes=1), timedelta(seconds=10)
STORE = StoreSpec("s", StoreKind.KEY_VALUE, rows=RowFormat.SUPPRESSED)


def golden() -> ChangelogBatch:
    """What Kafka Streams wrote to the changelog of its buffer, in order."""
    lines = map(json.loads, (GOLDEN / "kafka-streams-suppress.jsonl").read_text().splitlines())
    rows = [one for one in lines if one["topic"] == "x-sup-store-changelog"]
    headers = [encode_headers([(name, bytes.fromhex(value)) for name, value in one["h"]]) or None for one in rows]
    return ChangelogBatch(
        pa.array([bytes.fromhex(one["k"]) for one in rows], pa.binary()),
        pa.array([None if one["v"] is None else bytes.fromhex(one["v"]) for one in rows], pa.binary()),
        np.zeros(len(rows), np.int64),
        pa.array(headers, pa.binary()),
    )


def last(keys: list[bytes], values: list[bytes | None]) -> dict[bytes, bytes | None]:
    return dict(zip(keys, values, strict=True))


def comparable(keys: Any, values: Any) -> set[tuple[bytes, BufferedUpdate | None, bytes]]:
    """Rows without offset, topic and partition, which ours do not have, and without the initial 0 before a first count."""
    rows = set()
    for key, value in zip(keys, values, strict=True):
        update = None if value is None else BufferedUpdate.read(value)._replace(topic=b"")
        if update is not None and update.prior == bytes(8):
            update = update._replace(prior=None, old=None if update.old == bytes(8) else update.old)
        rows.add((key, update, b"" if value is None else value[-8:]))
    return rows


def program() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in-win", Consumed(StringSerde(), StringSerde())).group_by_key(
        Grouped(StringSerde(), StringSerde())
    )
    stored = Materialized("sup-count", key_serde=StringSerde(), value_serde=Int64Serde(), caching=False)
    counts = grouped.windowed_by(TimeWindows.of_size_and_grace(MINUTE, GRACE)).count(stored)
    held = counts.suppress(Suppressed.until_window_closes(), named="sup")
    held.to_stream(lambda window, total: window.key).to("out")
    return builder.build()


def play(driver: TopologyTestDriver, times: slice = slice(None)) -> None:
    topic = driver.create_input_topic("in-win", StringSerde(), StringSerde())
    lines = [line.split("\t") for line in (GOLDEN / "input.tsv").read_text().splitlines()]
    for _, _, key, _, value, time in [line for line in lines if line[0] == "in-win"][times]:
        topic.pipe_input(key, value, int(time))


def finals(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    out = driver.create_output_topic("out", StringSerde(), Int64Serde())
    return [(record.key, record.value) for record in out.read_records_to_list()]


def test_the_changelog_has_kafka_streams_rows() -> None:
    with TopologyTestDriver(program(), "x", mode="compat") as driver:
        play(driver)
        rows = driver._kafka.log("x-sup-store-changelog", 0).readable()
    theirs = golden()
    found = comparable([row.key for row in rows], [row.value for row in rows])
    assert found == comparable(theirs.keys.to_pylist(), theirs.values.to_pylist())
    assert all((row.headers or None) == (None if row.value is None else VERSION) for row in rows)


def test_rows_of_kafka_streams_come_back_as_they_were() -> None:
    theirs = golden()
    expected = last(theirs.keys.to_pylist(), theirs.values.to_pylist())
    assert None in expected.values()
    live = {key: value for key, value in expected.items() if value is not None}
    with TaskStore(MemoryTable(), [STORE]) as store:
        for row in range(len(theirs)):  # each in a restore of its own: a tombstone has no place
            part = slice(row, row + 1)
            headers = theirs.headers[part] if theirs.headers is not None else None
            store.restore("s", theirs.keys[part], theirs.values[part], theirs.timestamps[part], headers=headers)
        rows = dict(store.rows("s"))
    assert {key[8:]: value for key, value in rows.items()} == live
    assert all(key[:8] == bytes([value[-8] ^ 0x80]) + value[-7:] for key, value in rows.items())


def test_rows_of_kafka_streams_are_read() -> None:
    theirs = golden()
    values = theirs.values.drop_null()
    updates = UpdateColumns.read(values).each()
    assert updates[0] == BufferedUpdate(1795799461000, bytes(8), bytes(8), struct.pack(">q", 1), None, b"in-win")
    assert updates[3].prior == bytes(8)
    assert updates[3].old == struct.pack(">q", 1)
    assert [BufferedUpdate.read(value) for value in values.to_pylist()] == updates


def test_headers_of_a_row_change_the_order_of_bytes_only() -> None:
    cell = encode_headers([("a", b"1"), ("b", None), ("a", b"")])
    part = headers_part(cell)
    assert part == b"\0\0\0\3" + b"\0\0\0\1a\0\0\0\0011" + b"\0\0\0\1b\xff\xff\xff\xff" + b"\0\0\0\1a\0\0\0\0"
    assert headers_in(part[4:]) == cell
    updates = [
        BufferedUpdate(5, None, None, b"new", cell, b""),
        BufferedUpdate(6, b"p", b"o", None, None, b"topic"),
        BufferedUpdate(7, b"p", b"p", b"n", None, b""),
    ]
    written = UpdateColumns.from_each(updates).write(np.arange(3), np.array([1, 2, 3]))
    assert UpdateColumns.read(written).each() == updates
    assert [BufferedUpdate.read(value) for value in written.to_pylist()] == updates


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_row_that_is_cut_off_is_refused(cut: int) -> None:
    theirs = golden()
    value = theirs.values[0].as_py()[:-cut]
    records = ChangelogBatch(
        pa.array([b"k"], pa.binary()), pa.array([value], pa.binary()), np.zeros(1), pa.array([VERSION])
    )
    assert misfit(RowFormat.SUPPRESSED, records) == (0, "the lengths inside its value are not those of its parts")


@pytest.mark.parametrize("version", [b"\0", b"\2", b"\4", b""])
def test_other_versions_are_refused(version: bytes) -> None:
    theirs = golden()
    headers = pa.array([encode_headers([("v", version)])], pa.binary())
    assert decode_headers(headers[0].as_py()) == [("v", version)]
    found = misfit(RowFormat.SUPPRESSED, ChangelogBatch(theirs.keys[:1], theirs.values[:1], np.zeros(1), headers))
    assert found is not None
    assert "this release knows 3" in found[1]


def _written_before(updates: UpdateColumns, firsts: Any, places: Any) -> Any:
    cells = []
    for row, update in enumerate(updates.each()[: len(firsts)]):
        prior = updates.priors[int(firsts[row])].as_py()
        parts = (prior, update.old, update.new, update.headers)
        lengths = [-1 if part is None else len(part) for part in parts]
        cells.append(struct.pack(">qiiii", update.timestamp, *lengths) + b"".join(part or b"" for part in parts))
    return pa.array(cells, pa.binary())


def _read_before(rows: Any) -> UpdateColumns:
    return UpdateColumns.from_each([BufferedUpdate.read_before_1_0(row) for row in rows.to_pylist()])


@pytest.mark.parametrize("wipe", [True, False])
def test_rows_of_releases_before_are_continued(monkeypatch: pytest.MonkeyPatch, wipe: bool) -> None:
    """They are emitted as if nothing had changed, and leave nothing under their former keys."""
    with TopologyTestDriver(program(), "x", mode="compat") as driver:
        play(driver)
        expected = finals(driver)
    with TopologyTestDriver(program(), "x", mode="compat") as driver:
        with monkeypatch.context() as former:
            former.setattr(suppress, "PLACES_FROM", 0)
            former.setattr(UpdateColumns, "write", _written_before)
            former.setattr(UpdateColumns, "read", staticmethod(_read_before))
            former.setattr(Suppress, "_take_over", lambda _: None)
            play(driver, slice(0, 8))
        log = driver._kafka.log("x-sup-store-changelog", 0)
        before = list(log.readable())
        assert before
        assert all(not row.headers for row in before)
        driver.restart(wipe_state=wipe)
        play(driver, slice(8, None))
        assert finals(driver) == expected
        state = last([row.key for row in log.readable()], [row.value for row in log.readable()])
        assert all(state[row.key] is None for row in before)
        driver.restart(wipe_state=True)
        topic = driver.create_input_topic("in-win", StringSerde(), StringSerde())
        topic.pipe_input("z", "x", 1795799461000 + 3_600_000)
        assert sorted(finals(driver)) == [("a", 2), ("b", 2), ("c", 1), ("d", 1)]
