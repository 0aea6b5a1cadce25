"""How fast the machine was during a run: the CPU time of a small fixed piece of work, over and over.

A virtual machine whose host serves others takes more CPU time for the same work, for seconds or minutes, and its kernel may not
say so. The same work beside each run tells a slow system from a slow machine.
"""

from __future__ import annotations

import threading
import time

_EVERY_S = 0.5
_WORK = 20_000


class MachineProbe:
    """Measures within the `with` block, from a thread of its own; takes less than a thousandth of a core."""

    def __init__(self) -> None:
        self._took: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine-probe", daemon=True)

    @property
    def mean_us(self) -> float:
        """Mean CPU time of the piece of work, µs; not the median, because stalls count in the run, too."""
        return round(sum(self._took) / len(self._took) * 1e6, 1)

    def __enter__(self) -> MachineProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            before = time.thread_time()
            sum(range(_WORK))
            self._took.append(time.thread_time() - before)
            if self._ended.wait(_EVERY_S):
                return
