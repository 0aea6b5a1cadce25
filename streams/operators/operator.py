"""`Operator`: the base class of the engine's own operators."""

from __future__ import annotations

from typing import Any

from streams.operators.operator_context import OperatorContext
from streams.operators.processor import BaseProcessor


class Operator(BaseProcessor[Any, Any, OperatorContext]):
    """One of the engine's own operators, with the life cycle of a `Processor` and the wider `OperatorContext`."""

    @property
    def changes_in_place(self) -> bool:
        """Whether functions of the user get values that a step's cache shares: one that fails may have half changed it."""
        return False
