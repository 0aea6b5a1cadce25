"""`BulkReader`: ranges read through librdkafka's C API, gathered into Arrow buffers by compiled kernels.

No Python object per record: about a quarter of the CPU of the ordinary client. Records read and errors raised equal those of
`OrdinaryReader` (tests compare them). Invariants: a message is freed exactly once, by the kernel that copied it,
by `_drop_head`, or by `close`; `_messages[_first:_last]` are the messages still owned.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np

from state.column_kernels import BYTES, FULL, NEEDED, NULLS, ROWS, ColumnBuffers
from state.kafka.columns import RecordColumns
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig, consumer_config
from state.kafka.error_mapping import read_error
from state.kafka.native import consume_kernel
from state.kafka.native.librdkafka import CONSUMER, ERROR_CALLBACK, NO_CONSUMER_CLOSE, Message, library
from state.kafka.range_reader import Head, RangeReader

_QUEUE_SLOTS = 25_000
# Initial bytes for keys, values and headers of one run. Headers are rare and get no room until the first one appears.
_FIRST_CAPACITIES = (1 << 20, 4 << 20, 0)
# A run is bounded by bytes, too: its memory is needed several times on the way to the task. A larger record gets what it needs.
_LARGEST_CAPACITY = 16 << 20


class BulkReader(RangeReader):
    """Range reader on librdkafka's C API; see `open_range_reader` for the arguments."""

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
        self._functions = np.array([self._library.address(name) for name in consume_kernel.FUNCTIONS], np.int64)
        self._messages = np.zeros(_QUEUE_SLOTS, np.int64)
        self._first = self._last = 0
        self._capacities = list(_FIRST_CAPACITIES)
        self._pid = os.getpid()
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

    def _take(self, end: int, max_records: int) -> RecordColumns | None:
        slots = min(self._last - self._first, max_records)
        if slots == 0:
            return None
        numbers = np.empty((2, slots), np.int64)
        columns = [ColumnBuffers(slots, capacity) for capacity in self._capacities]
        table = np.array([column.addresses for column in columns], np.int64)
        result = consume_kernel.gather(self._messages, self._first, self._last, end, self._functions, numbers, table)
        if result[FULL] >= 0:
            self._grow(int(result[FULL]), int(result[NEEDED]))
        records = int(result[ROWS])
        if records == 0:
            # The first record alone did not fit; after `_grow` it does.
            return self._take(end, max_records) if result[FULL] >= 0 else None
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

    def _grow(self, which: int, needed: int) -> None:
        """Enlarge a column after it was full, but never beyond Arrow's 32-bit offsets."""
        doubled = min(self._capacities[which] * 2, _LARGEST_CAPACITY)
        self._capacities[which] = max(doubled, needed, _FIRST_CAPACITIES[consume_kernel.KEYS])

    def _head(self) -> Head | None:
        if self._first == self._last:
            return None
        message = Message.from_address(int(self._messages[self._first]))
        if message.err == 0:
            return Head(message.offset, None)
        text = None if not message.payload else ctypes.string_at(message.payload, message.len).decode(errors="replace")
        return Head(message.offset, self._library.failure(message.err, text))

    def _drop_head(self) -> None:
        consume_kernel.destroy(self._messages, self._first, self._first + 1, self._functions)
        self._first += 1

    def _client_position(self) -> int:
        self._library.position(self._client, self._assignment)
        return int(self._assignment.contents.elems[0].offset)

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
        consume_kernel.destroy(self._messages, self._first, self._last, self._functions)
        self._first = self._last
        self._library.topic_partition_list_destroy(self._assignment)
        self._library.queue_destroy(self._queue)
        self._library.destroy_flags(self._client, NO_CONSUMER_CLOSE)
