"""Wrapping every operator of a topology (Kafka Streams: `ProcessorWrapper`, KIP-1112)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from streams.operators.process.user_processor import UserProcessor
from streams.operators.processor import AnyProcessor, BaseProcessor, OuterProcessor, Processor, ProcessorContext
from streams.operators.retry import Retrying

ProcessorWrapper: TypeAlias = Callable[[str, Processor], Processor]
"""`(name of the node, its processor) -> the processor to run`; usually a `WrappedProcessor`, or the original."""


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
        """The other attributes that the runtime needs of some of the engine's own processors."""
        if name in ("inner", "ctx"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def wrapped(wrapper: ProcessorWrapper, node: str, supplier: Callable[[], AnyProcessor]) -> AnyProcessor:
    """A new processor of the supplier, wrapped; a user's processor is wrapped inside the one that runs it.

    Raises:
        TypeError: The wrapper returns something else.
    """
    made = supplier()
    users = made.inner if isinstance(made, Retrying) else made
    if isinstance(users, UserProcessor):
        users.wrap(lambda inner: cast("Processor", _checked(wrapper, node, inner)))
        return made
    return _checked(wrapper, node, made)


def _checked(wrapper: ProcessorWrapper, node: str, inner: Any) -> AnyProcessor:
    made: object = wrapper(node, inner)
    if not isinstance(made, BaseProcessor):
        raise TypeError(f"the processor wrapper gave {made!r} for the node {node!r}: it must give a Processor")
    return made
