"""Offsets of acknowledged records, for the few partitions whose offsets are requested.

Delivery reports come for every record or for none, and each costs a trip through a queue. Instead, the records of a requested
partition carry its slot number as their opaque value, and an interceptor (`on_acknowledgement` of librdkafka's public
interface, called on each record that the broker has answered for) stores the offset of the last one. For all other
records, the interceptor only compares a number with 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from state.errors import KafkaClientError
from state.kafka.native.interceptor import Interceptor, compiled
from state.kafka.native.librdkafka import Library
from state.numba_kernels import as_pointer, carray

_NAME = b"streams acknowledged"
# rd_kafka_message_t as words of 8 bytes: the error is the low half of the first one.
_WORDS, _ERROR, _OFFSET, _OPAQUE = 9, 0, 7, 8
_NONE = -1
_FIRST_SLOTS = 1024


def keep_offset(_client: int, message: int, offsets: int) -> int:
    """`on_acknowledgement`: writes the offset of a delivered record to the slot that its opaque value names."""
    words = carray(as_pointer(message), _WORDS, np.int64)
    slot = words[_OPAQUE]
    if slot > 0 and slot < _FIRST_SLOTS and np.int32(words[_ERROR]) == 0:
        carray(as_pointer(offsets), _FIRST_SLOTS, np.int64)[slot] = words[_OFFSET]
    return 0


@lru_cache(maxsize=1)
def on_acknowledgement() -> Any:
    """The compiled `keep_offset`, cached for good because librdkafka only has its address."""
    return compiled(keep_offset)


class AcknowledgedOffsets:
    """The last acknowledged offset of each partition that has a slot, for one client.

    Args:
        library: The client's library.
        conf: The client's `rd_kafka_conf_t`, before the client is created.
    """

    def __init__(self, library: Library, conf: int) -> None:
        self._offsets = np.full(_FIRST_SLOTS, _NONE, np.int64)
        self._slots: dict[tuple[str, int], int] = {}
        self._interceptor = Interceptor(library, conf, _NAME, "on_acknowledgement", on_acknowledgement, self._offsets)

    def slot(self, topic: str, partition: int) -> int:
        """The opaque value for the records of a partition.

        Raises:
            KafkaClientError: All slots are taken, or this librdkafka has no interceptors.
        """
        if self._interceptor.refusal or len(self._slots) == _FIRST_SLOTS - 1:
            raise KafkaClientError(
                "this version of librdkafka cannot tell the offsets of records; set STREAMS_KAFKA_BULK=0"
            )
        return self._slots.setdefault((topic, partition), len(self._slots) + 1)

    def of(self, topic: str, partition: int) -> int | None:
        """Offset of the last record that the broker has acknowledged, None = none yet, or not reported."""
        offset = int(self._offsets[self._slots.get((topic, partition), 0)])
        return offset if offset >= 0 else None
