"""Few rows go past Arrow and RocksDB's columns: what comes of them is the same as of many."""

import tempfile
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.columns import (
    BinaryCells,
    binary_column,
    cell_bounds,
    codes_in,
    column_of,
    dictionary_of,
    long_cells,
    sliced,
)
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import open_task_store
from state.tables.native_table import NativeTable
from streams import BytesSerde, JsonSerde
from streams.errors import OversizedRowError
from streams.operators.columnar import NULL_KEY, KeyColumn
from streams.operators.stores.codec import Codec
from streams.serdes.keys import JsonKeySerde

CELLS = st.lists(st.none() | st.binary(max_size=12), max_size=110)


@given(CELLS)
def test_a_column_of_few_cells_is_arrows(cells):
    made, arrows = binary_column(cells), pa.array(cells, pa.binary())
    made.validate(full=True)
    assert made.equals(arrows)
    assert (made.type, made.null_count, made.nbytes) == (arrows.type, arrows.null_count, made.nbytes)
    if cells:
        assert np.array_equal(cell_bounds(made), cell_bounds(arrows))
    assert (BinaryCells(made).addresses == (0, 0, 0)) == (not any(cell is not None for cell in cells))


def test_what_a_serde_gives_instead_of_bytes_is_arrows_to_judge():
    assert binary_column(["text"]).to_pylist() == [b"text"]
    with pytest.raises(TypeError):
        binary_column([1])


def both_ways(function, *modules):
    """The result with few rows as objects, and as columns; an error's type and text count as one."""

    def result():
        try:
            return function()
        except Exception as error:
            return type(error), str(error)

    found = result()
    bounds = [(import_module(module), name) for module in modules for name in ("FEW_ROWS", "FEW_CELLS")]
    patches = [mock.patch.object(module, name, -1) for module, name in bounds if hasattr(module, name)]
    for patch in patches:
        patch.start()
    try:
        return found, result()
    finally:
        for patch in patches:
            patch.stop()


@given(st.lists(st.none() | st.binary(min_size=5, max_size=12), max_size=8), st.integers(0, 3), st.integers(0, 2))
def test_cells_are_sliced_alike(cells, front, back):
    column = pa.array([b"in front", *cells], pa.binary())[1:]
    few, many = both_ways(lambda: sliced(column, front, back), "state.columns")
    assert few.equals(many)


@given(st.lists(st.none() | st.sampled_from([b"a", b"b", b""]), max_size=8))
def test_keys_are_written_alike(keys):
    objects = [b"a", b"b", b"", b"unused"]
    codes = np.array([NULL_KEY if key is None else objects.index(key) for key in keys], np.int32)
    column = KeyColumn(codes, objects, list(objects), BytesSerde())
    few, many = both_ways(lambda: column.column(BytesSerde(), "t"), "streams.operators.columnar")
    assert few.equals(many)
    assert few.to_pylist() == keys


@given(
    st.lists(st.dictionaries(st.sampled_from("abä"), st.integers(0, 3) | st.none() | st.text(max_size=2)), max_size=8)
)
def test_keys_that_are_read_from_json_are_written_in_order(keys):
    """Their bytes are taken as they are only where the serde would write them again."""
    data = [orjson.dumps(key) for key in keys]
    for serde in (JsonKeySerde(), JsonSerde(dict[str, Any])):
        column = KeyColumn(np.arange(len(keys), dtype=np.int32), keys, data, serde)
        few, many = both_ways(partial(column.encoded, serde, "t"), "streams.operators.columnar")
        assert few == many == [serde.serialize("t", key) for key in keys]


@given(
    st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=12), st.integers(0, 2**62)), max_size=8)
)
def test_rows_of_a_store_are_written_alike(rows):
    codec = Codec("log", BytesSerde(), BytesSerde(), room=20)
    keys, values = (pa.array([row[part] for row in rows], pa.binary()) for part in (0, 1))
    times = np.array([row[2] for row in rows], np.int64)
    few, many = both_ways(lambda: codec.timestamped_column(keys, values, times), "streams.operators.stores.codec")
    assert (few[0], many[0]) == (OversizedRowError,) * 2 if isinstance(few, tuple) else few.equals(many)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=6), st.data())
def test_cells_are_chosen_alike(cells, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(cells) - 1), max_size=12)), np.int64)
    few, many = both_ways(lambda: column_of(cells, rows), "state.columns")
    assert few.equals(many)
    assert few.to_pylist() == [cells[row] for row in rows]


@given(st.lists(st.none() | st.binary(max_size=2), max_size=12))
def test_distinct_cells_are_found_alike(cells):
    for found in both_ways(lambda: dictionary_of(pa.array(cells, pa.binary())), "state.columns"):
        assert found.to_pylist() == cells
        assert found.dictionary.to_pylist() == list(dict.fromkeys(cell for cell in cells if cell is not None))
        codes = codes_in(found, -1)
        assert codes.dtype == np.int32
        assert [None if code < 0 else found.dictionary[code].as_py() for code in codes] == cells


def test_numbers_stand_next_to_each_other():
    cells = long_cells(np.array([1, -1]), np.array([2, 2**62]))
    assert list(cells) == [b"\0" * 7 + b"\1" + b"\0" * 7 + b"\2", b"\xff" * 8 + (2**62).to_bytes(8, "big")]


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 5_000)), min_size=1, max_size=12))
def test_windows_are_written_and_found_alike(windows):
    spec = StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=100_000)
    keys = pa.array([key for key, _ in windows], pa.binary())
    starts, times = np.array([start for _, start in windows], np.int64), np.zeros(len(windows), np.int64)
    values = pa.array([b"%d" % number for number in range(len(windows))], pa.binary())

    def written():
        with tempfile.TemporaryDirectory() as folder, closing(open_task_store(Path(folder), [spec])) as stores:
            store = stores.store("windows")
            store.put_columns(keys, starts, values, times)
            return store.fetch_columns(keys, starts).to_pylist()

    few, many = both_ways(written, "state.stores.byte_stores", "state.tables.buffer")
    assert few == many == [b"%d" % {window: number for number, window in enumerate(windows)}[one] for one in windows]


def test_no_row_is_written_with_a_time_below_zero():
    codec = Codec("log", BytesSerde(), BytesSerde())
    cells = pa.array([b"x"], pa.binary())
    for found in both_ways(
        lambda: codec.timestamped_column(cells, cells, np.array([-1])), "streams.operators.stores.codec"
    ):
        assert found[0] is OverflowError


def test_few_keys_are_found_as_many_are():
    with tempfile.TemporaryDirectory() as folder:
        table = NativeTable(Path(folder) / "db")
        try:
            table.write([(b"%02d" % number, b"v%d" % number) for number in range(0, 40, 2)])
            asked = [b"%02d" % number for number in (5, 38, 0, 0, 7, 12)]
            few, many = both_ways(lambda: table.multi_get(asked), "state.tables.native_table")
            assert few == many == [None, b"v38", b"v0", b"v0", None, b"v12"]
        finally:
            table.close()


def test_the_serdes_of_a_store_are_prepared_once():
    keys, values = BytesSerde(), BytesSerde()
    one, other = Codec("log", keys, values), Codec("log", keys, values, room=20)
    assert one._value_serde is other._value_serde
    assert Codec("log", keys, BytesSerde())._value_serde is not one._value_serde, "another object may be another serde"
