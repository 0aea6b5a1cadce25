"""Wraps the operator of a node in the user's wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from streams.operators.process.user_processor import UserProcessor
from streams.operators.processor import AnyProcessor, BaseProcessor, Processor
from streams.operators.retry import Retrying
from streams.operators.wrapped import ProcessorWrapper


def wrapped(wrapper: ProcessorWrapper, node: str, supplier: Callable[[], AnyProcessor]) -> AnyProcessor:
    """Makes a new processor and wraps it. A user's processor is wrapped inside the operator that runs it.

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
