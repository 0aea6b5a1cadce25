"""Timestamp 0, which librdkafka's producer would replace by "now", written as it is.

The epoch is a time like any other (simulated clocks, dates without a time, tests), and the broker's clock in its place would
make results differ from run to run. Such a record is therefore produced with a mark, a number that is not a timestamp, and an
interceptor (`on_send` of librdkafka's public interface, called on each new message before it is queued) replaces it by 0. A
message's timestamp has a public getter and no setter, so the interceptor searches the message for the word: the getter confirms
that the mark is present, hence the search ends. Invariant: only the mark's own word is written, and the getter must then say 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from state.errors import KafkaClientError
from state.kafka.native.interceptor import Interceptor, compiled
from state.kafka.native.librdkafka import Library
from state.numba_kernels import as_pointer, call, carray

MARK = -0x5A0F_C3E1_9B77_D264
"""Represents 0 until `on_send`. Negative, so never a real timestamp, and unlike any pointer, size or flag of a message."""

_NAME = b"streams time zero"
# rd_kafka_message_t, and fewer words of the private part after it than it has had since librdkafka 1.0.
_PUBLIC, _WORDS = 9, 18
_GETTER, _MISSED = 0, 1


def put_zero(_client: int, message: int, about: int) -> int:
    """`on_send`: writes 0 where the message has the mark."""
    state = carray(as_pointer(about), 2, np.int64)
    if call(state[_GETTER], (message, np.int64(0))) == MARK:
        words = carray(as_pointer(message), _WORDS, np.int64)
        for i in range(_PUBLIC, _WORDS):
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

    def __init__(self, library: Library, conf: int) -> None:
        self._about = np.array([library.address("message_timestamp"), 0], np.int64)
        self._interceptor = Interceptor(library, conf, _NAME, "on_send", on_send, self._about)

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
