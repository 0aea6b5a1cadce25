"""`transform_values` of a table: a user's stateful value transformer (Kafka Streams: `KTableTransformValues`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic

from streams.errors import TopologyError
from streams.model.record import Change, Record
from streams.model.typing import K, V, VOut
from streams.operators.operator_context import OperatorContext
from streams.operators.process.attributes import Attributes
from streams.operators.process.in_process import InProcess
from streams.operators.process.signatures import check_methods
from streams.operators.process.user_context import UserContext, expire_stores
from streams.operators.processor import ProcessorContext
from streams.operators.table.table_materializer import TableOperator


class ValueTransformer(ABC, Generic[K, V, VOut]):
    """Computes a table's new values from the old ones, with stores (Kafka Streams: `ValueTransformerWithKey`).

    A new object is created for every micro-batch, so its attributes remember nothing: use `self.ctx.store(name)` or
    `self.ctx.state`.
    As in a `Processor`, an attribute that changes after `init` is an error unless it is declared in `transient`.

    Attributes:
        ctx: The context.
        transient: Names of attributes that may change after `init` and be lost, or one name.
    """

    ctx: ProcessorContext
    transient: ClassVar[str | tuple[str, ...]] = ()

    def init(self, ctx: ProcessorContext) -> None:
        """Called once per step, before the first update; `ctx.schedule` may be used, `ctx.forward` may not."""
        self.ctx = ctx

    @abstractmethod
    def transform(self, key: K, value: V | None) -> VOut | None:
        """Returns the new value; None deletes the row. Called once for each update, including deletions (value None)."""

    def close(self) -> None:
        """Called at the end of the step, also when it failed."""


class TableTransformValues(TableOperator):
    """A table whose values a transformer computes.

    Kafka Streams calls the transformer again to look up a row, or for its old value, while the result is not stored; with state the
    answer differs. Here the result is stored in that case, and each update is transformed once.

    Args:
        supplier: `() -> ValueTransformer`.
        store: As in `TableMaterializer`.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`; only with a store.
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
        check_methods(type(self.transformer))
        self._in_process = InProcess()

    def init(self, ctx: OperatorContext) -> None:
        """Open the store, and let the transformer open its own."""
        super().init(ctx)
        context = self._context = _SilentContext(ctx, self._in_process)
        self.transformer.ctx = context
        self.transformer.init(context)
        self._attributes = Attributes(self.transformer, getattr(self.transformer, "transient", ()))

    def process(self, record: Record) -> None:
        change: Change = record.value
        self._in_process.record = record
        try:
            new = self.transformer.transform(record.key, change.new)
        finally:
            self._in_process.record = None
        self._table.update(record, new, None, change.is_latest)

    def flush(self) -> None:
        """Forward pending updates, and check for attributes that would be lost."""
        super().flush()
        expire_stores(self._context)
        self._attributes.check(self.ctx.node)

    def close(self) -> None:
        self.transformer.close()


class _SilentContext(UserContext):
    """A context that refuses to forward: the result of `transform` is the only one."""

    def forward(self, record: Record, child: str | None = None) -> None:
        raise TopologyError(
            f"The value transformer of '{self.node}' calls forward: it gives its result back from transform(key, value). "
            f"To forward records, use table.to_stream().process(...)."
        )
