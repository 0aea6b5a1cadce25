"""Faults of the machine: disks with local state that are full or fail, and workers that are short of memory.

The limit on the memory of Spark's Python workers is lowered until it ends one of them, as in a container that is too small. The
kernel does that if this process may make a control group (cgroup v2 or v1): the workers start in the group, and once its limit is
below what they use, the kernel's OOM killer strikes; the group's own counter is the proof. Elsewhere a watcher sends SIGKILL to the
largest worker.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from streams.drills.drill import NotPossibleHere, drill
from streams.drills.world import World

_MOUNTS, _OWN_GROUPS = Path("/proc/mounts"), Path("/proc/self/cgroup")
_EMPTY_S = 10.0
_LESS = 0.9
"""The new limit, as a share of the memory in use: low enough that freeing page caches does not suffice."""


class _Version(NamedTuple):
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
        *("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "-1"),
        ("memory.swappiness", "0"),
    ),
}


class ControlGroup:
    """A control group of the kernel, with a limit on memory.

    Args:
        path: The group's folder, which exists.
        version: Its files.
        folder: Where the script `python` is written.

    Attributes:
        python: The command with which Spark starts its workers: a script that joins the group and then becomes Python.
    """

    def __init__(self, path: Path, version: _Version, folder: Path) -> None:
        self._path, self._version = path, version
        self.python = folder / "python-in-group"
        # A worker that finds no group works without one.
        members = shlex.quote(str(path / "cgroup.procs"))
        self.python.write_text(
            f'#!/bin/sh\n{{ echo $$ > {members}; }} 2>/dev/null\nexec {shlex.quote(sys.executable)} "$@"\n'
        )
        self.python.chmod(0o755)
        file, value = version.without_swap
        with suppress(OSError):
            (path / file).write_text(value)

    def __str__(self) -> str:
        return f"the kernel's OOM killer ({self._version.name})"

    @property
    def works(self) -> bool:
        """Whether processes can join the group."""
        joined = f"print({str(self._path.name)!r} in open({str(_OWN_GROUPS)!r}).read())"
        said = subprocess.run([self.python, "-c", joined], capture_output=True, text=True, check=False)
        return said.stdout.strip() == "True"

    def lower(self) -> None:
        """Lowers the limit below what the workers use now."""
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
        """Moves the processes to the parent group, and removes this group."""
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
    """Sends SIGKILL to the largest worker, where there are no control groups."""

    def __init__(self, workers: Callable[[], list[psutil.Process]]) -> None:
        self._workers = workers
        self.python = Path(sys.executable)
        self.killed = 0

    def __str__(self) -> str:
        return "SIGKILL to the worker that is larger than the limit (no control group is available here)"

    def lower(self) -> None:
        with suppress(psutil.NoSuchProcess):
            sizes = {worker: worker.memory_info().rss for worker in self._workers()}
            if sizes:
                max(sizes, key=lambda worker: sizes[worker]).kill()
                self.killed += 1

    def lift(self) -> None: ...


@contextmanager
def limit_of_workers(folder: Path, workers: Callable[[], list[psutil.Process]]) -> Iterator[ControlGroup | Watcher]:
    """Limits the workers' memory within the block: by a control group if the machine allows it, otherwise by a watcher."""
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
    """A new group inside another one, or None if it cannot be created."""
    path = group / f"streams-drill-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        return None
    with suppress(OSError):
        # Only version 2 needs that; it refuses if the group itself has processes.
        if version.name == "cgroup v2" and not (path / version.limit).exists():
            (group / "cgroup.subtree_control").write_text("+memory")
    made = ControlGroup(path, version, folder)
    if (path / version.limit).exists() and made.works:
        return made
    made.close()
    return None


def _places(mounts: str) -> Iterator[tuple[Path, _Version]]:
    """The groups in which a new one might be created: this process's own, its parents, and the root."""
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


# Disks.

ENDS_S = 180.0
SIZE = "96m"
IMAGE_BYTES = 96 << 20
SPILL_BYTES = 4096
"""So small that every step spills."""
SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2
"""The call FS_IOC_SHUTDOWN of Linux file systems. After it, every access fails, and data that was not on disk yet is lost."""


@drill(
    "D33",
    "disk failing",
    injects="a disk with local state that takes no writes (EROFS), and later returns errors (EIO); its last writes are lost",
    holds="a `StateError` ends the application, and nothing is lost",
    minutes=1.5,
    needs="root, for ext4 on a loop device",
)
def failing(world: World) -> None:
    with loop_disk(world) as (disk, image):
        world.damages_state = True
        elsewhere = ("--set", f"state_dir={disk / 'state'}")
        world.start(*elsewhere)
        for fail, error in ((abort_writes, errno.EROFS), (fail_altogether, errno.EIO)):
            fail(disk)
            world.require(write_error(disk) == error, f"the disk still takes writes (errno {write_error(disk)})")
            world.saw(f"the disk of local state failed: {os.strerror(error)}")
            ends(world, "a failing disk")
            repaired = time.monotonic()
            unmount(disk)
            mount_image(image, disk)
            world.saw(f"mounted again, it had {len(list(disk.rglob('*.sst')))} table files of local databases")
            world.application.start(*elsewhere)
            world.recovers(f"a disk had failed: {os.strerror(error)}", repaired)
        world.stop()
        shutil.copytree(disk / "state", world.application.state, dirs_exist_ok=True)
    world.application.start()


@contextmanager
def loop_disk(world: World) -> Iterator[tuple[Path, Path]]:
    """A file system with a journal in a file (ext4 on a loop device); its folder, and the file."""
    if shutil.which("mkfs.ext4") is None or os.geteuid() != 0:
        raise NotPossibleHere("only root can mount a file system on a loop device, and mkfs.ext4 is needed")
    place, image = world.folder / "failing-disk", world.folder / "failing-disk.img"
    place.mkdir()
    image.touch()
    os.truncate(image, IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    mount_image(image, place)
    try:
        yield place, image
    finally:
        unmount(place)


def mount_image(image: Path, place: Path) -> None:
    """Mounts a file as a disk."""
    mounted = mount("-o", "loop", str(image), str(place))
    if mounted.returncode != 0:
        raise NotPossibleHere(f"a file could not be mounted as a disk: {mounted.stderr.strip()}")


def unmount(place: Path) -> None:
    """Unmounts a disk. If it is still in use, it is unmounted once it is not."""
    if subprocess.run(["umount", str(place)], check=False, capture_output=True).returncode != 0:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def abort_writes(disk: Path) -> None:
    """Makes a disk refuse writes, as file systems do by themselves after an error."""
    aborted = mount("-o", "remount,abort", str(disk))
    if aborted.returncode != 0:
        raise NotPossibleHere(f"this system cannot abort the writes of a file system: {aborted.stderr.strip()}")


def fail_altogether(disk: Path) -> None:
    """Makes every access to a disk fail."""
    folder = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
    except OSError as error:
        raise NotPossibleHere(f"this system cannot let a file system fail: {error}") from None
    finally:
        os.close(folder)


def write_error(disk: Path) -> int | None:
    """The error of creating a file on the disk, or None if that succeeds."""
    try:
        (disk / "new").open("wb").close()
    except OSError as error:
        return error.errno
    return None


@contextmanager
def small_disk(world: World) -> Iterator[Path]:
    """A file system of its own for local state."""
    place = world.folder / "small-disk"
    place.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        raise NotPossibleHere("only root can mount a small file system (tmpfs)")
    mounted = mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place))
    if mounted.returncode != 0:
        raise NotPossibleHere(f"a small file system could not be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)


@drill(
    "D27",
    "disk full",
    injects="a disk with local state, where steps spill, that is full for a while",
    holds="a `StateError` ends the application, and nothing is lost",
    needs="root, for a small file system",
)
def full(world: World) -> None:
    with small_disk(world) as disk:
        world.damages_state = True
        settings = {"state_dir": disk / "state", "spill_bytes": SPILL_BYTES, "processing": "skip"}
        elsewhere = tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
        world.start(*elsewhere)
        fill(disk / "ballast")
        world.saw(f"the disk of local state was filled: {shutil.disk_usage(disk).free} bytes were free")
        ends(world, "a full disk")
        (disk / "ballast").unlink()
        world.restarts("the disk had room again", *elsewhere)
        world.stop()
        shutil.copytree(disk / "state", world.application.state, dirs_exist_ok=True)
    world.application.start()


def fill(file: Path) -> None:
    """Writes a file until the disk is full."""
    with file.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 65536)
        except OSError:
            return


def ends(world: World, what: str) -> None:
    """Waits until failed attempts have ended the application, with an error that names what is wrong with its state."""
    driver = world.application.current
    driver.watch()
    code = driver.ended(ENDS_S)
    said = driver.last_words()
    world.require(code == 1 and "StateError" in said, f"{what} ended the application with exit code {code}: {said}")
    world.saw(f"{what} ended the application: {said[:200]}")
