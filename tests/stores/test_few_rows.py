"""Few rows go past Arrow and RocksDB's columns: what comes of them is the same as of many."""

import tempfile
from importlib import import_module
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.columns import BinaryCells, binary_column, cell_bounds, sliced
from state.tables.native_table import NativeTable
from streams import BytesSerde
from streams.errors import OversizedRowError
from streams.operators.columnar import NULL_KEY, KeyColumn
from streams.operators.stores.codec import Codec

CELLS = st.lists(st.none() | st.binary(max_size=12), max_size=12)


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


@settings(deadline=None)
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


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=12), st.integers(0, 2**62)), max_size=8)
)
def test_rows_of_a_store_are_written_alike(rows):
    codec = Codec("log", BytesSerde(), BytesSerde(), room=20)
    keys, values = (pa.array([row[part] for row in rows], pa.binary()) for part in (0, 1))
    times = np.array([row[2] for row in rows], np.int64)
    few, many = both_ways(lambda: codec.timestamped_column(keys, values, times), "streams.operators.stores.codec")
    assert (few[0], many[0]) == (OversizedRowError,) * 2 if isinstance(few, tuple) else few.equals(many)


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
