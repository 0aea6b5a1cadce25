"""Compiled kernel: rows of Arrow buffers -> `rd_kafka_produceva`, one call per row.

`plain/producer.py` is the counterpart in plain Python: tests require that both write the same records. Invariants:
librdkafka copies key and value (MSG_F_COPY), so the buffers may be released when the kernel returns; header objects
belong to librdkafka once a row was accepted and are freed here when it was not; the kernel stops at the first refused
row and returns its number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from state.column_kernels import cell
from state.numba_kernels import as_pointer, call, carray, kernel

# rd_kafka_vu_t: int type, then a union padded to 64 bytes: 9 words of 8 bytes. Each is one argument of produceva.
_WORDS = 9
_TOPIC, _PARTITION, _VALUE, _KEY, _OPAQUE, _FLAGS, _TIME, _HEADERS = range(8)
_TYPES = (2, 3, 4, 5, 6, 7, 8, 10)
_MSG_F_COPY = 2
# The functions whose addresses the kernel gets, in this order.
FUNCTIONS = ("produceva", "headers_new", "header_add", "headers_destroy")
_PRODUCE, _NEW_LIST, _ADD, _DESTROY_LIST = range(4)
KEYS, VALUES, CELLS = range(3)


def new_arguments(topic_handle: int, opaque: int) -> Any:
    """The argument block of produceva for one topic: int64[8, 9], to be used for all rows of a call."""
    arguments = np.zeros((len(_TYPES), _WORDS), np.int64)
    arguments[:, 0] = _TYPES
    arguments[_TOPIC, 1] = topic_handle
    arguments[_OPAQUE, 1] = opaque
    arguments[_FLAGS, 1] = _MSG_F_COPY
    return arguments


@kernel
def produce_rows(
    client: int, functions: Any, first: int, partitions: Any, timestamps: Any, columns: Any, arguments: Any
) -> Any:
    """Produce rows starting at `first`, until all are queued or one is refused."""
    result = np.zeros(2, np.int64)
    block = np.int64(arguments.ctypes.data)
    scratch = np.zeros(2, np.int64)
    count = len(timestamps)
    for row in range(first, count):
        arguments[_PARTITION, 1] = partitions[row]
        arguments[_TIME, 1] = timestamps[row]
        cell(columns, KEYS, row, scratch)
        arguments[_KEY, 1], arguments[_KEY, 2] = scratch[0], scratch[1]
        cell(columns, VALUES, row, scratch)
        arguments[_VALUE, 1], arguments[_VALUE, 2] = scratch[0], scratch[1]
        cell(columns, CELLS, row, scratch)
        headers = np.int64(0)
        used = _HEADERS
        if scratch[1] > 0:
            headers = new_headers(functions, scratch[0], scratch[1])
            arguments[_HEADERS, 1] = headers
            used = _HEADERS + 1
        error = call(functions[_PRODUCE], (client, block, np.int64(used)))
        if error != 0:
            if headers != 0:
                call(functions[_DESTROY_LIST], (headers,))
            result[0], result[1] = row, error
            return result
    result[0] = count
    return result


@kernel
def new_headers(functions: Any, at: int, size: int) -> int:
    """A new `rd_kafka_headers_t` from one encoded header list (format: `state.kafka.headers`)."""
    headers: int = call(functions[_NEW_LIST], (np.int64(4),))
    end = at + size
    while at < end:
        name_size = read_length(at)
        name = at + 4
        at = name + name_size
        value_size = read_length(at)
        value = at + 4 if value_size >= 0 else np.int64(0)
        value_size = max(value_size, np.int64(0))
        at += 4 + value_size
        call(functions[_ADD], (headers, name, name_size, value, value_size))
    return headers


@kernel
def read_length(at: int) -> int:
    """The little endian int32 at an address."""
    data = carray(as_pointer(at), 4, np.uint8)
    word = np.uint32(data[0]) | np.uint32(data[1]) << 8 | np.uint32(data[2]) << 16 | np.uint32(data[3]) << 24
    length: int = np.int64(np.int32(word))
    return length
