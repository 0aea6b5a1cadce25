"""Compiled kernel: an array of `rd_kafka_message_t` pointers -> Arrow buffers.

A single pass inspects, copies and frees each message while it is in the cache (several passes cost half as much again).
The buffers have a fixed capacity, and a run ends where the next record does not fit, so nothing is measured in advance.
`plain/reader.py` is the counterpart in plain Python: tests require equal results. Invariant: exactly the records that are
counted in the result were copied, and their messages freed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from state.column_kernels import BYTES, COUNTERS, DATA, FULL, ROWS, add_cell, byte_at, count_cell, has_room
from state.numba_kernels import as_pointer, call, carray, copy_bytes, kernel

# Words of rd_kafka_message_t (9 x 8 bytes).
_ERROR, _PAYLOAD, _KEY, _OFFSET, _WORDS = 0, 3, 5, 7, 9
# The zigzag varint of -1: the length of a null key or value in a record.
_NULL_LENGTH = 1
# The functions whose addresses a kernel gets, in this order.
FUNCTIONS = ("message_timestamp", "message_headers", "header_get_all", "message_destroy")
_TIMESTAMP, _HEADERS, _HEADER, _DESTROY = range(4)
KEYS, VALUES, HEADERS = 0, 1, 2


@kernel
def gather(messages: Any, first: int, last: int, end: int, functions: Any, numbers: Any, columns: Any) -> Any:
    """Move the records at the head of the queue into columns: up to `end`, an event, a full buffer or n records."""
    result = np.zeros(COUNTERS, np.int64)
    result[FULL] = -1
    scratch = np.zeros(4, np.int64)
    for i in range(min(last - first, numbers.shape[1])):
        address = messages[first + i]
        message = carray(as_pointer(address), _WORDS, np.int64)
        if np.int32(message[_ERROR]) != 0 or message[_OFFSET] >= end:
            break
        header_bytes = 0 if surely_without_headers(message) else measure_headers(address, functions, scratch)
        if not (
            has_room(columns, result, KEYS, message[_KEY + 1])
            and has_room(columns, result, VALUES, message[_PAYLOAD + 1])
            and has_room(columns, result, HEADERS, header_bytes)
        ):
            break
        add_cell(columns, result, KEYS, message[_KEY], message[_KEY + 1])
        add_cell(columns, result, VALUES, message[_PAYLOAD], message[_PAYLOAD + 1])
        if header_bytes > 0:
            write_headers(functions, scratch, columns[HEADERS, DATA] + result[BYTES + HEADERS])
        count_cell(columns, result, HEADERS, header_bytes, header_bytes > 0)
        numbers[0, i] = message[_OFFSET]
        numbers[1, i] = call(functions[_TIMESTAMP], (address, np.int64(0)))
        call(functions[_DESTROY], (address,))
        result[ROWS] += 1
    return result


@kernel
def destroy(messages: Any, first: int, last: int, functions: Any) -> None:
    """Free the messages [first, last)."""
    for i in range(first, last):
        call(functions[_DESTROY], (messages[i],))


@kernel
def surely_without_headers(message: Any) -> bool:
    """Whether the record's own bytes show that it has no headers; False = ask the library.

    Asking costs more than everything else about a record: the library parses even an empty list into new objects. In Kafka's
    record format (v2), the varint of a field's length precedes the field, and the number of headers directly follows the value;
    librdkafka passes out pointers into the fetched record. This layout is verified for each record: only if the length precedes
    the field is the byte after the field read as the number of headers.
    """
    if message[_PAYLOAD] != 0:
        return follows_its_length(message[_PAYLOAD], message[_PAYLOAD + 1]) and (
            byte_at(message[_PAYLOAD] + message[_PAYLOAD + 1]) == 0
        )
    if message[_KEY] != 0 and follows_its_length(message[_KEY], message[_KEY + 1]):
        behind = message[_KEY] + message[_KEY + 1]
        return byte_at(behind) == _NULL_LENGTH and byte_at(behind + 1) == 0
    return False


@kernel
def follows_its_length(field: int, size: int) -> bool:
    """Whether the bytes before `field` are the zigzag varint of its size."""
    word = size << 1
    length = 1
    while word >> (7 * length) != 0:
        length += 1
    for i in range(length):
        expected = ((word >> (7 * i)) & 0x7F) | (0x80 if i < length - 1 else 0)
        if byte_at(field - length + i) != expected:
            return False
    return True


@kernel
def measure_headers(message: int, functions: Any, scratch: Any) -> int:
    """Bytes of a message's encoded header list (format: `state.kafka.headers`); leaves its address in scratch[0]."""
    if np.int32(call(functions[_HEADERS], (message, np.int64(scratch.ctypes.data)))) != 0:
        return 0
    size = 0
    index = 0
    while get_header(functions, scratch, index):
        size += 8 + name_length(scratch[1]) + (scratch[3] if scratch[2] != 0 else 0)
        index += 1
    return size


@kernel
def write_headers(functions: Any, scratch: Any, target: int) -> None:
    """Write the encoded header list whose address is in scratch[0] to `target`."""
    index = 0
    while get_header(functions, scratch, index):
        target = write_field(target, scratch[1], name_length(scratch[1]))
        target = write_field(target, scratch[2], scratch[3] if scratch[2] != 0 else -1)
        index += 1


@kernel
def get_header(functions: Any, scratch: Any, index: int) -> bool:
    """Put name, value and its size of one header of the list scratch[0] into scratch[1:4]; False = no such header."""
    at = np.int64(scratch.ctypes.data)
    found: bool = np.int32(call(functions[_HEADER], (scratch[0], np.int64(index), at + 8, at + 16, at + 24))) == 0
    return found


@kernel
def name_length(name: int) -> int:
    size = 0
    while byte_at(name + size) != 0:
        size += 1
    return size


@kernel
def write_field(target: int, source: int, size: int) -> int:
    """Write a length and its bytes (none for -1) at `target`; returns the address after them."""
    length = carray(as_pointer(target), 4, np.uint8)
    for i in range(4):
        length[i] = (size >> (8 * i)) & 0xFF
    if size <= 0:
        return target + 4
    copy_bytes(target + 4, source, size)
    return target + 4 + size
