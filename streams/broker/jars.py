"""Java, and the sets of jars in the cache folder: the embedded broker's, Delta Lake's, and others of the same kind.

A set of jars is one folder of the cache. The folder appears under its final name by one rename, with a list of its files
and their sizes written last, so that an interrupted fetch, or a file that was lost or truncated later, is always noticed.

Jars are fetched with the copy of Ivy in pyspark: that needs Java, not Maven. Ivy uses the user's configuration:
`~/.ivy2/ivysettings.xml`, or the file named by `STREAMS_IVY_SETTINGS`, chooses the repositories, and `JAVA_OPTS` sets proxies
(`-Dhttps.proxyHost=... -Dhttps.proxyPort=...`) or trust stores.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streams.broker.processes import file_lock
from streams.errors import JarFetchError, JarsMissingError, JavaError

MIN_JAVA_VERSION = 17
"""The oldest Java that Kafka 4 brokers and Spark 4 support."""

_HELP = (
    f"The embedded Kafka broker and Spark need Java {MIN_JAVA_VERSION} or newer. "
    "Install one (Debian/Ubuntu: apt install openjdk-17-jre-headless, macOS: brew install openjdk@17), "
    "and put its bin folder on the PATH or set JAVA_HOME."
)


def find_java() -> Path:
    """The `java` command to use, after checking its version: from `JAVA_HOME`, else from the PATH, as Spark does."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path("java")
    origin = f"JAVA_HOME={home}" if home else "the PATH"
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True, timeout=60)
    except FileNotFoundError:
        raise JavaError(f"Java was not found (looked for '{java}', from {origin}). {_HELP}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"'{java} -version' (from {origin}) failed: {error}. {_HELP}") from error
    version = _major_version(answer.stderr + answer.stdout)
    if version is None:
        raise JavaError(f"'{java} -version' (from {origin}) printed no version that could be read. {_HELP}")
    if version < MIN_JAVA_VERSION:
        raise JavaError(f"Java {version} ('{java}', from {origin}) is too old. {_HELP}")
    return java


def _major_version(output: str) -> int | None:
    """The major version: 17 for 'openjdk version "17.0.15" 2025-04-15', 8 for 'java version "1.8.0_402"'."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None


KAFKA_VERSION = os.environ.get("STREAMS_KAFKA_VERSION", "4.3.1")
"""The version of the broker; `scripts/check_release.py` tries others."""

SCALA_VERSION = "2.13"
MANIFEST = "complete.json"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together, with all that they depend on.

    Attributes:
        name: The name of the folder in the cache; contains the version.
        title: What the jars are, for messages.
        modules: Organisation, name and version of each module that is asked for.
        required: Prefixes of the names of jars without which the set is useless.
        fetched_by: The command that fetches the set, for messages.
        without: Organisations whose jars are left out, because the program that uses the set brings them itself.
    """

    name: str
    title: str
    modules: tuple[tuple[str, str, str], ...]
    required: tuple[str, ...]
    fetched_by: str
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
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
    """The cache folder, which all data folders share.

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
    """Whether the folder has every jar of its manifest in full size."""
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
    """The Java class path of a set of jars."""
    if not is_complete(jars.folder):
        raise JarsMissingError(f"The jars of {jars.title} are not in {jars.folder}. Fetch them with: {jars.fetched_by}")
    return f"{jars.folder}{os.sep}*"


def jar_of_pyspark(name: str) -> Path:
    """Finds a jar that comes with the installed pyspark (Ivy, py4j), without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder, "jars").glob(f"{name}-*.jar")):
            return jar
    if spec is None:
        raise JarFetchError("Spark is missing, whose Ivy fetches jars: pip install 'streams-on-spark[spark]'")
    raise JarFetchError(f"pyspark's jars hold no {name}-*.jar, which is needed here. Reinstall pyspark.")


_LOCK_TIMEOUT_S = 900.0
_LOG_LINES = 15

_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="streams-on-spark" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
{exclusions}
  </dependencies>
</ivy-module>
"""


def fetch_jars(progress: Callable[[str], None] = lambda _line: None, jars: JarSet = BROKER_JARS) -> Path:
    """Fetches a set of jars into the cache folder, unless it is there already.

    Raises:
        JavaError: There is no usable Java.
        JarFetchError: The jars could not be fetched.
    """
    target = jars.folder
    if is_complete(target):
        return target
    with file_lock(cache_dir() / "fetch.lock", _LOCK_TIMEOUT_S):
        if not is_complete(target):
            _fetch(jars, progress)
    return target


def _fetch(jars: JarSet, progress: Callable[[str], None]) -> None:
    """Fetches into a folder next to the target and renames it; after a failure, Ivy's cache remains for the next try."""
    target = jars.folder
    partial = target.with_name(target.name + ".partial")
    ivy_cache = cache_dir() / "ivy"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    module = partial / "ivy.xml"
    module.write_text(_ivy_module(jars))
    _run_ivy(jars, _ivy_command(module, ivy_cache, partial), progress)
    module.unlink()
    _check(jars, partial)
    write_manifest(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _ivy_module(jars: JarSet) -> str:
    dependencies = [
        f'    <dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default"/>'
        for organisation, name, version in jars.modules
    ]
    exclusions = [f'    <exclude org="{organisation}"/>' for organisation in jars.without]
    return _IVY_MODULE.format(dependencies="\n".join(dependencies), exclusions="\n".join(exclusions))


def _ivy_command(module: Path, ivy_cache: Path, target: Path) -> list[str]:
    # Libraries packed as OSGi bundles (snappy, HdrHistogram) have another type than "jar".
    settings = Path(os.environ.get("STREAMS_IVY_SETTINGS") or Path.home() / ".ivy2" / "ivysettings.xml")
    return [
        str(find_java()),
        *shlex.split(os.environ.get("JAVA_OPTS", "")),
        *("-jar", str(jar_of_pyspark("ivy"))),
        *(("-settings", str(settings)) if settings.is_file() else ()),
        *("-ivy", str(module), "-confs", "default", "-types", "jar", "bundle", "-cache", str(ivy_cache)),
        *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
    ]


def _run_ivy(jars: JarSet, command: list[str], progress: Callable[[str], None]) -> None:
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line.rstrip())
            progress(lines[-1])
    if ivy.returncode != 0:
        last = [line for line in lines if line.strip(": \t-|")][-_LOG_LINES:]
        raise JarFetchError(
            f"The jars of {jars.title} could not be fetched (Ivy ended with code {ivy.returncode}). "
            "Check the network; set proxies in JAVA_OPTS (-Dhttps.proxyHost=... -Dhttps.proxyPort=...) and other "
            "repositories in an Ivy settings file (STREAMS_IVY_SETTINGS). Ivy's last lines:\n" + "\n".join(last)
        )


def _check(jars: JarSet, folder: Path) -> None:
    """Rejects a set of jars in which a required library is missing or a jar is damaged."""
    found = sorted(folder.glob("*.jar"))
    missing = [prefix for prefix in jars.required if not any(jar.name.startswith(prefix) for jar in found)]
    damaged = [jar.name for jar in found if not zipfile.is_zipfile(jar)]
    if missing or damaged:
        raise JarFetchError(
            f"What was fetched into {folder} is incomplete: missing {missing}, damaged {damaged}. Remove the folder "
            f"{cache_dir()} and run: {jars.fetched_by}"
        )
