"""Folders and files that only their owner can access: local state and checkpoints hold users' data.

Rights are set when a file or folder is created, never afterwards, so there is no moment in which others can open it. Anybody who
can write into a parent folder, such as `/tmp`, can create a folder or a link under the name that this process is about to use. So
an existing folder must belong to this user, or to root, who can read everything anyway.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

from state.errors import ForeignFolderError

MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077

log = logging.getLogger(__name__)


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents, each with mode 0700.

    An existing folder loses the rights of group and others, which is logged. (`Path.mkdir(parents=True)` applies the mode to the
    last folder only, and `umask` would affect the whole process.)

    Raises:
        ForeignFolderError: The folder, or the link in its place, belongs to another user.
    """
    missing = [folder, *folder.parents]
    for one in reversed(missing[: next(index for index, one in enumerate(missing) if one.exists())]):
        one.mkdir(MODE, exist_ok=True)
    check_owner(folder)
    found = folder.stat()
    # A sticky folder such as /tmp is shared on purpose; a folder of root's is a mounted volume.
    if found.st_uid == os.getuid() and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
        folder.chmod(MODE)
        log.warning("other users had access to %s (mode %o); now only its owner has", folder, found.st_mode & 0o777)


def check_owner(path: Path) -> None:
    """Refuses a folder or file that another user has put in its place; accepts a path that does not exist."""
    for found in (path.lstat, path.stat):
        try:
            owner = found().st_uid
        except (FileNotFoundError, NotADirectoryError):
            return
        if owner not in (0, os.getuid()):
            raise ForeignFolderError(str(path), owner)


@functools.cache
def private_temporary_folder(name: str) -> Path:
    """A private folder for temporary files that all processes of this user share: `<temporary folder>/<name>-<user id>`."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    try:
        make_private(folder)
    except ForeignFolderError:
        # Another user has taken that name, which must not stop this process.
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    return folder


def write_private(file: Path, data: bytes) -> None:
    """Writes a file that only its owner can read, atomically and durably: after a crash it is complete or unchanged."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    # Deletes what a crash has left, and never writes through a link that somebody has put there.
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)


# --- Further names of files, instead of copies of them: table files never change, so several databases can share one.

PART = ".part"
"""End of the names of files that are not complete yet."""


def link_or_copy(source: Path, target: Path) -> None:
    """Gives a file a second name. If the disk or the rights do not allow that, copies the file. All or nothing."""
    part = part_of(target)
    part.unlink(missing_ok=True)
    try:
        try:
            os.link(source, part)
        except OSError:
            with source.open("rb") as from_, part.open("wb") as to:
                shutil.copyfileobj(from_, to, 1 << 20)
                to.flush()
                os.fsync(to.fileno())
        os.replace(part, target)
    finally:
        # Renaming a file to another of its own names leaves both.
        part.unlink(missing_ok=True)


def part_of(target: Path) -> Path:
    """The path at which this thread writes a file before it gets its name."""
    return target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}{PART}")
