"""Built-in aggregates read fields of values and give objects of results: the two ends, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.model.aggregates import Aggregate


def pick(value: Any, field: str | None) -> Any:
    """The field of a value, None if it is missing; the dotted path goes through nested objects, and arrays by index."""
    if field is None:
        return None
    for name in field.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


def results(aggregates: Sequence[Aggregate], accumulators: list[Any] | None) -> dict[str, Any] | None:
    """The value that is emitted: one field for each aggregate, in their order. None for a deleted row."""
    if accumulators is None:
        return None
    pairs = zip(aggregates, accumulators, strict=True)
    return {aggregate.name: aggregate.result(accumulator) for aggregate, accumulator in pairs}
