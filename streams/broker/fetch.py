"""Fetches jars (the embedded broker's, unless told otherwise) with the copy of Ivy in pyspark: needs Java, not Maven.

Ivy uses the user's configuration: `~/.ivy2/ivysettings.xml`, or the file named by `STREAMS_IVY_SETTINGS`, chooses the
repositories, and `JAVA_OPTS` sets proxies (`-Dhttps.proxyHost=... -Dhttps.proxyPort=...`) or trust stores.
"""

import os
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

from streams.broker.errors import JarFetchError
from streams.broker.jars import BROKER_JARS, JarSet, cache_dir, is_complete, jar_of_pyspark, write_manifest
from streams.broker.java import find_java
from streams.broker.locks import file_lock

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
    """Fetches into a folder beside the target and renames it; after a failure, Ivy's cache remains for the next try."""
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
        telling = [line for line in lines if line.strip(": \t-|")][-_LOG_LINES:]
        raise JarFetchError(
            f"The jars of {jars.title} could not be fetched (Ivy ended with code {ivy.returncode}). "
            "Check the network; set proxies in JAVA_OPTS (-Dhttps.proxyHost=... -Dhttps.proxyPort=...) and other "
            "repositories in an Ivy settings file (STREAMS_IVY_SETTINGS). Ivy's last lines:\n" + "\n".join(telling)
        )


def _check(jars: JarSet, folder: Path) -> None:
    """Rejects a set of jars in which a required library is missing or a jar is damaged."""
    found = sorted(folder.glob("*.jar"))
    missing = [prefix for prefix in jars.required if not any(jar.name.startswith(prefix) for jar in found)]
    damaged = [jar.name for jar in found if not zipfile.is_zipfile(jar)]
    if missing or damaged:
        raise JarFetchError(
            f"What was fetched into {folder} is not whole: missing {missing}, damaged {damaged}. Remove the folder "
            f"{cache_dir()} and run: {jars.fetched_by}"
        )
