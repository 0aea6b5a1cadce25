"""A stream looks a table up (Kafka Streams: `KStreamKTableJoinProcessor`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.operators.processor import Processor, ProcessorContext
from streams.operators.record import Record
from streams.operators.stores import TimestampedKeyValueStore


class StreamTableJoin(Processor):
    """Joins each stream record with the table's value at that moment; only the stream emits.

    Null values are dropped. A null key is dropped by the inner join and joined with None by the left join (KIP-962).
    Timestamp and headers are the stream record's.

    Args:
        store: Name of the table's store.
        joiner: `(key, stream value, table value) -> value`.
        left: Left join: a missing table value is None; otherwise the record is dropped.
    """

    def __init__(self, store: str, joiner: Callable[[Any, Any, Any], Any], left: bool) -> None:
        self.store_name = store
        self.joiner = joiner
        self.left = left

    def init(self, ctx: ProcessorContext) -> None:
        """Open the table's store."""
        super().init(ctx)
        self.store: TimestampedKeyValueStore = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Look up and join."""
        if record.value is None or (record.key is None and not self.left):
            self.ctx.drop(record, "null_value" if record.value is None else "null_key")
            return
        found = self.store.get(record.key) if record.key is not None else None
        if found is None and not self.left:
            return
        value = found.value if found is not None else None
        self.ctx.forward(record.with_value(self.joiner(record.key, record.value, value)))
