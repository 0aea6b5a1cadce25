"""The resource usage of a tree of processes: CPU seconds and memory of the system under test, without the broker."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

SAMPLE_S = 0.5
UNKNOWN = "starting"
"""The kind of a process that has forked and will soon execute another program."""


class TreeUsage:
    """The usage of a process and all its descendants, except some of them (the broker).

    The CPU time of an ended process is the last sampled one, so up to `SAMPLE_S` of each short-lived process may be missed.
    """

    def __init__(self, without: set[int]) -> None:
        self._without = without
        self._cpu: dict[tuple[int, float], float] = {}
        self._names: dict[tuple[int, float], str] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self.peak_rss_bytes = 0

    def __enter__(self) -> TreeUsage:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_by_name(self) -> dict[str, float]:
        """CPU seconds so far, user and system, by kind of process."""
        self.sample()
        totals: dict[str, float] = {}
        with self._lock:
            for key, seconds in self._cpu.items():
                totals[self._names[key]] = totals.get(self._names[key], 0.0) + seconds
        return totals

    def sample(self) -> None:
        """Takes one sample."""
        own = psutil.Process()
        rss = 0
        with self._lock:
            for process in [own, *own.children(recursive=True)]:
                try:
                    if process.pid in self._without:
                        continue
                    times, memory = process.cpu_times(), process.memory_info()
                    key = (process.pid, process.create_time())
                    if self._names.get(key, UNKNOWN) == UNKNOWN:
                        self._names[key] = _kind(process, own)
                    self._cpu[key] = times.user + times.system
                    rss += memory.rss - getattr(memory, "shared", 0)
                except psutil.NoSuchProcess:
                    continue
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss)

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.sample()


def _kind(process: psutil.Process, own: psutil.Process) -> str:
    if process.pid == own.pid:
        return "driver (Python)"
    if process.name().startswith("java"):
        return "JVM"
    if not process.name().startswith("python"):
        return UNKNOWN
    # The engine's daemon forks the workers; Spark's own daemon forks the planners.
    return "workers" if "streams.spark.daemon" in process.cmdline() else "planner"
