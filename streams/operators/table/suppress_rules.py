"""When `suppress` emits the updates of a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SuppressRules:
    """When updates are emitted.

    Attributes:
        wait_ms: How far stream time must be past an update's place, ms: the grace (and a session's gap) until a window
            closes, or the time limit.
        by_window: Whether an update's place is its window's end, and deletions are never emitted. Otherwise, the place is the
            update's timestamp.
        inclusive_end: Whether the windows' ends are inclusive, so that a window closes one millisecond later (strict mode).
        max_records: Maximum number of buffered keys; None: no bound.
        max_bytes: Maximum number of buffered bytes, as `BufferedUpdate.bytes_in` counts; None: no bound.
        emit_early: What to do at a bound: emit the oldest update early, or fail.
    """

    wait_ms: int
    by_window: bool
    inclusive_end: bool
    max_records: int | None
    max_bytes: int | None
    emit_early: bool
