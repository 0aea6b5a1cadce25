"""Estimated sizes of stores: exact for few rows, of the right order for many, the same way in every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from state.stores.position import StorePosition
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.native_library import native_available
from state.tables.native_table import NativeTable
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable, OrderedTable

KINDS = {
    "memory": lambda folder: MemoryTable(),
    "rocksdict": RocksTable,
    "native": NativeTable,
}
STORES = [StoreSpec(name, StoreKind.KEY_VALUE) for name in ("small", "large", "wide")]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> OrderedTable:
    if request.param == "native" and not native_available():
        pytest.skip("RocksDB's library is not here")
    make: Callable[[Path], OrderedTable] = KINDS[request.param]
    return make(tmp_path / "db")


def fill(store: TaskStore, rows: dict[str, tuple[int, int]]) -> None:
    """Name -> number of rows and size of their values."""
    for name, (count, size) in rows.items():
        rng = np.random.default_rng(count)
        for number in range(count):
            store.store(name).put(b"%08d" % number, rng.bytes(size), 0)
    store.apply(StorePosition("query", 1, {}, 0))


def test_a_store_with_few_rows_is_counted(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        fill(store, {"small": (30, 10)})
        sizes = store.sizes()
        per_row = sizes["small"].bytes / 30
        # The key with the store's id, and the value with what a store adds to it.
        assert 18 <= per_row < 40
        assert sizes["small"].rows == 30
        assert sizes["large"] == sizes["wide"] == (0, 0)


def test_large_stores_share_the_rows_by_their_bytes(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        fill(store, {"small": (30, 10), "large": (20_000, 20), "wide": (5_000, 400)})
        sizes = store.sizes()
        assert sizes["small"].rows == 30
        assert sizes["large"].rows + sizes["wide"].rows == pytest.approx(25_000, rel=0.1)
        if not isinstance(table, RocksTable):
            assert sizes["large"].rows == pytest.approx(20_000, rel=0.25)
            assert sizes["wide"].bytes == pytest.approx(5_000 * 420, rel=0.5)


def test_pending_writes_are_not_counted(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        store.store("small").put(b"k", b"v", 0)
        assert store.sizes()["small"] == (0, 0)
