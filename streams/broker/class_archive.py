"""Archives of Java classes, read and verified once, which Java maps into memory at startup.

Java spends much of a start's CPU on reading classes from jars. The mechanism is Java's application class-data sharing (JEP 350):
one run is recorded, and later ones start from the archive. Spark has one (`driver/launch/settings.py`), and the embedded broker
(`record_classes.py`).

Java ignores an archive that does not match its version and the jars. But a truncated archive would crash Java: so the size of the
complete archive is noted, and an archive of another size counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

_NO_LOG = "-Xlog:disable"
"""Java's log would report archives that do not match, which the user need not know."""

_USE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0", _NO_LOG)
"""The archive is mapped at the address for which it was written, if that is free. By default, newer Java 17 moves it to a random
one and so writes to all its pages: for Spark, 0.15 s of CPU at a start, and 70 MB that are Java's own instead of the page cache's.
The price is the random address, which is a defence against exploits of Java itself."""


def archive_in(folder: Path, name: str) -> Path:
    """The path of an archive for the Java in use, whether it exists or not."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256(str(java.resolve()).encode()).hexdigest()[:12]
    return folder / f"{name}-{digest}.jsa"


def options_for(path: Path) -> tuple[str, ...]:
    """Java's options for using the archive; none without an archive."""
    return (f"-XX:SharedArchiveFile={path}", *_USE) if is_whole(path) else ()


def record(path: Path, run: Callable[[Sequence[str]], bool]) -> None:
    """Creates the archive unless it exists: `run` runs Java with the given options, and returns whether it ended by itself."""
    if is_whole(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        if run((f"-XX:ArchiveClassesAtExit={unfinished}", _NO_LOG)) and unfinished.exists():
            size = unfinished.stat().st_size
            size_note(path).unlink(missing_ok=True)
            unfinished.rename(path)
            size_note(path).write_text(f"{size}\n")
    finally:
        unfinished.unlink(missing_ok=True)


def is_whole(path: Path) -> bool:
    """Whether the archive exists, with the size it had when Java finished writing it."""
    try:
        return path.stat().st_size == int(size_note(path).read_text())
    except (OSError, ValueError):
        return False


def size_note(path: Path) -> Path:
    """The file with the size of the complete archive."""
    return path.with_suffix(".size")
