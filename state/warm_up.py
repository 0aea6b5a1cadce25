"""Compiles (or loads from numba's cache on disk) the kernels of `state` before they are needed.

The first call of a kernel costs up to seconds on a new machine and tens of milliseconds later on. The worker daemon pays this
once, before it forks. Invariant: no client is created and no database opened, because their threads do not survive a fork.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.columns import COUNTERS, numbers_at, prefix_ends, sliced
from state.kafka.librdkafka import bulk_available
from state.kafka.librdkafka import library as librdkafka
from state.kafka.partitioner import partition_for_keys
from state.sorting import numbered, sorted_rows
from state.tables.buffer import BufferMemory, WriteBuffer
from state.tables.native_library import library as rocksdb
from state.tables.native_library import native_available
from state.tables.table import MemoryTable


def warm_up() -> None:
    """Runs every kernel once, with the argument types of real calls."""
    _columns_and_tables()
    if bulk_available():
        _kafka()
    if native_available():
        _rocksdb()


def _columns_and_tables() -> None:
    # Enough rows for every way of sorting, some of them with equal keys.
    keys = pa.array([number.to_bytes(9, "big") for number in (*range(1000, 0, -1), 7, 7)], pa.binary())
    table = MemoryTable()
    table.write_columns(keys[:1], keys[:1])
    buffer = WriteBuffer(table, BufferMemory(), b"\x00")
    for _ in range(2):
        buffer.put_columns(keys, keys, np.zeros(len(keys), np.int64))
    buffer.get_columns(keys[:2])
    buffer.scan_ranges(keys[1:3], prefix_ends(keys[:2]))
    numbered(keys, sorted_rows(keys))
    numbers_at(sliced(keys, 1), 0)
    partition_for_keys(keys[:1], 1)


def _kafka() -> None:
    from state.kafka import native_producer, native_reader
    from state.kafka.interceptors import on_acknowledgement, on_send

    messages, functions = np.zeros(1, np.int64), np.zeros(4, np.int64)
    native_reader.gather(messages, 0, 0, 0, functions, np.zeros((2, 0), np.int64), np.zeros((3, 4), np.int64))
    native_reader.destroy(messages, 0, 0, functions)
    table, arguments = np.zeros((3, 3), np.int64), native_producer.new_arguments(0, 0)
    native_producer.produce_rows(0, functions, 0, np.zeros(0, np.int32), np.zeros(0, np.int64), table, arguments)
    on_send()
    on_acknowledgement()
    librdkafka()


def _rocksdb() -> None:
    # Importing the table compiles the functions of `native_objects`.
    from state.tables import native_kernels as kernels
    from state.tables.native_table import kernel_functions

    functions = kernel_functions(rocksdb())
    counters, error = np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
    pair, columns = np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int64)
    kernels.get_cells(0, 0, 0, functions, pair[:1], 0, columns[:1], counters, error)
    state = np.zeros(kernels.SCAN_STATE + 1, np.int64)
    kernels.scan_ranges(0, functions, pair, np.empty(0, np.int32), columns, counters, state, error)
    kernels.scan_part(0, functions, pair, 0, columns, counters, error)
    kernels.batch_bytes(pair, 0)
    kernels.fill_batch(pair, 0, 0)
    kernels.fill_file(0, functions, pair, 0, error)
