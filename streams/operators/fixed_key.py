"""`process_values`: a user's processor that may not change the key (Kafka Streams: `FixedKeyProcessor`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.errors import TopologyError
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.record import Record


class FixedKeyProcessor(Processor):
    """Runs a processor and fails where it forwards a record under another key than that of the record in process.

    So its results lie where their keys belong, and nothing behind it needs a repartition. During a punctuation there is
    no record, and keys are the processor's own: it should forward only keys that it has seen.

    Args:
        supplier: `() -> Processor`.
    """

    def __init__(self, supplier: Callable[[], Processor]) -> None:
        self.inner = supplier()

    def init(self, ctx: ProcessorContext) -> None:
        """Hand the inner processor a context that watches the key."""
        super().init(ctx)
        self._watched = _WatchedContext(ctx)
        self.inner.init(self._watched)

    def process(self, record: Record) -> None:
        """Process one record."""
        self._watched.record = record
        try:
            self.inner.process(record)
        finally:
            self._watched.record = None

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time moves on."""
        return self.inner.advance(elapsed_ms, limit)

    def flush(self) -> None:
        """End of the step."""
        self.inner.flush()

    def close(self) -> None:
        """Let go."""
        self.inner.close()


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
