"""Operations on columns against the same operations row by row: tables, the write buffer with spills, and every kind of store."""

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.columns import cells_of
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore
from state.tables.buffer import BufferMemory, WriteBuffer
from state.tables.native_table import NativeTable
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable, rows_of
from tests.budget import up_to

PREFIX, END = b"\x00\x01", b"\x00\x02"
KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\xff", b"\xff\xff", b"\x00", b"a", b"aa", b"ab", b"a" * 20])
VALUES = st.none() | st.binary(max_size=30)
BLOCK = st.lists(st.tuples(KEYS, VALUES), max_size=12)
RANGES = st.lists(st.tuples(KEYS, KEYS), max_size=8)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("put_last"), KEYS, VALUES),
        st.tuples(st.just("put_columns"), BLOCK),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("multi_get"), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("get_columns"), st.lists(KEYS, max_size=12)),
        st.tuples(st.just("scan"), KEYS, KEYS, st.booleans()),
        st.tuples(st.just("scan_ranges"), RANGES, st.booleans()),
        st.tuples(st.just("apply")),
        st.tuples(st.just("discard")),
    ),
    max_size=25,
)
TABLES = {"memory": lambda _: MemoryTable(), "rocksdict": RocksTable, "native": NativeTable}


def binary(values):
    return pa.array(list(values), pa.binary())


def range_rows(found):
    assert found.ranges.dtype == np.int32
    assert found.keys.type == found.values.type == pa.binary()
    return list(zip(found.ranges.tolist(), found.keys.to_pylist(), found.values.to_pylist(), strict=True))


def expected_ranges(model, ranges):
    return [
        (number, key, model[key])
        for number, (lower, upper) in enumerate(ranges)
        for key in sorted(model)
        if lower <= key < upper
    ]


@pytest.fixture(params=TABLES)
def make_table(request):
    return TABLES[request.param]


@up_to(40)
@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=4), st.lists(KEYS), RANGES, KEYS, KEYS)
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_finds_by_columns_what_it_finds_row_by_row(kind, writes, keys, ranges, lower, upper):
    with tempfile.TemporaryDirectory() as folder:
        table = TABLES[kind](Path(folder) / "db")
        model = {}
        for rows in writes:
            table.write_columns(binary(rows), binary(rows.values()), [(lower, upper)] if lower < upper else [])
            model = {key: value for key, value in model.items() if not lower <= key < upper} | rows
            model = {key: value for key, value in model.items() if value is not None}
        assert list(table.scan(b"", None)) == sorted(model.items())
        for asked in (keys, sorted(keys)):
            assert table.get_columns(binary(asked)).to_pylist() == [model.get(key) for key in asked]
        for asked in (ranges, sorted(ranges)):
            found = table.scan_ranges(binary(low for low, _ in asked), binary(high for _, high in asked))
            assert range_rows(found) == expected_ranges(model, asked)
        table.close()


def written(buffer):
    for keys, values, timestamps in buffer.written():
        yield from zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), strict=True)


def same_steps(table, memory, other, operations):
    """Runs operations on a buffer by columns, and on one over memory row by row; both must give the same."""
    columns, rows = WriteBuffer(table, memory, PREFIX), WriteBuffer(other, BufferMemory(), PREFIX)
    for number, (name, *arguments) in enumerate(operations):
        if name in ("put", "put_last"):
            for buffer in (columns, rows):
                getattr(buffer, name)(PREFIX + arguments[0], arguments[1], number)
        elif name == "put_columns":
            keys, values = [PREFIX + key for key, _ in arguments[0]], [value for _, value in arguments[0]]
            stamps = number * 100 + np.arange(len(keys))
            columns.put_columns(binary(keys), binary(values), stamps)
            for key, value, stamp in zip(keys, values, stamps.tolist(), strict=True):
                rows.put(key, value, stamp)
        elif name == "get":
            assert columns.get(PREFIX + arguments[0]) == rows.get(PREFIX + arguments[0])
        elif name in ("multi_get", "get_columns"):
            keys = [PREFIX + key for key in arguments[0]]
            found = columns.multi_get(keys) if name == "multi_get" else columns.get_columns(binary(keys)).to_pylist()
            assert found == rows.multi_get(keys)
        elif name == "scan":
            lower, upper, reverse = arguments
            if lower <= upper:
                limits = (PREFIX + lower, PREFIX + upper, reverse)
                assert list(columns.scan(*limits)) == list(rows.scan(*limits))
        elif name == "scan_ranges":
            ranges, in_order = arguments
            asked = [(PREFIX + low, PREFIX + high) for low, high in (sorted(ranges) if in_order else ranges)]
            found = columns.scan_ranges(binary(low for low, _ in asked), binary(high for _, high in asked))
            assert range_rows(found) == expected_ranges(dict(rows.scan(PREFIX, END)), asked)
        else:
            assert columns.dirty == rows.dirty
            entries, expected = list(written(columns)), list(written(rows))
            assert [row for part in columns.sorted_changes() for row in rows_of([part])] == sorted(
                (key, value) for key, value, _ in expected
            )
            assert entries == (sorted(expected) if columns.spilled else expected)
            if name == "apply":
                table.write([(key, value) for key, value, _ in entries])
                other.write([(key, value) for key, value, _ in expected])
            for buffer in (columns, rows):
                buffer.clear()
            memory.clear()
    assert list(columns.scan(PREFIX, END)) == list(rows.scan(PREFIX, END))
    assert list(columns.scan(PREFIX, END, reverse=True)) == list(rows.scan(PREFIX, END, reverse=True))
    memory.clear()


FEW_ROWS = st.sampled_from([0, 2, 8])
"""Up to how many rows columns are read and written row by row."""


@up_to(150)
@given(OPERATIONS, FEW_ROWS)
def test_a_step_of_columns_is_the_step_of_its_rows(operations, few):
    with mock.patch("state.tables.buffer.FEW_ROWS", few):
        same_steps(MemoryTable(), BufferMemory(), MemoryTable(), operations)


@up_to(40)
@given(OPERATIONS, FEW_ROWS, st.sampled_from([None, 0, 600, 3000]))
@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "memory"])
def test_the_same_on_disk_with_spills(kind, operations, few, limit):
    with mock.patch("state.tables.buffer.FEW_ROWS", few), tempfile.TemporaryDirectory() as folder:
        table = TABLES[kind](Path(folder) / "db")
        try:
            same_steps(table, BufferMemory(limit, Path(folder)), MemoryTable(), operations)
        finally:
            table.close()


STORE_KEYS = st.sampled_from([b"", b"a", b"ab", b"a\x00", b"a" + bytes(12), b"a" + bytes(20), b"\xff", b"b"])
TIMES = st.integers(0, 60)
ROWS = st.lists(st.tuples(STORE_KEYS, TIMES, TIMES, VALUES), max_size=20)
SPECS = {
    "key-value": StoreSpec("s", StoreKind.KEY_VALUE),
    "timestamped": StoreSpec("s", StoreKind.TIMESTAMPED_KEY_VALUE),
    "window": StoreSpec("s", StoreKind.WINDOW, retention_ms=100, segment_ms=10),
    "join": StoreSpec("s", StoreKind.WINDOW, retention_ms=100, segment_ms=10, retain_duplicates=True),
    "session": StoreSpec("s", StoreKind.SESSION, retention_ms=100, segment_ms=10),
}


def put_rows(spec, store, rows):
    for key, start, length, value in rows:
        if spec.kind is StoreKind.SESSION:
            store.put(key, start, start + length, value, start)
        elif spec.kind is StoreKind.WINDOW:
            store.put(key, start, value, start)
        else:
            store.put(key, None if value is None else b"%08d" % start + value, start)


def put_columns(spec, store, rows):
    keys, values = binary(key for key, *_ in rows), binary(value for *_, value in rows)
    starts, lengths = (np.array([row[place] for row in rows], np.int64) for place in (1, 2))
    if spec.kind is StoreKind.SESSION:
        store.put_columns(keys, starts, starts + lengths, values, starts)
    elif spec.kind is StoreKind.WINDOW:
        store.put_columns(keys, starts, values, starts)
    else:
        local = binary(None if value is None else b"%08d" % start + value for _, start, _, value in rows)
        store.put_columns(keys, local, starts)


def same_reads(spec, by_columns, by_rows, asked):
    keys = binary(key for key, *_ in asked)
    lows, highs = (np.array([row[place] for row in asked], np.int64) for place in (1, 2))
    if spec.kind is StoreKind.SESSION:
        found = by_columns.find_columns(keys, lows, highs)
        assert list(zip(*(column.tolist() for column in found[:3]), found.values.to_pylist(), strict=True)) == [
            (request, *row)
            for request, (key, low, high, _) in enumerate(asked)
            for row in by_rows.find_sessions(key, low, high)
        ]
    elif spec.kind is StoreKind.WINDOW:
        assert by_columns.fetch_columns(keys, lows).to_pylist() == [by_rows.fetch(key, low) for key, low, *_ in asked]
        found = by_columns.fetch_ranges(keys, lows, highs)
        assert list(zip(*(column.tolist() for column in found[:2]), found.values.to_pylist(), strict=True)) == [
            (request, *row)
            for request, (key, low, high, _) in enumerate(asked)
            for row in by_rows.fetch_range(key, low, high)
        ]
    else:
        assert by_columns.get_columns(keys).to_pylist() == [by_rows.get(key) for key, *_ in asked]
        assert range_rows(by_columns.scan_prefixes(keys)) == [
            (number, *row) for number, (key, *_) in enumerate(asked) for row in by_rows.prefix(key)
        ]


def changelog_of(task):
    return [
        (name, key, value, stamp)
        for name, batch in task.changelog()
        for key, value, stamp in zip(
            batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True
        )
    ]


@up_to(40)
@given(st.lists(st.tuples(ROWS, st.sampled_from(["columns", "rows", "apply", "expire"])), max_size=6), ROWS, FEW_ROWS)
@pytest.mark.parametrize("name", SPECS)
def test_a_store_of_columns_is_the_store_of_its_rows(name, steps, asked, few):
    with mock.patch("state.tables.buffer.FEW_ROWS", few):
        same_stores(SPECS[name], steps, asked)


def same_stores(spec, steps, asked):
    """Runs the steps on a store by columns, and on one row by row; both must give the same."""
    by_columns, by_rows = (TaskStore(MemoryTable(), [spec]) for _ in range(2))
    for version, (rows, what) in enumerate(steps, 1):
        put_rows(spec, by_rows.store("s"), rows)
        (put_rows if what == "rows" else put_columns)(spec, by_columns.store("s"), rows)
        same_reads(spec, by_columns.store("s"), by_rows.store("s"), asked)
        if what == "expire":
            for task in (by_columns, by_rows):
                task.expire("s", 9 * version)
        if what == "apply":
            assert changelog_of(by_columns) == changelog_of(by_rows)
            for task in (by_columns, by_rows):
                task.apply(StorePosition("q", version, {"s": version}))
            assert list(by_columns.table.scan(b"", None)) == list(by_rows.table.scan(b"", None))
    same_reads(spec, by_columns.store("s"), by_rows.store("s"), sorted(asked, key=lambda row: row[:2]))
    assert changelog_of(by_columns) == changelog_of(by_rows)


@up_to(60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 30)), max_size=6),
            st.sampled_from(["rows", "columns", "restore"]),
            st.sampled_from(["apply", "discard", "reopen", "go on"]),
        ),
        max_size=10,
    )
)
def test_no_duplicate_is_ever_overwritten(steps):
    spec, table = SPECS["join"], MemoryTable()
    task = TaskStore(table, [spec])
    committed, pending, offset = [], [], 0
    for version, (rows, how, then) in enumerate(steps, 1):
        values = [b"%d/%d" % (version, number) for number in range(len(rows))]
        if how == "restore":
            # Rows of another writer, numbered beyond all others.
            records = [
                key + start.to_bytes(8, "big") + (version * 100 + n).to_bytes(4, "big")
                for n, (key, start) in enumerate(rows)
            ]
            task.discard()
            pending = []
            task.restore("s", records, values, [0] * len(rows), next_offset=offset + len(rows))
            offset += len(rows)
            committed += [(*row, value) for row, value in zip(rows, values, strict=True)]
        else:
            given = [(key, start, 0, value) for (key, start), value in zip(rows, values, strict=True)]
            (put_rows if how == "rows" else put_columns)(spec, task.store("s"), given)
            pending += [(*row, value) for row, value in zip(rows, values, strict=True)]
        if then == "apply":
            task.apply(StorePosition("q", version, {"s": offset}))
            committed, pending = committed + pending, []
        elif then != "go on":
            task.discard()
            pending = []
        if then == "reopen":
            task = TaskStore(table, [spec])
        for key in (b"a", b"b"):
            found = list(task.store("s").fetch_range(key, 0, 30))
            assert sorted(found) == sorted((start, value) for own, start, value in committed + pending if own == key)


@given(st.lists(VALUES))
def test_a_column_of_cells_is_as_arrow_makes_it(values: list[bytes | None]) -> None:
    made = cells_of(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))
