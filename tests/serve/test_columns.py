"""Rows as columns: what is read and written for many rows at once is what single rows give."""

from __future__ import annotations

import heapq
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams import BytesSerde, Int64Serde, JsonSerde, Serde, StringSerde
from streams.application.store_rows import StoredRows
from streams.errors import SerdeError
from streams.serdes.json_shown import text_of, texts_of
from streams.serve.scans import Asked, Scan, first_rows
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click

BYTES = st.binary(max_size=2) | st.sampled_from([b"", b"a", b"a\x00", b"a\xff", b"\xff\xff"])
STORES = st.lists(st.dictionaries(BYTES, st.binary(max_size=30), max_size=12), min_size=1, max_size=4)


def store_of(rows: dict[bytes, bytes]) -> Any:
    found = TaskStore(MemoryTable(), [StoreSpec("rows", StoreKind.KEY_VALUE)]).store("rows")
    for key, value in rows.items():
        found.put(key, value, 0)
    return found


@settings(max_examples=150, deadline=None)
@given(STORES, st.data())
def test_pages_of_columns_are_pages_of_rows(parts, data):
    """Over several tasks, in which keys repeat, with bounds, prefixes, cursors and limits of rows and bytes."""
    bounds = data.draw(
        st.fixed_dictionaries({"lower": st.none() | BYTES, "upper": st.none() | BYTES})
        | st.fixed_dictionaries({"prefix": BYTES})
    )
    after = data.draw(st.none() | st.sampled_from(sorted({key for rows in parts for key in rows})[:9] or [b"a"]))
    if after is not None:
        # A cursor stands at a row of the scan.
        inside = [
            (bounds.get("lower") or b"") <= after,
            bounds.get("upper") is None or after <= bounds["upper"],
            after.startswith(bounds.get("prefix", b"")),
        ]
        after = after if all(inside) else None
    scan = Scan(**bounds, limit=data.draw(st.integers(1, 9)))
    skip = 0 if after is None else data.draw(st.integers(0, 3))
    asked = Asked("rows", scan, None if after is None else (after,), skip, most_bytes=data.draw(st.integers(0, 200)))
    stores = {task: store_of(rows) for task, rows in enumerate(parts)}

    def rows_of(store: Any) -> Any:
        lower = scan.lower if after is None else after
        if scan.prefix is None:
            return store.range(lower, scan.upper)
        return (row for row in store.prefix(scan.prefix) if after is None or row[0] >= after)

    wanted = heapq.merge(
        *([(key, value, task) for key, value in rows_of(store)] for task, store in stores.items()),
        key=lambda row: row[0],
    )
    rows, cut = asked.within(wanted, lambda row: len(row[0]) + len(row[1]))
    found = first_rows(stores, asked)
    assert list(zip(found.keys.to_pylist(), found.values.to_pylist(), found.tasks.tolist(), strict=True)) == rows
    assert found.cut == cut


def test_pages_go_on_where_a_read_of_one_task_ends(monkeypatch):
    """Each task gives some rows at a time, and values may be so large that it gives one."""
    monkeypatch.setattr("streams.serve.scans._FEWEST", 2)
    monkeypatch.setattr("streams.serve.scans._CHUNK_BYTES", 50)
    rows = {b"%04d" % number: bytes(number % 7 * 20) for number in range(500)}
    stores = {
        task: store_of({key: rows[key] for key in rows if (int(key) % 40 < 5) == bool(task)}) for task in range(2)
    }
    found = first_rows(stores, Asked("rows", Scan(limit=450)))
    assert list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)) == list(rows.items())[:451]


CELLS = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3),
        max_leaves=6,
    ).flatmap(
        lambda value: st.sampled_from([json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()])
    ),
    st.sampled_from([b"1],[2", b'{"a":1},"b":{}', b"1e999", b"01", b'"\\ud800"', b'"\xff"', b"null", b"", b" 1 "]),
)


@pytest.mark.parametrize(
    "serde", [JsonSerde(), StringSerde(), BytesSerde(), Int64Serde()], ids=lambda one: type(one).__name__
)
@settings(max_examples=60, deadline=None)
@given(cells=st.lists(CELLS, max_size=8))
def test_texts_of_a_column_are_those_of_its_cells(serde: Serde[Any], cells: list[bytes]):
    """Also of bytes that are not what the serde writes: a cell never becomes more than one value of the answer."""
    text, texts = text_of(serde, "t"), texts_of(serde, "t")
    try:
        wanted = list(map(text, cells))
    except SerdeError:
        with pytest.raises(SerdeError):
            texts(pa.array(cells, pa.binary()))
        return
    assert texts(pa.array(cells, pa.binary())) == wanted


def test_many_keys_and_pages_of_many_rows_are_those_of_few():
    """The numbers of rows at which columns are read are hidden from who asks."""
    names = [f"n{number:04d}" for number in range(300)]
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, at) for at, name in enumerate(names)])
        store = driver.served().store("counts")
        keys = [name.encode() for name in [*names[::-1], "nobody", *NAMES]]
        assert store.get_all(keys).rows == tuple(row for key in keys for row in store.get_all([key]).rows)
        texts = store.texts(keys, store.get_each(keys)[0])
        assert texts == [store.texts([key], store.get_each([key])[0])[0] for key in keys]
        for limit in (150, 200, 1000):
            answer = store.scan(Scan(limit=limit))
            rows = list(answer.rows)
            while answer.cursor is not None:
                answer = store.scan(Scan(limit=limit), answer.cursor)
                rows += answer.rows
            assert rows == list(reversed(store.scan(Scan(limit=1000, reverse=True)).rows))
        assert [(row.key, row.timestamp) for row in rows] == [(name, at) for at, name in enumerate(names)]


def test_columns_without_timestamps_stay_as_they_are():
    keys, values = pa.array([b"a"], pa.binary()), pa.array([b"x"], pa.binary())
    assert StoredRows.of_local(keys, values, timestamped=False) == (keys, values, None, None)
