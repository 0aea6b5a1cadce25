"""The side stream of records dropped by an operator, each with the reason. Kafka Streams only counts them."""

from __future__ import annotations

from streams.model.record import Change, Record

REASON_HEADER = "__streams.dropped.reason"
NODE_HEADER = "__streams.dropped.node"


def dropped_record(record: Record, reason: str, node: str) -> Record:
    """The original record (for a table's update, with the new value), with two more headers.

    Args:
        record: The dropped record.
        reason: The reason: `late`, `null_key`, `null_value`, `duplicate`, `not_latest`, ...
        node: The node that dropped it.
    """
    value = record.value.new if isinstance(record.value, Change) else record.value
    headers = (*record.headers, (REASON_HEADER, reason.encode()), (NODE_HEADER, node.encode()))
    return Record(record.key, value, record.timestamp, headers)
