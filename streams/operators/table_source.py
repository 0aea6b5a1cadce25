"""A topic read as a table (Kafka Streams: `KTableSource`)."""

from __future__ import annotations

from typing import Any

from streams.operators.processor import Processor, ProcessorContext
from streams.operators.record import Change, Headers, Record
from streams.operators.stores import Entry, TimestampedKeyValueStore


class TableSource(Processor):
    """Keeps the last value of each key: the last to come wins, even if its timestamp is older. Null values delete.

    Args:
        store: Name of a timestamped key-value store; None if nobody reads the table, then updates are only passed on.
        caching: Pass on the last value of a key once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream.
    """

    def __init__(self, store: str | None, caching: bool = True, send_old: bool = False) -> None:
        self.store_name = store
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store."""
        super().init(ctx)
        self.store: TimestampedKeyValueStore | None = None if self.store_name is None else ctx.store(self.store_name)
        if self.caching and self.store is not None:
            self.store.use_cache()
        self._pending: dict[bytes, tuple[Any, Headers, Entry]] = {}

    def process(self, record: Record) -> None:
        """Set or delete; the store shows it at once, whatever is held back downstream."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
        elif self.store is None:
            self.ctx.forward(record.with_value(Change(record.value, None)))
        else:
            entry = self.store.entry(record.key)
            entry.value, entry.timestamp = record.value, record.timestamp
            if self.caching:
                self._pending[entry.key] = (record.key, record.headers, entry)
            else:
                self._emit(self.store, record.key, record.headers, entry)

    def flush(self) -> None:
        """Pass on each key's last value, in order of their first update."""
        pending, self._pending = self._pending, {}
        for key, headers, entry in pending.values():
            assert self.store is not None, "only a store holds updates back"
            self.ctx.attempt(
                lambda store=self.store, key=key, headers=headers, entry=entry: self._emit(store, key, headers, entry)  # type: ignore[misc]
            )

    def _emit(self, store: TimestampedKeyValueStore, key: Any, headers: Headers, entry: Entry) -> None:
        old = store.codec.read_value(entry.stored[8:]) if self.send_old and entry.stored is not None else None
        store.write(entry)
        self.ctx.forward(Record(key, Change(entry.value, old), entry.timestamp, headers))
