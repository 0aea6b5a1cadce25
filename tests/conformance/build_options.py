"""What a case says about windows and ``suppress``, as the DSL says it."""

from __future__ import annotations

from typing import Any

from streams import BufferConfig, SessionWindows, SlidingWindows, Suppressed, TimeWindows
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


def windows_of(given: dict[str, Any]) -> TimeWindows | SlidingWindows | SessionWindows:
    """The windows of a specification."""
    kind, grace = given.pop("type"), given.pop("grace_ms")
    made: TimeWindows | SlidingWindows | SessionWindows
    if kind in ("tumbling", "hopping"):
        made = TimeWindows.of_size_and_grace(given.pop("size_ms"), grace)
        if kind == "hopping":
            made = made.advance_by(given.pop("advance_ms"))
    elif kind == "sliding":
        made = SlidingWindows.of_time_difference_and_grace(given.pop("difference_ms"), grace)
    elif kind == "session":
        made = SessionWindows.of_inactivity_gap_and_grace(given.pop("gap_ms"), grace)
    else:
        raise CaseError(f"unknown windows {kind!r}")
    if given:
        raise CaseError(f"{kind} windows have unknown parameters {sorted(given)}")
    return made
