"""`BulkTransport`: produces through librdkafka's C API, whole Arrow columns per call.

The bulk path takes a third of the CPU of `Producer.produce`, and is the only one with timestamps and headers
(`produce_batch` takes neither). Records written and errors raised equal those of `OrdinaryTransport` (tests compare them).
Invariants: delivery reports come for failures only (`delivery.report.only.error`), and the first one is remembered; librdkafka
copies key and value (MSG_F_COPY), so the buffers may be released after a call; header objects belong to librdkafka once a row was
accepted and are freed here when it was not; nothing is called on the client after `close`.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from state.columns import BinaryCells, cell
from state.errors import ClientFailure, ProduceError
from state.kafka.error_mapping import QUEUE_FULL, record_error, transaction_error
from state.kafka.interceptors import AcknowledgedOffsets, TimeZero
from state.kafka.librdkafka import (
    DELIVERY_CALLBACK,
    NO_CONSUMER_CLOSE,
    PRODUCER,
    PURGE_ALL_NON_BLOCKING,
    Message,
    library,
)
from state.kafka.transport import LAST_WORD_S, SendColumns
from state.numba_kernels import allocating_kernel, as_pointer, call, carray

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


@allocating_kernel
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


@allocating_kernel
def new_headers(functions: Any, at: int, size: int) -> int:
    """A new `rd_kafka_headers_t` from one encoded header list (format: `state.columns`)."""
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


@allocating_kernel
def read_length(at: int) -> int:
    """The little endian int32 at an address."""
    data = carray(as_pointer(at), 4, np.uint8)
    word = np.uint32(data[0]) | np.uint32(data[1]) << 8 | np.uint32(data[2]) << 16 | np.uint32(data[3]) << 24
    length: int = np.int64(np.int32(word))
    return length


_WAIT_FOR_ROOM_MS = 20


class BulkTransport:
    """Producer on librdkafka's C API.

    Args:
        properties: Librdkafka properties (`producer_config`).
        transactional_id: The producer's transactional id, for error messages.
    """

    def __init__(self, properties: Mapping[str, str], transactional_id: str) -> None:
        self._id = transactional_id
        self._failure: ProduceError | None = None
        self._library = library()
        self._functions = np.array([self._library.address(name) for name in FUNCTIONS], np.int64)
        self._topics: dict[str, int] = {}
        self._pid = os.getpid()
        self._callback = DELIVERY_CALLBACK(self._on_delivery)
        conf = self._library.configuration(properties)
        self._library.conf_set_dr_msg_cb(conf, self._callback)
        self._zero = TimeZero(self._library, conf)
        self._acknowledged = AcknowledgedOffsets(self._library, conf)
        self._client = self._library.client(PRODUCER, conf)

    def _on_delivery(self, _client: int, message: ctypes._Pointer[Message], _opaque: int) -> None:
        report = message.contents
        if report.err == 0 or self._failure is not None:
            return
        self._failure = record_error(
            self._id,
            self._library.topic_name(report.rkt).decode(),
            report.partition,
            key=ctypes.string_at(report.key, report.key_len) if report.key else None,
            size=report.key_len + report.len,
            offset=report.offset if report.offset >= 0 else -1,
            failure=self._fatal() or self._library.failure(report.err),
        )

    def _fatal(self) -> ClientFailure | None:
        """The failure that ended this client for good, if any; all later errors are its consequences."""
        reason = ctypes.create_string_buffer(512)
        code = self._library.fatal_error(self._client, reason, len(reason))
        return self._library.failure(code, reason.value.decode(errors="replace"), fatal=True) if code else None

    def raise_delivery_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def delivered(self, topic: str, partition: int) -> int | None:
        return self._acknowledged.of(topic, partition)

    def _check(self, error: int | None, what: str) -> None:
        """Raise the named error of a transaction call that returned an `rd_kafka_error_t`."""
        if error:
            raise transaction_error(self._id, what, self._library.take_error(error))

    def init_transactions(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        # Without a connection, librdkafka looks for the coordinator only every 500 ms, and may even wait 1 s for its first
        # connection. A request for metadata speeds up both. If no metadata arrive, the call itself reports why.
        metadata = ctypes.c_void_p()
        if self._library.metadata(self._client, 0, None, ctypes.byref(metadata), int(timeout_s * 1000)) == 0:
            self._library.metadata_destroy(metadata)
        left_s = max(deadline - time.monotonic(), LAST_WORD_S)
        self._check(self._library.init_transactions(self._client, int(left_s * 1000)), "init_transactions")

    def begin(self) -> None:
        self._check(self._library.begin_transaction(self._client), "begin")

    def send(self, columns: SendColumns, timeout_s: float) -> None:
        slot = 0 if columns.partition is None else self._acknowledged.slot(columns.topic, columns.partition)
        arguments = new_arguments(self._topic(columns.topic), slot)
        cells = [BinaryCells(column) for column in (columns.keys, columns.values, columns.headers)]
        table = np.array([cell.addresses for cell in cells], np.int64)
        timestamps = self._zero.marked(columns.timestamps)
        deadline = time.monotonic() + timeout_s
        row = 0
        while row < len(columns):
            reached, error = produce_rows(
                self._client, self._functions, row, columns.partitions, timestamps, table, arguments
            )
            if reached > row:
                deadline = time.monotonic() + timeout_s
            row = int(reached)
            if error:
                self._refused(columns, row, self._library.take_error(int(error)), time.monotonic() > deadline)
        self._zero.check()
        self._library.poll(self._client, 0)
        self.raise_delivery_failure()

    def _refused(self, columns: SendColumns, row: int, failure: ClientFailure, out_of_time: bool) -> None:
        """Handle a row that was not queued: wait if the queue was full, else raise."""
        if failure.code == QUEUE_FULL and not out_of_time:
            self._library.poll(self._client, _WAIT_FOR_ROOM_MS)
            self.raise_delivery_failure()
            return
        key = None if columns.keys is None else columns.keys[row].as_py()
        size = len(key or b"") + len(columns.values[row].as_py() or b"")
        partition = int(columns.partitions[row])
        raise record_error(self._id, columns.topic, partition, key=key, size=size, offset=-1, failure=failure)

    def _topic(self, topic: str) -> int:
        """Handle of a topic, cached because creating one costs more than producing a record."""
        handle = self._topics.get(topic)
        if handle is None:
            handle = int(self._library.topic_new(self._client, topic.encode(), None))
            self._topics[topic] = handle
        return handle

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group_id: str, timeout_s: float) -> None:
        positions = self._library.topic_partition_list_new(len(offsets))
        # Without generation and member id: the group needs no members, and the transactional id does the fencing.
        group = self._library.consumer_group_metadata_new(group_id.encode())
        try:
            for (topic, partition), offset in offsets.items():
                entry = self._library.topic_partition_list_add(positions, topic.encode(), partition)
                entry.contents.offset = offset
            error = self._library.send_offsets_to_transaction(self._client, positions, group, int(timeout_s * 1000))
        finally:
            self._library.consumer_group_metadata_destroy(group)
            self._library.topic_partition_list_destroy(positions)
        self._check(error, "send_offsets")

    def flush(self, timeout_s: float) -> int:
        # Only failures are reported, so nothing wakes librdkafka's flush when the last record is acknowledged: it looks every
        # 10 ms. Short flushes look earlier, and longer ones follow where the brokers take longer.
        began = time.monotonic()
        while (left := int(self._library.outq_len(self._client))) and (passed := time.monotonic() - began) < timeout_s:
            look_ms = min(max(passed * 1000 / 8, 1), 10, (timeout_s - passed) * 1000)
            self._library.flush(self._client, math.ceil(look_ms))
        return left

    def commit(self, timeout_s: float) -> None:
        self._check(self._library.commit_transaction(self._client, int(timeout_s * 1000)), "commit")

    def close(self) -> None:
        if not self._client or self._pid != os.getpid():
            return
        self._library.purge(self._client, PURGE_ALL_NON_BLOCKING)
        for handle in self._topics.values():
            self._library.topic_destroy(handle)
        self._library.destroy_flags(self._client, NO_CONSUMER_CLOSE)
        self._client = 0
