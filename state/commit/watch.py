"""How long each part of a step takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class StopWatch:
    """Seconds spent in each named part; for reports only, never for decisions."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Adds the time since the last call to `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now
