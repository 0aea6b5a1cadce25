"""What a case says about ``suppress``, as the DSL says it."""

from __future__ import annotations

from typing import Any

from streams import BufferConfig, Suppressed
from tests.conformance.case import CaseError


def suppressed(node: dict[str, Any]) -> Suppressed:
    """Takes ``until``, ``time_limit_ms``, ``max_records`` and ``max_bytes`` out of the node."""
    until, records, size = node.pop("until"), node.pop("max_records", None), node.pop("max_bytes", None)
    buffer = BufferConfig(max_records=records, max_bytes=size)
    if until == "window_closes":
        return Suppressed.until_window_closes(buffer.shut_down_when_full())
    if until == "time_limit":
        return Suppressed.until_time_limit(node.pop("time_limit_ms"), buffer.emit_early_when_full())
    raise CaseError(f"unknown until {until!r}")
