"""The resource usage of a tree of processes: CPU seconds by kind of process, and memory with shared pages counted once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from statistics import median
from types import TracebackType

import psutil

SAMPLE_S = 0.25
MEMORY_SAMPLE_S = 1.0
"""Reading the proportional set size costs the kernel a walk over all pages, so it is read less often."""


class TreeUsage:
    """The usage of a process and all its descendants, except some of them (the broker).

    The CPU time of an ended process is the last sampled one, so up to `SAMPLE_S` of each short-lived process may be missed.

    Args:
        without: Processes that do not count.
        root: The root of the tree; default: this process.

    Attributes:
        peak_pss: Bytes by kind of process in the moment with the largest sum of proportional set sizes: a page that several
            processes share counts once.
        peak_rss_bytes: The largest sum of resident set sizes: a shared page counts in each process.
        series: With each sample of the memory: the time (`time.monotonic`), the sum of proportional set sizes in bytes, the number
            of file descriptors.
    """

    def __init__(self, without: set[int], root: int | None = None) -> None:
        self._without = without
        self._root = psutil.Process(root)
        self._cpu: dict[tuple[int, float], float] = {}
        self._names: dict[tuple[int, float], str] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._memory_at = 0.0
        self.peak_pss: dict[str, int] = {}
        self.peak_rss_bytes = 0
        self.series: list[tuple[float, int, int]] = []

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

    def memory_mb(self) -> dict[str, float]:
        """The peaks so far as figures of a run, MiB: `peak_pss_mb`, `peak_rss_mb`, and `peak_pss_mb_KIND`, by kind of process."""
        return {
            "peak_pss_mb": sum(self.peak_pss.values()) // 2**20,
            "peak_rss_mb": self.peak_rss_bytes // 2**20,
            **{f"peak_pss_mb_{kind}": size // 2**20 for kind, size in sorted(self.peak_pss.items())},
        }

    def growth(self, begin: float, end: float) -> dict[str, float]:
        """How memory (MiB) and file descriptors grew within a time (`time.monotonic`): medians of its first and last quarter."""
        quarter = (end - begin) / 4
        first = [one for one in self.series if begin <= one[0] < begin + quarter]
        last = [one for one in self.series if end - quarter <= one[0] < end]
        if not first or not last:
            return {}
        return {
            "pss_mb_first_quarter": int(median(one[1] for one in first)) // 2**20,
            "pss_mb_last_quarter": int(median(one[1] for one in last)) // 2**20,
            "descriptors_first_quarter": int(median(one[2] for one in first)),
            "descriptors_last_quarter": int(median(one[2] for one in last)),
        }

    def sample(self) -> None:
        """Takes one sample."""
        with self._lock:
            with_memory = time.monotonic() >= self._memory_at + MEMORY_SAMPLE_S
            pss: Counter[str] = Counter()
            rss = descriptors = 0
            for process in self._processes():
                try:
                    kind = self._sample_cpu(process)
                    if with_memory:
                        rss += process.memory_info().rss
                        pss[kind] += _pss_bytes(process.pid)
                        descriptors += process.num_fds()
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
            if with_memory:
                self._memory_at = time.monotonic()
                self.series.append((self._memory_at, pss.total(), descriptors))
            self.peak_pss = max(self.peak_pss, dict(pss), key=lambda kinds: sum(kinds.values()))
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss)

    def _processes(self) -> list[psutil.Process]:
        try:
            found = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if process.pid not in self._without]

    def _sample_cpu(self, process: psutil.Process) -> str:
        """Samples the CPU time of a process; its kind."""
        times = process.cpu_times()
        key = (process.pid, process.create_time())
        # Asked again each time: a process that has just forked looks like its parent until it executes another program.
        self._names[key] = _kind(process, self._root.pid)
        self._cpu[key] = times.user + times.system
        return self._names[key]

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.sample()


def _pss_bytes(pid: int) -> int:
    """The proportional set size of a process; 0 if it has just ended or belongs to someone else."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return next((int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:")), 0)
    except (OSError, ProcessLookupError):
        return 0


def _kind(process: psutil.Process, root: int) -> str:
    if process.name().startswith("java"):
        return "JVM"
    if process.pid == root:
        return "driver"
    if not process.name().startswith("python"):
        return str(process.name())
    command = process.cmdline()
    # The engine's daemon forks the workers; Spark's own daemon forks the planners.
    if "streams.engine.spark.daemon" in command:
        return "workers"
    return "planner" if any("pyspark" in word for word in command) else "Python"
