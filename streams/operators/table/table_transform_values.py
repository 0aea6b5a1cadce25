"""`transform_values` of a table: a value transformer of the user's, with state (Kafka Streams: `KTableTransformValues`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from streams.errors import TopologyError
from streams.model.record import Change, Record
from streams.operators.processor import ProcessorContext
from streams.operators.table.table_materializer import TableOperator


class ValueTransformer(ABC):
    """Makes a table's new values of its old ones, with stores (Kafka Streams: `ValueTransformerWithKey`).

    A new object is made for every step, so attributes keep nothing: use `ctx.store(name)` or `ctx.state`.
    """

    ctx: ProcessorContext

    def init(self, ctx: ProcessorContext) -> None:
        """Called once per step, before the first update; `ctx.schedule` may be used, `ctx.forward` may not."""
        self.ctx = ctx

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """The new value; None deletes the row. Called once for each update, deletions (a value of None) too."""

    def close(self) -> None:  # noqa: B027 - most transformers hold nothing
        """End of the step, also when it failed."""


class TableTransformValues(TableOperator):
    """A table whose values a transformer makes.

    Kafka Streams calls the transformer again to look a row up, or to know its old value, while the result is not kept; with
    state that gives another answer. Here the result is then kept, and each update is transformed once.

    Args:
        supplier: `() -> ValueTransformer`.
        store: As in `TableMaterializer`.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`; only of a table that is kept.
    """

    def __init__(
        self,
        supplier: Callable[[], ValueTransformer],
        store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.transformer = supplier()

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store, and let the transformer open its own ones."""
        super().init(ctx)
        self.transformer.init(_SilentContext(ctx))

    def process(self, record: Record) -> None:
        """Transform one update."""
        change: Change = record.value
        new = self.transformer.transform(record.key, change.new)
        self._table.update(record, new, None, change.is_latest)

    def close(self) -> None:
        """Let go."""
        self.transformer.close()


class _SilentContext:
    """A context that forwards nothing: the value that `transform` gives is the only result."""

    def __init__(self, ctx: ProcessorContext) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def forward(self, record: Record, child: str | None = None) -> None:
        """Refused."""
        raise TopologyError(
            f"The value transformer of '{self._ctx.node}' calls forward: it gives its result back from transform(key, value). "
            f"To forward records, use table.to_stream().process(...)."
        )
