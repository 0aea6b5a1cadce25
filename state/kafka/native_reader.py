"""`BulkReader`: ranges read through librdkafka's C API, gathered into Arrow buffers by compiled kernels.

No Python object per record: about a quarter of the CPU of the ordinary client. Records and errors are the same as those of
`OrdinaryReader` (tests compare them). A single pass inspects, copies and frees each message while it is in the cache. The buffers
have a fixed capacity, and a run ends where the next record does not fit, so nothing is measured in advance. Invariants: a message
is freed exactly once, by the kernel that copied it, by `_drop_head`, or by `close`; `_messages[_first:_last]` are the messages
still owned.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from state.columns import (
    BYTES,
    COUNTERS,
    DATA,
    FULL,
    NEEDED,
    NULLS,
    ROWS,
    ColumnBuffers,
    RecordColumns,
    add_cell,
    byte_at,
    count_cell,
    has_room,
)
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig, consumer_config
from state.kafka.error_mapping import read_error
from state.kafka.librdkafka import CONSUMER, ERROR_CALLBACK, NO_CONSUMER_CLOSE, Message, library
from state.kafka.range_reader import FetchedHead, RangeReader
from state.numba_kernels import allocating_kernel, as_pointer, call, carray, copy_bytes, kernel

# Words of rd_kafka_message_t (9 x 8 bytes).
_ERROR, _PAYLOAD, _KEY, _OFFSET, _WORDS = 0, 3, 5, 7, 9
# The zigzag varint of -1: the length of a null key or value in a record.
_NULL_LENGTH = 1
# The functions whose addresses a kernel gets, in this order.
FUNCTIONS = ("message_timestamp", "message_headers", "header_get_all", "message_destroy")
_TIMESTAMP, _HEADERS, _HEADER, _DESTROY = range(4)
KEYS, VALUES, HEADERS = 0, 1, 2


@allocating_kernel
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


@allocating_kernel
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


@allocating_kernel
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


@allocating_kernel
def measure_headers(message: int, functions: Any, scratch: Any) -> int:
    """Bytes of a message's encoded header list (format: `state.columns`); leaves its address in scratch[0]."""
    if np.int32(call(functions[_HEADERS], (message, np.int64(scratch.ctypes.data)))) != 0:
        return 0
    size = 0
    index = 0
    while get_header(functions, scratch, index):
        size += 8 + name_length(scratch[1]) + (scratch[3] if scratch[2] != 0 else 0)
        index += 1
    return size


@allocating_kernel
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


@allocating_kernel
def name_length(name: int) -> int:
    size = 0
    while byte_at(name + size) != 0:
        size += 1
    return size


@allocating_kernel
def write_field(target: int, source: int, size: int) -> int:
    """Write a length and its bytes (none for -1) at `target`; returns the address after them."""
    length = carray(as_pointer(target), 4, np.uint8)
    for i in range(4):
        length[i] = (size >> (8 * i)) & 0xFF
    if size <= 0:
        return target + 4
    copy_bytes(target + 4, source, size)
    return target + 4 + size


_QUEUE_SLOTS = 25_000
# Initial bytes for keys, values and headers of one run. Headers are rare and get no room until the first one appears.
_FIRST_CAPACITIES = (1 << 20, 4 << 20, 0)
# The assumed bytes of a record's key, value and headers. With larger buffers, the system would have to allocate their memory again
# for each run, even for runs of few records.
_FIRST_SIZES = (64, 512, 64)
# A run also has a limit in bytes, because its bytes are copied several times on the way to the task. A larger record gets the space
# it needs.
_LARGEST_CAPACITY = 16 << 20


class BulkReader(RangeReader[RecordColumns]):
    """A range reader on librdkafka's C API; the arguments are as for `open_range_reader`."""

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        partition: int,
        start: int,
        *,
        timeout_s: float,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
    ) -> None:
        super().__init__(topic, partition, start, timeout_s)
        self._library = library()
        self._functions = np.array([self._library.address(name) for name in FUNCTIONS], np.int64)
        self._messages = np.zeros(_QUEUE_SLOTS, np.int64)
        self._first = self._last = 0
        self._capacities = list(_FIRST_CAPACITIES)
        self._sizes = list(_FIRST_SIZES)
        self._pid = os.getpid()
        self._wakes: int | None = None
        self._properties = consumer_config(config, prefetch_bytes)
        self._error_callback = ERROR_CALLBACK(self._on_error)
        self._open()

    def _open(self) -> None:
        conf = self._library.configuration(self._properties)
        self._library.conf_set_error_cb(conf, self._error_callback)
        self._client = self._library.client(CONSUMER, conf)
        self._library.poll_set_consumer(self._client)
        self._queue = self._library.queue_get_consumer(self._client)
        self._assignment = self._library.topic_partition_list_new(1)
        entry = self._library.topic_partition_list_add(self._assignment, self.topic.encode(), self.partition)
        entry.contents.offset = self._position
        self._library.assign(self._client, self._assignment)
        if self._wakes is not None:
            self.wake(self._wakes)

    def wake(self, file: int) -> bool:
        self._wakes = file
        self._library.queue_io_event_enable(self._queue, file, b"r", 1)
        return True

    def _on_error(self, _client: int, code: int, reason: bytes, _opaque: int) -> None:
        self._on_client_error(self._library.failure(code, reason.decode(errors="replace")))

    def _fill(self, max_records: int, wait_ms: int) -> bool:
        # The call waits for as many as requested: so wait for one, then take what has arrived.
        slots, address = min(max_records, _QUEUE_SLOTS), self._messages.ctypes.data
        count = max(self._library.consume_batch_queue(self._queue, 0, address, slots), 0)
        if count == 0:
            count = max(self._library.consume_batch_queue(self._queue, wait_ms, address, 1), 0)
            if count == 1 and slots > 1:
                count += max(self._library.consume_batch_queue(self._queue, 0, address + 8, slots - 1), 0)
        self._first, self._last = 0, count
        return bool(count)

    def _take_records(self, end: int, max_records: int) -> RecordColumns | None:
        slots = min(self._last - self._first, max_records)
        if slots == 0:
            return None
        numbers = np.empty((2, slots), np.int64)
        room = [min(capacity, slots * size) for capacity, size in zip(self._capacities, self._sizes, strict=True)]
        columns = [ColumnBuffers(slots, capacity) for capacity in room]
        table = np.array([column.addresses for column in columns], np.int64)
        result = gather(self._messages, self._first, self._last, end, self._functions, numbers, table)
        if result[FULL] >= 0:
            self._grow(int(result[FULL]), int(result[NEEDED]), room)
        records = int(result[ROWS])
        if records == 0:
            # The first record alone did not fit; after `_grow` it does.
            return self._take_records(end, max_records) if result[FULL] >= 0 else None
        self._first += records
        used, nulls = (
            result[BYTES : BYTES + 3],
            result[NULLS : NULLS + 3],
        )
        keys, values, headers = (column.array(records, *cut) for column, *cut in zip(columns, used, nulls, strict=True))
        offsets, timestamps = numbers[:, :records]
        return RecordColumns(
            self.topic,
            self.partition,
            offsets,
            timestamps,
            keys,
            values,
            headers if headers.null_count < records else None,
        )

    def _grow(self, which: int, needed: int, room: Sequence[int]) -> None:
        """Enlarge a column after it was full, but never beyond Arrow's 32-bit offsets."""
        if room[which] < self._capacities[which]:
            self._sizes[which] = max(2 * self._sizes[which], needed)
            return
        doubled = min(self._capacities[which] * 2, _LARGEST_CAPACITY)
        self._capacities[which] = max(doubled, needed, _FIRST_CAPACITIES[KEYS])
        self._sizes[which] = max(self._sizes[which], needed)

    def _head(self) -> FetchedHead | None:
        if self._first == self._last:
            return None
        message = Message.from_address(int(self._messages[self._first]))
        if message.err == 0:
            return FetchedHead(message.offset, None)
        text = None if not message.payload else ctypes.string_at(message.payload, message.len).decode(errors="replace")
        return FetchedHead(message.offset, self._library.failure(message.err, text))

    def _drop_head(self) -> None:
        destroy(self._messages, self._first, self._first + 1, self._functions)
        self._first += 1

    def _client_position(self) -> int:
        self._library.position(self._client, self._assignment)
        return int(self._assignment.contents.elems[0].offset)

    def _fetched_end(self) -> int:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self._library.get_watermark_offsets(
            self._client, self.topic.encode(), self.partition, ctypes.byref(low), ctypes.byref(high)
        )
        return high.value if code == 0 else -1

    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self._library.query_watermark_offsets(
            self._client,
            self.topic.encode(),
            self.partition,
            ctypes.byref(low),
            ctypes.byref(high),
            int(timeout_s * 1000),
        )
        if code != 0:
            raise read_error(self.topic, self.partition, self._library.failure(code))
        return low.value, high.value

    def _close(self) -> None:
        if self._pid != os.getpid():
            return
        destroy(self._messages, self._first, self._last, self._functions)
        self._first = self._last
        self._library.topic_partition_list_destroy(self._assignment)
        if self._wakes is not None:
            # The number may soon be another file's.
            self._library.queue_io_event_enable(self._queue, -1, None, 0)
        self._library.queue_destroy(self._queue)
        self._library.destroy_flags(self._client, NO_CONSUMER_CLOSE)
