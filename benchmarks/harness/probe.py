"""How fast the machine was during a run: the CPU time of a small fixed piece of work, over and over.

A virtual machine whose host serves others takes more CPU time for the same work, for seconds or minutes, and its kernel may not
say so. The same work beside each run tells a slow system from a slow machine.

It may also stand still for seconds, for instance while the host finds memory for pages that the guest has not used for a while.
Processes that were on a processor are charged with that time, so such a run says nothing.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

_EVERY_S = 0.5
_WORK = 20_000
_STILL_S = 0.5
_SLEEPER = f"""
import select, sys, time
lost, before = 0.0, time.monotonic()
while not select.select([sys.stdin], [], [], 0.1)[0]:
    now = time.monotonic()
    lost, before = lost + (now - before if now - before > {_STILL_S} else 0), now
print(lost)
"""
"""A process that only sleeps: where it oversleeps by far, the machine stood still. A thread would also wait for the interpreter's
lock."""


class MachineProbe:
    """Measures within the `with` block, beside it; takes less than a hundredth of a core.

    Attributes:
        stood_still_s: For how long the machine stood still; known after the block.
    """

    def __init__(self) -> None:
        self._took: list[float] = []
        self.stood_still_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine-probe", daemon=True)

    @property
    def mean_us(self) -> float:
        """Mean CPU time of the piece of work, µs; not the median, because stalls count in the run, too."""
        return round(sum(self._took) / len(self._took) * 1e6, 1)

    def __enter__(self) -> MachineProbe:
        self._sleeper = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        told = self._sleeper.communicate("\n")[0]
        # A signal that ends this process group has ended the sleeper, too.
        self.stood_still_s = round(float(told or 0), 1)

    def _run(self) -> None:
        while True:
            before = time.thread_time()
            sum(range(_WORK))
            self._took.append(time.thread_time() - before)
            if self._ended.wait(_EVERY_S):
                return
