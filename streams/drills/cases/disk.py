"""Faults of the disk with local state: full, and failing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.drills.failure import NotPossibleHere
from streams.drills.processes import wait_until
from streams.drills.world import World

SIZE = "96m"


@contextmanager
def small_disk(world: World) -> Iterator[Path]:
    """A file system of its own for local state.

    Raises:
        NotPossibleHere: Only root may mount file systems, on Linux.
    """
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
    """Runs `mount`."""
    return subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)


def full_and_failing(world: World) -> None:
    """D27: the disk with local state is full for a while, and later takes no writes at all."""
    with small_disk(world) as disk:
        elsewhere = ("--set", f"state_dir={disk / 'state'}")
        world.start(*elsewhere)
        fill(disk / "ballast")
        world.saw(f"the disk of local state was filled: {shutil.disk_usage(disk).free} bytes were free")
        failed_meanwhile(world, "a full disk")
        (disk / "ballast").unlink()
        resume(world, elsewhere)
        world.recovers("the disk had room again")
        # Refused while a file is open for writing, as it is within a step.
        wait_until(lambda: mount("-o", "remount,ro", str(disk)).returncode == 0, 60, "the disk becomes read-only")
        world.saw("the disk of local state took no writes (read-only file system)")
        failed_meanwhile(world, "a failing disk")
        mount("-o", "remount,rw", str(disk))
        resume(world, elsewhere)
        world.recovers("the disk took writes again")
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


def failed_meanwhile(world: World, what: str, seconds: float = 10.0) -> None:
    """Waits until attempts have failed for a while, or the application has ended; nothing wrong may come of it."""
    deadline = time.monotonic() + seconds
    while world.application.current.running and time.monotonic() < deadline:
        time.sleep(0.1)
    if not world.application.current.running:
        world.saw(f"{what} ended the application: {world.application.current.last_words()[:200]}")


def resume(world: World, options: tuple[str, ...]) -> None:
    """Starts the application again if the fault has ended it."""
    if not world.application.current.running:
        world.application.start(*options)
