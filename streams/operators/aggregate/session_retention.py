"""How long sessions can matter, which decides when a session store may expire them.

A record at t is on time if the resulting session ends at or after the close time c = stream time - grace - gap. If it touches
no open session, t >= c, and it can meet sessions that end at or after c - gap. If it touches an open session with start s, it
may be as old as s - gap, and meet sessions that end at or after s - 2 gap. What counts is therefore the oldest start of an
open session, tracked per segment of ends; a segment is dropped as a whole when it is closed. (Kafka Streams retains gap +
grace, by the store's own clock, and so loses parts of sessions.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streams.model.windows import SessionWindows

_OLDEST = "oldest_start"
_LEAST_SEGMENT_MS = 60_000


class SessionRetention:
    """The oldest start of the open sessions, in an operator's state.

    Args:
        state: The operator's state, which survives restarts.
        windows: Gap and grace.
    """

    def __init__(self, state: dict[str, Any], windows: SessionWindows) -> None:
        # Segment of ends -> the oldest start of a session that ends there; keys are text, as required by JSON.
        self._oldest: dict[str, int] = state.setdefault(_OLDEST, {})
        self._windows = windows
        self._nominal_ms = windows.wait_ms
        self._width = max(_LEAST_SEGMENT_MS, self._nominal_ms)

    def add(self, start: int, end: int) -> None:
        """Records that a session was written."""
        segment = str(end // self._width)
        if start < self._oldest.get(segment, start + 1):
            self._oldest[segment] = start

    def add_many(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        segments, of_sessions = np.unique(ends // self._width, return_inverse=True)
        oldest = np.full(len(segments), np.iinfo(np.int64).max)
        np.minimum.at(oldest, of_sessions, starts)
        for segment, start in zip(segments.tolist(), oldest.tolist(), strict=True):
            self.add(start, segment * self._width)

    def needed_time(self, stream_time: int) -> int:
        """The time to pass to the session store, whose retention is gap + grace: stream time, minus the extra time needed."""
        close_time = stream_time - self._nominal_ms
        for segment in [one for one in self._oldest if (int(one) + 1) * self._width <= close_time]:
            del self._oldest[segment]
        gap = self._windows.gap_ms
        needed = min(close_time - gap, min(self._oldest.values(), default=close_time) - 2 * gap)
        return needed + self._nominal_ms
