"""The archive of Spark's Java classes, read and verified once, which Java maps into memory at startup.

Java spends much of a start's CPU on reading classes from jars: with an archive, Java took about 7 s instead of 16
(`streams run` of the word count, a busy machine, one run of each). The mechanism is Java's application class-data sharing
(JEP 350): one run is recorded, and later ones start from the archive. `make venv` records the archive
(`streams.spark.jvm.record_classes`); `session.py` uses the archive where it starts Java itself, so not under spark-submit.

The archive (160 MB) belongs to the jars of one pyspark, so it is stored in the same Python environment and deleted with it.
Java ignores an archive that does not match its version and the jars. But a truncated archive would crash Java: so the size
of the complete archive is noted, and an archive of another size counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

OPTIONS = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Xlog:disable"
"""The archive is mapped at the address for which it was written, if that is free. By default, newer Java 17 moves it to a random
one and so writes to all its pages: 0.15 s of CPU at a start, and 70 MB that are Java's own instead of the page cache's. What it
gives up is the random address, a defence against exploits of Java itself. Java's log would report archives that do not match, which
does not concern the user."""


def archive() -> Path:
    """The path of the archive for this Spark and this Java, whether it exists or not."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256(str(java.resolve()).encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "streams-on-spark" / f"spark-{pyspark.__version__}-{digest}.jsa"


def java_options() -> str:
    """Java's options for using the archive, with a leading space; empty without an archive."""
    path = archive()
    # Options are split at spaces.
    return f" -XX:SharedArchiveFile={path} {OPTIONS}" if is_whole(path) and " " not in str(path) else ""


def is_whole(path: Path) -> bool:
    """Whether the archive exists, with the size it had when Java finished writing it."""
    try:
        return path.stat().st_size == int(size_note(path).read_text())
    except (OSError, ValueError):
        return False


def size_note(path: Path) -> Path:
    """The file with the size of the complete archive."""
    return path.with_suffix(".size")
