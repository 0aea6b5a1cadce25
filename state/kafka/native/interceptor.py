"""`Interceptor`: a compiled function that one client of librdkafka calls on each of its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cfunc, types

from state.kafka.native.librdkafka import ON_NEW_CALLBACK, Library


def compiled(function: Callable[[int, int, int], int]) -> Any:
    """An interceptor's function, compiled; to be cached for good, because librdkafka only has its address."""
    signature = types.int32(types.int64, types.int64, types.int64)
    return cfunc(signature, cache=True, error_model="numpy")(function)


class Interceptor:
    """Adds a function to a client when the client is created.

    Args:
        library: The client's library.
        conf: The client's `rd_kafka_conf_t`, before the client is created.
        name: The interceptor's name.
        event: What the function is called on: `on_send` or `on_acknowledgement`.
        function: Gives the `compiled` function.
        state: What the function reads and writes.

    Attributes:
        refusal: The code with which this librdkafka refuses the function; 0: none.
    """

    def __init__(
        self,
        library: Library,
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
        # Called once, while the client is created; referenced until then.
        self._on_new = ON_NEW_CALLBACK(self._add)
        self.refusal: int = library.conf_interceptor_add_on_new(conf, name, self._on_new, None)

    def _add(self, client: int, _conf: int, _opaque: int, _reason: int, _size: int) -> int:
        self.refusal = self._add_to(client, self._name, int(self._function().address), self._state.ctypes.data)
        return self.refusal
