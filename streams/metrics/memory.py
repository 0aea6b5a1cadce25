"""The memory of an application's processes: on the driver's host as the operating system shows it, elsewhere as they report it.

On the driver's host these are the driver, its Java process and all below them. Executors on other hosts are known by the workers
that have reported a step; Spark reports the memory of Java there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import psutil

from streams.metrics.application import ApplicationMetrics, RoleMemory

FRESH_S = 5.0
"""How long a measurement serves: asking the kernel for a large Java process takes milliseconds."""
WORKER = "worker"
_PYTHON_ROLES = (("streaming_source_runner", "planner"), (".daemon", WORKER))
"""Text on a Python process's command line -> its role."""


def host_name() -> str:
    """The name of this host, as Spark calls it where that is configured."""
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()


def about_this_process() -> dict[str, str | int]:
    """The fields in which a worker reports its process: `host`, `pid` and `rss_bytes`."""
    return {"host": host_name(), "pid": os.getpid(), "rss_bytes": psutil.Process().memory_info().rss}


@dataclass
class MemoryMeter:
    """Measures the processes on this host, at most once in `FRESH_S`. Thread-safe."""

    own: psutil.Process = field(default_factory=psutil.Process)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _found: tuple[float, tuple[RoleMemory, ...]] | None = None

    def here(self) -> tuple[RoleMemory, ...]:
        """The memory of this process, of processes that it has started, and of the Java process that started it (spark-submit)."""
        with self._lock:
            now = time.monotonic()
            if self._found is None or now - self._found[0] > FRESH_S:
                parent = self.own.parent()
                root = parent if parent is not None and "java" in _name(parent) else self.own
                tree = [root, *_children(root)]
                self._found = (now, _by_role((_role(one, self.own), *sizes) for one in tree if (sizes := _sizes(one))))
            return self._found[1]

    def everywhere(self, app: ApplicationMetrics) -> tuple[RoleMemory, ...]:
        """The memory of this host's processes, and of the workers on other hosts at their last steps."""
        workers: dict[tuple[str, int], int] = {}
        for sub in app.sub_topologies.values():
            for task in sub.tasks.values():
                if task.last is not None and task.last.host not in ("", host_name()):
                    workers[task.last.host, task.last.pid] = task.last.rss_bytes
        return (*self.here(), *_others(workers))


def _others(workers: Mapping[tuple[str, int], int]) -> Iterable[RoleMemory]:
    for host in sorted({host for host, _ in workers}):
        sizes = [size for (place, _), size in workers.items() if place == host]
        yield RoleMemory(host, WORKER, len(sizes), sum(sizes), None)


def _by_role(found: Iterable[tuple[str, int, int | None]]) -> tuple[RoleMemory, ...]:
    sums: dict[str, tuple[int, int, int | None]] = {}
    for role, rss, pss in found:
        count, all_rss, all_pss = sums.get(role, (0, 0, 0))
        sums[role] = (count + 1, all_rss + rss, None if pss is None or all_pss is None else all_pss + pss)
    return tuple(RoleMemory(host_name(), role, *of) for role, of in sorted(sums.items()))


def _role(process: psutil.Process, own: psutil.Process) -> str:
    if process.pid == own.pid:
        return "driver"
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        line = ""
    return role_of(_name(process), line)


def role_of(name: str, line: str) -> str:
    """The role of a process that the application has started, by its name and command line."""
    if "java" in name:
        # Spark's own command line names the module of the Python daemon, so Java is recognised first.
        return "broker" if "kafka.Kafka" in line else "java"
    return next((role for text, role in _PYTHON_ROLES if text in line), "other")


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def _sizes(process: psutil.Process) -> tuple[int, int | None] | None:
    """RSS and PSS of a process. PSS is None if the system does not report it; the result is None if the process is gone."""
    try:
        rss = int(process.memory_info().rss)
        full = process.memory_full_info()
    except psutil.AccessDenied:
        return rss, None
    except psutil.Error:
        return None
    return rss, getattr(full, "pss", None)
