"""`BulkTransport`: produces through librdkafka's C API, whole Arrow columns per call.

The bulk path takes a third of the CPU of `Producer.produce`, and is the only one with timestamps and headers
(`produce_batch` takes neither). Records written and errors raised equal those of `OrdinaryTransport` (tests compare them).
Invariants: delivery reports come for failures only (`delivery.report.only.error`), and the first one is remembered; offsets
come another way (`acknowledged`); nothing is called on the client after `close`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping

import numpy as np

from state.errors import ClientFailure, ProduceError
from state.kafka.acknowledged import AcknowledgedOffsets
from state.kafka.columns import BinaryCells
from state.kafka.error_mapping import QUEUE_FULL, record_error, transaction_error
from state.kafka.native import produce_kernel
from state.kafka.native.librdkafka import (
    DELIVERY_CALLBACK,
    NO_CONSUMER_CLOSE,
    PRODUCER,
    PURGE_ALL_NON_BLOCKING,
    Message,
    library,
)
from state.kafka.time_zero import TimeZero
from state.kafka.transport import LAST_WORD_S, SendColumns

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
        self._functions = np.array([self._library.address(name) for name in produce_kernel.FUNCTIONS], np.int64)
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
        """The failure that ended this client for good, if any; every later error is only its consequence."""
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
        arguments = produce_kernel.new_arguments(self._topic(columns.topic), slot)
        cells = [BinaryCells(column) for column in (columns.keys, columns.values, columns.headers)]
        table = np.array([cell.addresses for cell in cells], np.int64)
        timestamps = self._zero.marked(columns.timestamps)
        deadline = time.monotonic() + timeout_s
        row = 0
        while row < len(columns):
            reached, error = produce_kernel.produce_rows(
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
        self._library.flush(self._client, int(timeout_s * 1000))
        return int(self._library.outq_len(self._client))

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
