"""`process_values`: a user's processor that may not change the key (Kafka Streams: `FixedKeyProcessor`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.errors import TopologyError
from streams.model.record import Record
from streams.operators.processor import OuterProcessor, Processor, ProcessorContext


class FixedKeyProcessor(OuterProcessor):
    """Runs a processor and fails where it forwards a record under another key than that of the record in process.

    So its results lie where their keys belong, and nothing behind it needs a repartition. During a punctuation there is
    no record, and keys are the processor's own: it should forward only keys that it has seen.

    Args:
        supplier: `() -> Processor`.
    """

    def __init__(self, supplier: Callable[[], Processor]) -> None:
        super().__init__(supplier())

    def init(self, ctx: ProcessorContext) -> None:
        """Hand the inner processor a context that watches the key."""
        self._watched = _WatchedContext(ctx)
        super().init(self._watched)

    def process(self, record: Record) -> None:
        """Process one record."""
        self._watched.record = record
        try:
            super().process(record)
        finally:
            self._watched.record = None


class _WatchedContext:
    """A context that compares keys; all else is the real one's."""

    def __init__(self, ctx: ProcessorContext) -> None:
        self._ctx = ctx
        self.record: Record | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward, if the key is the same."""
        if self.record is not None and record.key != self.record.key:
            raise TopologyError(
                f"The processor of '{self._ctx.node}' forwards the key {record.key!r} for a record with the key "
                f"{self.record.key!r}: process_values cannot change keys. Use process(...), which may."
            )
        self._ctx.forward(record, child)
