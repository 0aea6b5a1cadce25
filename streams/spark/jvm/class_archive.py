"""Spark's Java classes, read and verified once for all: an archive that Java maps into memory as it starts.

Much of the CPU that a start takes is Java reading its classes from jars: with an archive, Java took about 7 s instead of 16
(`streams run` of the word count, a busy machine, one run of each). It is Java's own application class-data sharing (JEP 350):
a run is recorded, and later ones start from the record. `make venv` records one (`streams.spark.jvm.record_classes`);
`session.py` uses it where it starts Java itself, which spark-submit does not let it.

The archive (160 MB) is of the jars of one pyspark, so it lives in the Python environment beside that one, and goes with it.
Java checks that it fits its own version and the jars; one that does not is not used, and nothing else changes. But one that
was cut short would end Java: so its size is noted once it is whole, and without that size it counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark


def archive() -> Path:
    """Where the archive of this Spark and this Java is, whether it exists or not."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256(str(java.resolve()).encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "streams-on-spark" / f"spark-{pyspark.__version__}-{digest}.jsa"


def java_options() -> str:
    """Java's options for using the archive, with a space before them; none if there is no archive."""
    path = archive()
    # Options are split at spaces. The log would tell of archives that do not fit, which is no matter of the user's.
    return f" -XX:SharedArchiveFile={path} -Xlog:disable" if is_whole(path) and " " not in str(path) else ""


def is_whole(path: Path) -> bool:
    """Whether an archive is there, as large as it was when Java had written it."""
    try:
        return path.stat().st_size == int(size_note(path).read_text())
    except (OSError, ValueError):
        return False


def size_note(path: Path) -> Path:
    """The file that says how large the archive was when it was whole."""
    return path.with_suffix(".size")
