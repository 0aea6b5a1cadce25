"""`UserProcessor`: runs a user's processor as a node, and reports mistakes that would otherwise go unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.errors import TopologyError
from streams.model.record import Record
from streams.operators.operator_context import OperatorContext
from streams.operators.process.attributes import Attributes
from streams.operators.process.in_process import InProcess
from streams.operators.process.signatures import check_processor
from streams.operators.process.user_context import UserContext, expire_stores
from streams.operators.processor import BaseProcessor, Processor


class UserProcessor(BaseProcessor[Any, Any, OperatorContext]):
    """A user's processor with its own view of the engine: a `UserContext`.

    Args:
        supplier: `() -> Processor`.
    """

    def __init__(self, supplier: Callable[[], Processor]) -> None:
        self.processor = check_processor(supplier())
        self._own: Processor = self.processor
        self._in_process = InProcess()

    def wrap(self, wrapper: Callable[[Processor], Processor]) -> None:
        """Wrap the user's processor in the user's wrapper."""
        self.processor = wrapper(self.processor)

    def context(self, ctx: OperatorContext, in_process: InProcess) -> UserContext:
        """The context that the processor gets."""
        return UserContext(ctx, in_process)

    def init(self, ctx: OperatorContext) -> None:
        """Pass the processor its context."""
        super().init(ctx)
        context = self._context = self.context(ctx, self._in_process)
        # Set here too, for a processor whose `init` does not call the overridden one.
        self.processor.ctx = context
        self.processor.init(context)
        self._process = self.processor.process
        self._attributes = Attributes(self._own, self._own.transient)

    def process(self, record: Record) -> None:
        in_process = self._in_process
        in_process.record = record
        try:
            given: object = self._process(record)  # type: ignore[func-returns-value]
        finally:
            in_process.record = None
        if given is not None:
            raise TopologyError(
                f"{type(self._own).__name__}.process returns {_shown(given)} in '{self.ctx.node}', which would be lost: results "
                f"are forwarded, as in self.ctx.forward(record.with_value(value)), and process returns nothing."
            )

    def advance(self, elapsed_ms: int, limit: int) -> int:
        return self.processor.advance(elapsed_ms, limit)

    def flush(self) -> None:
        """End the step, after which the processor's attributes are lost.

        Raises:
            TopologyError: The processor relies on its attributes.
        """
        self.processor.flush()
        expire_stores(self._context)
        self._attributes.check(self.ctx.node)

    def close(self) -> None:
        self.processor.close()


def _shown(given: object) -> str:
    kind = type(given).__name__
    if kind in ("generator", "coroutine", "async_generator"):
        return f"a {kind.replace('_', ' ')} (it has a yield or an async in it)"
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."
