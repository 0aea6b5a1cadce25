"""Sets of jars in the cache folder (the embedded broker's, and others of the same kind), and the check that one is complete.

A set of jars is one folder of the cache. The folder appears under its final name by one rename, with a list of its files
and their sizes written last, so that an interrupted fetch, or a file that was lost or truncated later, is always noticed.
"""

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path

from streams.broker.errors import JarFetchError, JarsMissingError

KAFKA_VERSION = "4.3.1"
"""The version of the broker."""

SCALA_VERSION = "2.13"
MANIFEST = "complete.json"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together, with all that they depend on.

    Attributes:
        name: The name of the folder in the cache; contains the version.
        title: What the jars are, for messages.
        modules: Organisation, name and version of each module that is asked for.
        required: Beginnings of the names of jars without which the set is of no use.
        fetched_by: The command that fetches the set, for messages.
        without: Organisations whose jars are left out, because what runs with the set brings them itself.
    """

    name: str
    title: str
    modules: tuple[tuple[str, str, str], ...]
    required: tuple[str, ...]
    fetched_by: str
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder for the jars, whether it exists or not."""
        return cache_dir() / self.name


BROKER_JARS = JarSet(
    f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}",
    f"Kafka {KAFKA_VERSION}",
    (
        ("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
        # Not a dependency of Kafka, but without it the broker would not log anything.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    ("kafka_", "kafka-clients-", "kafka-server-", "kafka-group-coordinator-", "snappy-java-", "zstd-jni-"),
    "streams broker fetch",
)
"""The jars of the embedded broker."""

DELTA_VERSION = "4.4.0"
"""The version of Delta's jars, the newest published one for delta-spark 4.4.*: the Python package may be a patch ahead of them."""
SPARK_VERSION = "4.2"
"""The version of Spark that Delta's jars are for."""

DELTA_JARS = JarSet(
    f"delta-spark_{SPARK_VERSION}_{SCALA_VERSION}-{DELTA_VERSION}",
    f"Delta Lake {DELTA_VERSION}",
    (("io.delta", f"delta-spark_{SPARK_VERSION}_{SCALA_VERSION}", DELTA_VERSION),),
    (f"delta-spark_{SPARK_VERSION}_{SCALA_VERSION}-", "delta-storage-"),
    "streams broker fetch --delta",
    # pyspark has its own copies, of other versions: 90 MB less to fetch, and no class twice.
    (
        "com.fasterxml.jackson.core",
        "com.google.code.findbugs",
        "commons-logging",
        "org.apache.hadoop",
        "org.apache.logging.log4j",
        "org.apache.parquet",
        "org.roaringbitmap",
        "org.scala-lang",
        "org.slf4j",
    ),
)
"""The jars of Delta Lake, as a Spark session needs them besides pyspark's."""


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
    """Returns the folder for the jars of the embedded broker, whether it exists or not."""
    return BROKER_JARS.folder


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


def class_path(jars: JarSet = BROKER_JARS) -> str:
    """Returns the Java class path of a set of jars.

    Raises:
        JarsMissingError: The jars are not in the cache, or not all of them.
    """
    if not is_complete(jars.folder):
        raise JarsMissingError(f"The jars of {jars.title} are not in {jars.folder}. Fetch them with: {jars.fetched_by}")
    return f"{jars.folder}{os.sep}*"


def jar_of_pyspark(name: str) -> Path:
    """Finds a jar that comes with the installed pyspark (Ivy, py4j), without importing pyspark.

    Raises:
        JarFetchError: There is none.
    """
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder, "jars").glob(f"{name}-*.jar")):
            return jar
    raise JarFetchError(f"pyspark's jars hold no {name}-*.jar, which is needed here. Reinstall pyspark 4.2.")
