"""Further names of files, instead of copies of them: table files never change, so several databases can share one."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

PART = ".part"
"""End of the names of files that are not complete yet."""


def link_or_copy(source: Path, target: Path) -> None:
    """Gives a file a second name; where the disk or its rights do not allow that, copies the file. All or nothing."""
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
    """Where this thread writes a file before it gets its name."""
    return target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}{PART}")
