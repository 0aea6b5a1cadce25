"""Windowed aggregation that emits each window once, when the window closes (KIP-825, `KStreamWindowAggregate`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.aggregate.window_aggregate import WindowAggregate
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.cached_row import CachedRow


class WindowAggregateOnClose(WindowAggregate):
    """Aggregates per key and window, and emits a window's result when the window's end + grace <= stream time.

    Records are assigned to windows as in `WindowAggregate`. Results are ordered by window start (end, where lengths differ),
    then by the bytes of the key. Each has the largest timestamp of its records and the headers of the record that closed it.
    Kafka Streams loses results when time jumps, because its store expires a window before the window is emitted; here a
    window stays until it was emitted.

    With caching, a window is written to the store once, at the end of the step; results are the same.
    """

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._unwritten: dict[tuple[bytes, int], CachedRow] = {}

    def process(self, record: Record) -> None:
        """Add one record to each of its open windows, then emit the windows that the record closes."""
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

    def _flush_pending(self) -> None:
        """Write the cached windows."""
        for row in self._unwritten.values():
            self.store.write(row)
        self._unwritten.clear()
