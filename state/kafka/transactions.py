"""Waits until the records of decided transactions can be read.

A commit returns once the coordinator has decided. The control records, which make the records visible to `read_committed`
readers and move the last stable offset past them, are written afterwards, mostly within milliseconds. A reader that needs
everything that another process has committed waits for them first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from state.errors import HangingTransactionError
from state.kafka.topics import TopicPartition

DECIDE_S = 30.0
"""Seconds that brokers get beyond a transaction's timeout, to notice it and to write the control records."""
_POLL_S = 0.02


class LogEnds(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module needs."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, int]: ...


def wait_until_decided(
    admin: LogEnds, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """Wait until each transaction that has written to the partitions so far is committed or aborted, for readers too.

    Raises:
        HangingTransactionError: A transaction is still open after that time.
    """
    deadline = time.monotonic() + timeout_s
    ends = admin.end_offsets(partitions, committed=False)
    while True:
        stable = admin.end_offsets(ends)
        open_ones = [f"{topic}-{number}" for (topic, number), end in ends.items() if stable[topic, number] < end]
        if not open_ones:
            return ends
        if time.monotonic() > deadline:
            raise HangingTransactionError(open_ones, timeout_s)
        time.sleep(_POLL_S)
