"""Faults of the disk with local state: full, without writes, and with errors at everything."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.drills.failure import NotPossibleHere
from streams.drills.world import World

ENDS_S = 180.0
SIZE = "96m"
IMAGE_BYTES = 96 << 20
SPILL_BYTES = 4096
"""So little that every step spills."""
SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2
"""The call FS_IOC_SHUTDOWN of Linux' file systems: everything fails from then on, and what was not on the disk yet is lost."""


def failing(world: World) -> None:
    """D33: the disk with local state takes no writes, and later returns errors; each time it comes back as it was written."""
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
    """A file system with a journal in a file (ext4 on a loop device); its folder, and the file.

    Raises:
        NotPossibleHere: Only root may mount file systems, on Linux, and `mkfs.ext4` is needed.
    """
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
    """Mounts a file as a disk.

    Raises:
        NotPossibleHere: There are no loop devices.
    """
    mounted = mount("-o", "loop", str(image), str(place))
    if mounted.returncode != 0:
        raise NotPossibleHere(f"a file could not be mounted as a disk: {mounted.stderr.strip()}")


def unmount(place: Path) -> None:
    """Unmounts a disk; one that is still in use goes once it is not."""
    if subprocess.run(["umount", str(place)], check=False, capture_output=True).returncode != 0:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def abort_writes(disk: Path) -> None:
    """Lets a disk take no writes any more, as file systems do by themselves after an error."""
    aborted = mount("-o", "remount,abort", str(disk))
    if aborted.returncode != 0:
        raise NotPossibleHere(f"this system cannot abort the writes of a file system: {aborted.stderr.strip()}")


def fail_altogether(disk: Path) -> None:
    """Lets everything on a disk fail."""
    folder = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
    except OSError as error:
        raise NotPossibleHere(f"this system cannot let a file system fail: {error}") from None
    finally:
        os.close(folder)


def write_error(disk: Path) -> int | None:
    """The error of making a file on the disk; None: there is none."""
    try:
        (disk / "new").open("wb").close()
    except OSError as error:
        return error.errno
    return None


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
    return subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)


def full(world: World) -> None:
    """D27: the disk with local state is full for a while, also for what steps spill: no record is at fault, so none is skipped."""
    with small_disk(world) as disk:
        world.damages_state = True
        settings = {"state_dir": disk / "state", "spill_bytes": SPILL_BYTES, "processing": "skip"}
        elsewhere = tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
        world.start(*elsewhere)
        fill(disk / "ballast")
        world.saw(f"the disk of local state was filled: {shutil.disk_usage(disk).free} bytes were free")
        ends(world, "a full disk")
        (disk / "ballast").unlink()
        world.application.start(*elsewhere)
        world.recovers("the disk had room again")
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
    """Waits until failed attempts have ended the application, which must say what is wrong with its state."""
    driver = world.application.current
    driver.watch()
    code = driver.ended(ENDS_S)
    said = driver.last_words()
    world.require(code == 1 and "StateError" in said, f"{what} ended the application with exit code {code}: {said}")
    world.saw(f"{what} ended the application: {said[:200]}")
