"""The cache folder of the broker's jars, and the check that a set of jars is complete.

A set of jars is one folder of the cache. The folder appears under its final name by one rename, with a list of its files
and their sizes written last, so that an interrupted fetch, or a file that was lost or truncated later, is always noticed.
"""

import json
import os
from pathlib import Path

from streams.broker.errors import JarsMissingError

KAFKA_VERSION = "4.3.1"
"""The version of the broker."""

SCALA_VERSION = "2.13"
MANIFEST = "complete.json"


def cache_dir() -> Path:
    """Returns the cache folder, which all data folders share.

    `STREAMS_CACHE_DIR`, else `streams-on-spark` below `XDG_CACHE_HOME`, else `~/.cache/streams-on-spark`.
    """
    chosen = os.environ.get("STREAMS_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    base = Path(xdg) if xdg else Path.home() / ".cache"
    return base / "streams-on-spark"


def jar_dir() -> Path:
    """Returns the folder for the jars of `KAFKA_VERSION`, whether it exists or not."""
    return cache_dir() / f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}"


def is_complete(folder: Path) -> bool:
    """Whether the folder has every jar in its manifest, each with its full size."""
    try:
        sizes: dict[str, int] = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def write_manifest(folder: Path) -> None:
    """Writes the list of the folder's jars and their sizes in bytes, which marks the set as complete."""
    sizes = {jar.name: jar.stat().st_size for jar in sorted(folder.glob("*.jar"))}
    (folder / MANIFEST).write_text(json.dumps(sizes, indent=1) + "\n")


def class_path() -> str:
    """Returns the Java class path of the broker.

    Raises:
        JarsMissingError: The jars are not in the cache, or not all of them.
    """
    folder = jar_dir()
    if not is_complete(folder):
        raise JarsMissingError(
            f"The jars of Kafka {KAFKA_VERSION} are not in {folder}. Fetch them with: streams broker fetch"
        )
    return f"{folder}{os.sep}*"
