"""A limit on the memory of Spark's Python workers, lowered until it ends one of them as in a container that is too small.

The kernel does it where this process may make a control group (cgroup v2 or v1): the workers are born in the group, and once its
limit is below what they use, the kernel's OOM killer strikes; the group's own counter is the proof. Elsewhere a watcher sends
SIGKILL to a worker that is larger than the limit.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

_MOUNTS, _OWN_GROUPS = Path("/proc/mounts"), Path("/proc/self/cgroup")
_EMPTY_S = 10.0
_LESS = 0.9
"""What is left of the memory in use when the limit is lowered: more than page caches give back."""


class MemoryLimit(Protocol):
    """A limit on the memory of workers."""

    def __str__(self) -> str: ...

    @property
    def python(self) -> Path:
        """The Python that Spark is to start its workers with."""

    @property
    def killed(self) -> int:
        """The number of processes that it has ended so far."""

    def lower(self) -> None:
        """Lowers the limit below what the workers use now."""

    def lift(self) -> None: ...


@dataclass(frozen=True)
class _Version:
    """The files of a memory group, which differ between the two versions of control groups."""

    name: str
    limit: str
    usage: str
    events: str
    unlimited: str
    without_swap: tuple[str, str]


_VERSIONS = {
    "cgroup2": _Version("cgroup v2", "memory.max", "memory.current", "memory.events", "max", ("memory.swap.max", "0")),
    "cgroup": _Version(
        "cgroup v1",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.oom_control",
        "-1",
        ("memory.swappiness", "0"),
    ),
}


class ControlGroup:
    """A control group of the kernel's with a limit.

    Args:
        path: The group's folder, which exists.
        version: Its files.
        folder: Where the workers' Python is written.
    """

    def __init__(self, path: Path, version: _Version, folder: Path) -> None:
        self._path, self._version = path, version
        self._python = folder / "python-in-group"
        # A worker that finds no group any more works without one.
        members = shlex.quote(str(path / "cgroup.procs"))
        self._python.write_text(
            f'#!/bin/sh\n{{ echo $$ > {members}; }} 2>/dev/null\nexec {shlex.quote(sys.executable)} "$@"\n'
        )
        self._python.chmod(0o755)
        file, value = version.without_swap
        with suppress(OSError):
            (path / file).write_text(value)

    def __str__(self) -> str:
        return f"the kernel's OOM killer ({self._version.name})"

    @property
    def python(self) -> Path:
        """A script that becomes Python in the group."""
        return self._python

    @property
    def works(self) -> bool:
        """Whether processes can join the group."""
        joined = f"print({str(self._path.name)!r} in open({str(_OWN_GROUPS)!r}).read())"
        said = subprocess.run([self._python, "-c", joined], capture_output=True, text=True, check=False)
        return said.stdout.strip() == "True"

    def lower(self) -> None:
        for share in (_LESS, 1.0):
            with suppress(OSError):
                used = int((self._path / self._version.usage).read_text())
                (self._path / self._version.limit).write_text(str(int(used * share)))
                return

    @property
    def killed(self) -> int:
        """The number of processes that the kernel has killed in the group."""
        lines = (self._path / self._version.events).read_text().splitlines()
        counts = dict(line.split() for line in lines)
        return int(counts.get("oom_kill", 0))

    def lift(self) -> None:
        (self._path / self._version.limit).write_text(self._version.unlimited)

    def close(self) -> None:
        """Moves the processes to the group above, and removes this one."""
        deadline = time.monotonic() + _EMPTY_S
        while self._path.is_dir() and time.monotonic() < deadline:
            for pid in (self._path / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (self._path.parent / "cgroup.procs").write_text(pid)
            with suppress(OSError):
                self._path.rmdir()
                return
            time.sleep(0.1)


class Watcher:
    """Sends SIGKILL to workers that are larger than a limit.

    Args:
        workers: Finds the workers.

    Attributes:
        killed: See `MemoryLimit`.
    """

    def __init__(self, workers: Callable[[], list[psutil.Process]]) -> None:
        self._workers = workers
        self.killed = 0

    def __str__(self) -> str:
        return "SIGKILL to the worker that is larger than the limit (no control group can be had here)"

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    def lower(self) -> None:
        with suppress(psutil.NoSuchProcess):
            sizes = {worker: worker.memory_info().rss for worker in self._workers()}
            if sizes:
                max(sizes, key=lambda worker: sizes[worker]).kill()
                self.killed += 1

    def lift(self) -> None: ...


@contextmanager
def limit_of_workers(folder: Path, workers: Callable[[], list[psutil.Process]]) -> Iterator[MemoryLimit]:
    """The best limit that can be had here; it ends with the block."""
    for group, version in _places(_MOUNTS.read_text() if _MOUNTS.exists() else ""):
        made = _made(group, version, folder)
        if made is not None:
            try:
                yield made
            finally:
                made.close()
            return
    yield Watcher(workers)


def _made(group: Path, version: _Version, folder: Path) -> ControlGroup | None:
    """A new group below another one; None if that cannot be had."""
    path = group / f"streams-drill-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        return None
    with suppress(OSError):
        # Only the second version asks for that; it refuses where processes are in the group itself.
        if version.name == "cgroup v2" and not (path / version.limit).exists():
            (group / "cgroup.subtree_control").write_text("+memory")
    made = ControlGroup(path, version, folder)
    if (path / version.limit).exists() and made.works:
        return made
    made.close()
    return None


def _places(mounts: str) -> Iterator[tuple[Path, _Version]]:
    """The groups below which one might be made: that of this process, the ones above, and the root."""
    for line in mounts.splitlines():
        _, place, kind, options = line.split()[:4]
        if kind not in _VERSIONS or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        root = Path(place)
        own = root / _own_group(kind).lstrip("/")
        for group in dict.fromkeys((own, *own.parents)):
            if group.is_relative_to(root) and group.is_dir():
                yield group, _VERSIONS[kind]


def _own_group(kind: str) -> str:
    """The group of this process, below the root of its hierarchy."""
    for line in _OWN_GROUPS.read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if (number == "0" and kind == "cgroup2") or (kind == "cgroup" and "memory" in controllers.split(",")):
            return path
    return "/"
