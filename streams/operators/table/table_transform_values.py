"""`transform_values` of a table: a value transformer of the user's, with state (Kafka Streams: `KTableTransformValues`)."""

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
    """Makes a table's new values of its old ones, with stores (Kafka Streams: `ValueTransformerWithKey`).

    A new object is made for every micro-batch, so its attributes remember nothing: use `self.ctx.store(name)` or `self.ctx.state`.
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
        """The new value; None deletes the row. Called once for each update, deletions (a value of None) too."""

    def close(self) -> None:
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
        check_methods(type(self.transformer))
        self._in_process = InProcess()

    def init(self, ctx: OperatorContext) -> None:
        """Open the store, and let the transformer open its own ones."""
        super().init(ctx)
        context = self._context = _SilentContext(ctx, self._in_process)
        self.transformer.ctx = context
        self.transformer.init(context)
        self._attributes = Attributes(self.transformer, getattr(self.transformer, "transient", ()))

    def process(self, record: Record) -> None:
        """Transform one update."""
        change: Change = record.value
        self._in_process.record = record
        try:
            new = self.transformer.transform(record.key, change.new)
        finally:
            self._in_process.record = None
        self._table.update(record, new, None, change.is_latest)

    def flush(self) -> None:
        """Pass on what was held back, and look for attributes that would be lost."""
        super().flush()
        expire_stores(self._context)
        self._attributes.check(self.ctx.node)

    def close(self) -> None:
        """Let go."""
        self.transformer.close()


class _SilentContext(UserContext):
    """A context that forwards nothing: the value that `transform` gives is the only result."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Refused."""
        raise TopologyError(
            f"The value transformer of '{self.node}' calls forward: it gives its result back from transform(key, value). "
            f"To forward records, use table.to_stream().process(...)."
        )
