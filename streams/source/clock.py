"""The wall clock of micro-batches, which fault drills can step.

`STREAMS_CLOCK_STEP=FILE` names a file with a number of milliseconds, which is added to the system's clock; the file may change at
any time. Without the variable, the clock is the system's. As crash points, this is for drills: clocks of machines do step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STEP = "STREAMS_CLOCK_STEP"


def now_ms() -> int:
    return int(time.time() * 1000) + _step_ms()


def _step_ms() -> int:
    file = os.environ.get(STEP)
    if not file:
        return 0
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):
        # Not there yet, or just being written.
        return 0
