"""Compiles (or loads from the disk cache) every kernel of this package before it is needed.

The first call of a kernel costs up to seconds on a new machine and tens of milliseconds later on. The worker daemon pays
this once, before it forks, instead of each worker in its first step. Invariant: no client is created here, because
librdkafka's threads do not survive a fork.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.kafka.acknowledged import on_acknowledgement
from state.kafka.native import consume_kernel, produce_kernel
from state.kafka.native.librdkafka import bulk_available, library
from state.kafka.partitioner import partition_for_keys
from state.kafka.time_zero import on_send


def warm_up() -> None:
    """Run every kernel once without records, with the argument types of real calls."""
    partition_for_keys(pa.array([b"key"], pa.binary()), 1)
    if not bulk_available():
        return
    messages, functions = np.zeros(1, np.int64), np.zeros(4, np.int64)
    consume_kernel.gather(messages, 0, 0, 0, functions, np.zeros((2, 0), np.int64), np.zeros((3, 4), np.int64))
    consume_kernel.destroy(messages, 0, 0, functions)
    table, arguments = np.zeros((3, 3), np.int64), produce_kernel.new_arguments(0, 0)
    produce_kernel.produce_rows(0, functions, 0, np.zeros(0, np.int32), np.zeros(0, np.int64), table, arguments)
    on_send()
    on_acknowledgement()
    library()
