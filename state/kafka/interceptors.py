"""Compiled functions that librdkafka calls on each message: offsets of acknowledged records, and timestamp 0. Imports numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from state.errors import KafkaClientError
from state.kafka.librdkafka import ON_NEW_CALLBACK, RdKafkaLibrary
from state.numba_functions import cfunc, types
from state.numba_kernels import as_pointer, call, carray


def compiled(function: Callable[[int, int, int], int]) -> Any:
    """Compiles an interceptor's function. It must be cached for good, because librdkafka only has its address."""
    signature = types.int32(types.int64, types.int64, types.int64)
    return cfunc(signature, cache=True, error_model="numpy")(function)


class Interceptor:
    """Adds a function to a client when the client is created.

    Args:
        library: The client's library.
        conf: The client's `rd_kafka_conf_t`, before the client is created.
        name: The interceptor's name.
        event: The event at which the function is called: `on_send` or `on_acknowledgement`.
        function: Returns the `compiled` function.
        state: The data that the function reads and writes.

    Attributes:
        refusal: The code with which this librdkafka refuses the function; 0: none.
    """

    def __init__(
        self,
        library: RdKafkaLibrary,
        conf: int,
        name: bytes,
        event: str,
        function: Callable[[], Any],
        state: npt.NDArray[np.int64],
    ) -> None:
        self._add_to = getattr(library, f"interceptor_add_{event}")
        self._name = name
        self._function = function
        self._state = state
        # librdkafka calls this once, while it creates the client. The attribute keeps the callback alive until then.
        self._on_new = ON_NEW_CALLBACK(self._add)
        self.refusal: int = library.conf_interceptor_add_on_new(conf, name, self._on_new, None)

    def _add(self, client: int, _conf: int, _opaque: int, _reason: int, _size: int) -> int:
        self.refusal = self._add_to(client, self._name, int(self._function().address), self._state.ctypes.data)
        return self.refusal


# --- Offsets of acknowledged records, for the few partitions whose offsets are requested.
#
# Delivery reports come for every record or for none, and each costs a trip through a queue. Instead, the records of a requested
# partition carry its slot number as their opaque value, and an interceptor (`on_acknowledgement` of librdkafka's public
# interface, called on each record that the broker has answered for) stores the offset of the last one. For all other
# records, the interceptor only compares a number with 0.

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

    def __init__(self, library: RdKafkaLibrary, conf: int) -> None:
        self._offsets = np.full(_FIRST_SLOTS, _NONE, np.int64)
        self._slots: dict[tuple[str, int], int] = {}
        self._interceptor = Interceptor(
            library, conf, b"streams acknowledged", "on_acknowledgement", on_acknowledgement, self._offsets
        )

    def slot(self, topic: str, partition: int) -> int:
        """The opaque value for the records of a partition.

        Raises:
            KafkaClientError: All slots are taken, or this librdkafka has no interceptors.
        """
        if self._interceptor.refusal or len(self._slots) == _FIRST_SLOTS - 1:
            raise KafkaClientError(
                "this version of librdkafka does not report the offsets of records; set STREAMS_KAFKA_BULK=0"
            )
        return self._slots.setdefault((topic, partition), len(self._slots) + 1)

    def of(self, topic: str, partition: int) -> int | None:
        """Offset of the last record that the broker has acknowledged, None = none yet, or not reported."""
        offset = int(self._offsets[self._slots.get((topic, partition), 0)])
        return offset if offset >= 0 else None


# --- Timestamp 0, which librdkafka's producer would replace by "now", written as it is.
#
# The epoch is a time like any other (simulated clocks, dates without a time, tests), and the broker's clock in its place would
# make results differ from run to run. Such a record is therefore produced with a mark, a number that is not a timestamp, and an
# interceptor (`on_send` of librdkafka's public interface, called on each new message before it is queued) replaces it by 0. A
# message's timestamp has a public getter and no setter, so the interceptor searches the message for the word: the getter confirms
# that the mark is present, hence the search ends. Invariant: only the mark's own word is written, and the getter must then say 0.

MARK = -0x5A0F_C3E1_9B77_D264
"""Represents 0 until `on_send`. Negative, so never a real timestamp, and unlike any pointer, size or flag of a message."""

# rd_kafka_message_t, and fewer words of the private part after it than it has had since librdkafka 1.0.
_SEARCHED = 18
_GETTER, _MISSED = 0, 1


def put_zero(_client: int, message: int, about: int) -> int:
    """`on_send`: writes 0 where the message has the mark."""
    state = carray(as_pointer(about), 2, np.int64)
    if call(state[_GETTER], (message, np.int64(0))) == MARK:
        words = carray(as_pointer(message), _SEARCHED, np.int64)
        for i in range(_WORDS, _SEARCHED):
            if words[i] == MARK:
                words[i] = 0
                break
        if call(state[_GETTER], (message, np.int64(0))) != 0:
            state[_MISSED] += 1
    return 0


@lru_cache(maxsize=1)
def on_send() -> Any:
    """The compiled `put_zero`, cached for good because librdkafka only has its address."""
    return compiled(put_zero)


class TimeZero:
    """Makes one client write the mark as time 0.

    Args:
        library: The client's library.
        conf: The client's `rd_kafka_conf_t`, before the client is created.
    """

    def __init__(self, library: RdKafkaLibrary, conf: int) -> None:
        self._about = np.array([library.address("message_timestamp"), 0], np.int64)
        self._interceptor = Interceptor(library, conf, b"streams time zero", "on_send", on_send, self._about)

    def marked(self, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[n], ms -> the same with the mark for 0."""
        zeros = timestamps == 0
        return np.where(zeros, MARK, timestamps) if zeros.any() else timestamps

    def check(self) -> None:
        """Checks that all marks were replaced; to be called after sending, before the commit.

        Raises:
            KafkaClientError: A mark was sent as a timestamp, because this librdkafka stores timestamps elsewhere.
        """
        if self._interceptor.refusal or self._about[_MISSED]:
            raise KafkaClientError(
                "this version of librdkafka cannot write the timestamp 0; install the confluent-kafka of the lock file, or "
                "set STREAMS_KAFKA_BULK=0, which writes 1 ms instead"
            )
