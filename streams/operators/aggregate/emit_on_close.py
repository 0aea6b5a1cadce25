"""Aggregation in windows of time that emits each window once, when it is closed (KIP-825, `KStreamWindowAggregate`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.aggregate.window_aggregate import WindowAggregate
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.cached_row import CachedRow


class WindowAggregateOnClose(WindowAggregate):
    """Aggregates per key and window, and emits a window's result when its end + grace <= stream time.

    Which records a window takes: as `WindowAggregate`. Results come by window start (end, where lengths differ), then by
    the bytes of the key, each with the largest timestamp of its records and the headers of the record that closed it.
    Kafka Streams loses results in a jump of time, since its store forgets a window before it is emitted; here a window
    stays until it was emitted.

    With caching a window is written to the store once, at the end of the step; results are the same.
    """

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and take up stream time."""
        super().init(ctx)
        self._unwritten: dict[tuple[bytes, int], CachedRow] = {}

    def process(self, record: Record) -> None:
        """Add one record to each of its windows that is still open, then emit what it closes."""
        super().process(record)
        if record.key is not None:
            self._emit_closed(record.timestamp, record.headers)

    def _add(self, key: bytes, start: int, end: int, record: Record) -> None:
        assert self._open is not None, "results come on close"
        row = self.store.entry(key, start)
        if row.value is None:
            self._open.add(key, start, end, record.timestamp)
        row.value, row.timestamp = self.functions.updated(row, record)
        if self.caching:
            self._unwritten[(key, start)] = row
        else:
            self.store.write(row)

    def _flush_held(self) -> None:
        """Write what is held back."""
        for row in self._unwritten.values():
            self.store.write(row)
        self._unwritten.clear()
