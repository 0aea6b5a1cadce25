"""Waits until what transactions have written can be read.

Why: a commit returns once the coordinator has decided. The control records, which show the records to `read_committed`
readers and move the last stable offset past them, are written after that; mostly within milliseconds. Who is to read all that
another one has committed waits for them first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from state.errors import HangingTransactionError
from state.kafka.topics import TopicPartition

DECIDE_S = 30.0
"""What brokers get beyond a transaction's timeout, to notice it and to write the control records, seconds."""
_POLL_S = 0.02


class LogEnds(Protocol):
    """What is needed of `state.kafka.admin.KafkaAdmin`."""

    def end_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, int]: ...


def wait_until_decided(
    admin: LogEnds, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """Wait until each transaction that has written to the partitions by now is committed or aborted, for readers too.

    Args:
        admin: Asks the broker.
        partitions: Where to look.
        timeout_s: How long to wait; a transaction whose producer died is aborted once its own timeout is over.

    Returns:
        Where the logs ended when this was called: All below can be read, or will never be seen.

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
