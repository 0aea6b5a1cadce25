"""Crash points of lake sinks, at which tests and drills kill the driver.

`STREAMS_LAKE_CRASH=point:n` ends the process the n-th time a point is reached. The points, in the order of a batch:

* `resumed`: the start knows where to continue, and nothing has begun.
* `offsets_logged`: Spark has logged the batch, and nothing is written.
* `table_committed`: the table has the batch, and nothing else knows.
* `purged`: the internal topic no longer has the batch, and Spark has not confirmed it.
* `function_returned`: a function of `foreach_batch` has returned, and Spark has not confirmed the batch.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

POINTS = ("resumed", "offsets_logged", "table_committed", "purged", "function_returned")
VARIABLE = "STREAMS_LAKE_CRASH"

Faults: TypeAlias = Callable[[str], None]
"""Called with the name of each point."""


def no_faults(point: str) -> None: ...


def faults_from_environment() -> Faults:
    """The faults that the environment asks for; normally none."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return no_faults
    point, _, times = wanted.partition(":")
    reached: Counter[str] = Counter()

    def reach(at: str) -> None:
        reached[at] += 1
        if at == point and reached[at] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    return reach
