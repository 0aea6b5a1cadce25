"""Wraps the operators of a topology (Kafka Streams: `ProcessorWrapper`, KIP-1112)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from streams.operators.processor import OuterProcessor, Processor, ProcessorContext

ProcessorWrapper: TypeAlias = Callable[[str, Processor], Processor]
"""`wrapper(node_name, processor)` returns the processor to run, usually a `WrappedProcessor`, or the processor itself."""


class WrappedProcessor(OuterProcessor[Any, Any, ProcessorContext[Any, Any]], Processor):
    """Delegates to another processor: a base class for wrappers that trace, measure or check.

    Example:
        >>> class Traced(WrappedProcessor):
        ...     def process(self, record):
        ...         with tracer.span(self.node):
        ...             super().process(record)
        >>> StreamsBuilder(processor_wrapper=Traced)

    Attributes:
        node: Name of the node.
    """

    def __init__(self, node: str, inner: Processor) -> None:
        super().__init__(inner)
        self.node = node

    def __getattr__(self, name: str) -> Any:
        """Other attributes that the runtime reads from some of the engine's own processors."""
        if name in ("inner", "ctx"):
            raise AttributeError(name)
        return getattr(self.inner, name)
