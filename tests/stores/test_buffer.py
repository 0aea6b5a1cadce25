"""The write buffer over a table against a plain dictionary: random writes, reads, scans and spills."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.stores.codec import prefix_end
from state.tables.buffer import BufferMemory, WriteBuffer, delete_left_scratch, overlay
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable
from tests.budget import up_to
from tests.stores.test_columns import written

PREFIX = b"\x00\x01"
END = b"\x00\x02"
# Few and odd keys, so that overwrites, prefixes of one another and borders are common.
KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\xff", b"\xff\xff", b"\x00", b"a", b"aa", b"ab"])
VALUES = st.none() | st.binary(max_size=30)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("put_last"), KEYS, VALUES),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("scan"), KEYS, KEYS, st.booleans()),
        st.tuples(st.just("multi_get"), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("apply")),
        st.tuples(st.just("discard")),
    ),
    max_size=40,
)


def run(table, memory, operations):
    """Runs the operations on a buffer and on dictionaries, comparing what each gives."""
    buffer = WriteBuffer(table, memory, PREFIX)
    committed: dict[bytes, bytes] = {}
    model = dict(committed)
    writes: dict[bytes, tuple[bytes | None, int]] = {}
    for number, (name, *arguments) in enumerate(operations):
        if name in ("put", "put_last"):
            key, value = arguments
            getattr(buffer, name)(PREFIX + key, value, number)
            if name == "put_last":
                writes.pop(PREFIX + key, None)
            writes[PREFIX + key] = (value, number)
            model.pop(key, None)
            if value is not None:
                model[key] = value
        elif name == "get":
            assert buffer.get(PREFIX + arguments[0]) == model.get(arguments[0])
        elif name == "multi_get":
            assert buffer.multi_get([PREFIX + key for key in arguments[0]]) == [model.get(key) for key in arguments[0]]
        elif name == "scan":
            lower, upper, reverse = arguments
            if lower <= upper:
                expected = sorted(((k, v) for k, v in model.items() if lower <= k < upper), reverse=reverse)
                assert list(buffer.scan(PREFIX + lower, PREFIX + upper, reverse)) == [
                    (PREFIX + k, v) for k, v in expected
                ]
        else:
            entries = list(written(buffer))
            expected_entries = [(key, value, timestamp) for key, (value, timestamp) in writes.items()]
            assert entries == (sorted(expected_entries) if buffer.spilled else expected_entries)
            if name == "apply":
                table.write([(key, value) for key, value, _ in entries])
                committed = dict(model)
            buffer.clear()
            memory.clear()
            model, writes = dict(committed), {}
    expected = [(PREFIX + key, model[key]) for key in sorted(model)]
    assert list(buffer.scan(PREFIX, END)) == expected
    assert list(buffer.scan(PREFIX, END, reverse=True)) == expected[::-1]
    memory.clear()


@up_to(100)
@given(OPERATIONS)
def test_over_memory(operations):
    run(MemoryTable(), BufferMemory(), operations)


@up_to(25)
@given(OPERATIONS, st.sampled_from([None, 0, 600, 3000]))
def test_over_rocksdb_with_spills(operations, limit):
    with tempfile.TemporaryDirectory() as folder:
        table = RocksTable(Path(folder) / "db")
        try:
            run(table, BufferMemory(limit, Path(folder)), operations)
            assert os.listdir(folder) == ["db"], "no scratch is left"
        finally:
            table.close()


@up_to(100)
@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES), st.booleans())
def test_overlay(newer, older, reverse):
    merged = overlay(
        iter(sorted(newer.items(), reverse=reverse)), iter(sorted(older.items(), reverse=reverse)), reverse
    )
    assert list(merged) == sorted({**older, **newer}.items(), key=lambda row: row[0], reverse=reverse)


def test_a_scan_sees_the_store_as_it_was_when_it_began(tmp_path):
    table = RocksTable(tmp_path / "db")
    table.write([(PREFIX + bytes([i]), b"old") for i in range(0, 10, 2)])
    memory = BufferMemory(5000, tmp_path)
    buffer = WriteBuffer(table, memory, PREFIX)
    for i in range(1, 10, 2):
        buffer.put(PREFIX + bytes([i]), b"new", 0)
    seen = []
    for key, value in buffer.scan(PREFIX, END):
        seen.append((key[2], value))
        # Deletes what comes next, adds behind, and spills on the way.
        buffer.put(key[:2] + bytes([key[2] + 1]), None, 0)
        buffer.put(key + b"x" * 1000, b"added", 0)
    assert buffer.spilled
    assert seen == [(i, b"new" if i % 2 else b"old") for i in range(10)]
    memory.clear()
    table.close()


def test_scratch_left_by_a_killed_process_goes(tmp_path):
    (tmp_path / "spill-abc" / "db").mkdir(parents=True)
    (tmp_path / "db").mkdir()
    delete_left_scratch(tmp_path)
    assert os.listdir(tmp_path) == ["db"]


def test_a_bound_needs_a_directory():
    with pytest.raises(ValueError, match="directory"):
        BufferMemory(limit=10)


def test_prefix_of_the_buffer_ends_before_the_next_store():
    assert prefix_end(PREFIX) == END
