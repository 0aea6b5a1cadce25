"""Compiles (or loads from the disk cache) the kernels of native tables before they are needed, and loads RocksDB's library."""

from __future__ import annotations

import numpy as np

from state.column_kernels import COUNTERS
from state.tables.native import kernels, objects  # noqa: F401  (importing `objects` compiles its functions)
from state.tables.native.library import library
from state.tables.native.table import kernel_functions


def warm_up() -> None:
    """Runs every kernel once without rows, with the argument types of real calls.

    No database is opened: RocksDB's threads do not survive a fork.
    """
    functions = kernel_functions(library())
    counters, error = np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
    pair, columns = np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int64)
    kernels.get_cells(0, 0, 0, functions, pair[:1], 0, columns[:1], counters, error)
    state = np.zeros(kernels.SCAN_STATE + 1, np.int64)
    kernels.scan_ranges(0, functions, pair, np.empty(0, np.int32), columns, counters, state, error)
    kernels.scan_part(0, functions, pair, 0, columns, counters, error)
    kernels.batch_bytes(pair, 0)
    kernels.fill_batch(pair, 0, 0)
    kernels.fill_file(0, functions, pair, 0, error)
