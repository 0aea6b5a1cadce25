"""`Operator`: the base class of the engine's own operators."""

from __future__ import annotations

from typing import Any

from streams.operators.operator_context import OperatorContext
from streams.operators.processor import BaseProcessor


class Operator(BaseProcessor[Any, Any, OperatorContext]):
    """One of the engine's own operators, with the life cycle of a `Processor` and the wider `OperatorContext`."""
