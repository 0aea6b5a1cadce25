"""Opening range readers, and keeping them open between the steps of one process.

The next range of a partition mostly continues where the last one ended, with its records already prefetched; a newly opened
reader pays for connections and discards the prefetch. Invariants: librdkafka's threads do not survive a fork, so a pool's
readers belong to the process (pid) that opened them and are never touched in a child; a pool never has more than
`max_readers`, which together prefetch about `prefetch_bytes`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from itertools import starmap

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from state.columns import RecordColumns, cells_of
from state.errors import KafkaClientError
from state.headers import Header, encode_headers
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig
from state.kafka.librdkafka import bulk_available
from state.kafka.message_reader import ClientReader
from state.kafka.range_reader import RangeReader

DEFAULT_TIMEOUT_S = 60.0
POOL_PREFETCH_BYTES = 64 * 1024 * 1024
SMALLEST_PREFETCH_BYTES = 1024 * 1024


def open_range_reader(
    config: ClientConfig,
    topic: str,
    partition: int,
    start: int,
    bulk: bool = True,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
) -> RangeReader[RecordColumns]:
    """Open a reader of offset ranges of one topic-partition, without waiting."""
    if bulk and bulk_available():
        from state.kafka.native_reader import BulkReader

        return BulkReader(config, topic, partition, start, timeout_s=timeout_s, prefetch_bytes=prefetch_bytes)
    return OrdinaryReader(config, topic, partition, start, timeout_s=timeout_s, prefetch_bytes=prefetch_bytes)


class ReaderPool:
    """Open readers of one process, by client properties and topic-partition; not thread safe.

    Args:
        max_readers: How many stay open; the least recently used one is closed first.
        prefetch_bytes: Bound on the prefetch of all readers. The first ones may take much of it, later ones less and less.
    """

    def __init__(self, max_readers: int = 64, prefetch_bytes: int = POOL_PREFETCH_BYTES) -> None:
        self._max_readers = max_readers
        self.prefetch_bytes = prefetch_bytes
        self._prefetch: dict[tuple[object, ...], int] = {}
        self._pid = os.getpid()
        self._readers: OrderedDict[tuple[object, ...], RangeReader[RecordColumns]] = OrderedDict()
        self._inherited: list[RangeReader[RecordColumns]] = []

    def reader(
        self, config: ClientConfig, topic: str, partition: int, start: int, bulk: bool = True
    ) -> RangeReader[RecordColumns]:
        """A reader whose position is `start`: the open one if it is at that position, else a new one.

        The pool owns the reader: do not close it, and do not use it after asking for the same partition again.
        """
        self._leave_behind_after_fork()
        key = (tuple(sorted(config.items())), topic, partition, bulk)
        reader = self._readers.pop(key, None)
        if reader is not None and (reader.failed or reader.closed or reader.position != start):
            reader.close()
            reader = None
        if reader is None:
            while len(self._readers) >= self._max_readers:
                self._readers.popitem(last=False)[1].close()
            prefetch = self._share(key)
            reader = open_range_reader(config, topic, partition, start, bulk, prefetch_bytes=prefetch)
        self._readers[key] = reader
        return reader

    def _share(self, key: tuple[object, ...]) -> int:
        """How much a new reader may prefetch: an eighth of what the open readers leave."""
        self._prefetch = {open_one: share for open_one, share in self._prefetch.items() if open_one in self._readers}
        left = self.prefetch_bytes - sum(self._prefetch.values())
        self._prefetch[key] = max(SMALLEST_PREFETCH_BYTES, min(DEFAULT_PREFETCH_BYTES, left // 8))
        return self._prefetch[key]

    def close(self) -> None:
        """Close all readers of this process."""
        self._leave_behind_after_fork()
        while self._readers:
            self._readers.popitem()[1].close()

    def _leave_behind_after_fork(self) -> None:
        if self._pid != os.getpid():
            # The readers' threads exist only in the parent process. Closing or even freeing the readers here would hang.
            self._inherited += self._readers.values()
            self._readers.clear()
            self._pid = os.getpid()


_process_pool = ReaderPool()


def shared_reader(
    config: ClientConfig,
    topic: str,
    partition: int,
    start: int,
    bulk: bool = True,
    *,
    prefetch_bytes: int = POOL_PREFETCH_BYTES,
) -> RangeReader[RecordColumns]:
    """A reader from this process's pool, as from `ReaderPool.reader`. The pool's readers prefetch no more than the given bytes."""
    _process_pool.prefetch_bytes = prefetch_bytes
    return _process_pool.reader(config, topic, partition, start, bulk)


def close_shared_readers() -> None:
    """Close the readers of this process's pool."""
    _process_pool.close()


# --- Reading without librdkafka's C API.


class OrdinaryReader(ClientReader[RecordColumns]):
    """Reads records as columns on confluent-kafka's Python API; the arguments are as for `open_range_reader`."""

    def _of(self, run: list[Message]) -> RecordColumns:
        return RecordColumns(
            self.topic,
            self.partition,
            np.fromiter(map(Message.offset, run), np.int64, len(run)),
            np.fromiter(starmap(_milliseconds, map(Message.timestamp, run)), np.int64, len(run)),
            cells_of(list(map(Message.key, run))),
            cells_of(list(map(Message.value, run))),
            _header_column(run),
        )


def _milliseconds(kind: int, timestamp: int) -> int:
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp


def _header_column(run: list[Message]) -> pa.BinaryArray | None:
    headers = [_headers(message) for message in run]
    if not any(headers):
        return None
    return pa.array([encode_headers(of_record) if of_record else None for of_record in headers], pa.binary())


def _headers(message: Message) -> list[Header] | None:
    try:
        # By `map`, because only such a call reports a failure of the client over headers at once. And only for the first message.
        headers: list[list[Header] | None] = list(map(Message.headers, (message,)))
    except (SystemError, UnicodeDecodeError) as error:
        raise KafkaClientError(
            f"the record at {message.topic()}-{message.partition()} offset {message.offset()} has a header whose name is not "
            f"UTF-8, which this client cannot read: set bulk_io to true"
        ) from error
    return headers[0]
