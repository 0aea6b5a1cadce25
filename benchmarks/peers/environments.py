"""Sets up what each peer needs, in a folder of its own below `build/peers`: `python -m benchmarks.peers.environments [PEER ...]`.

Python peers get a virtual environment, Kafka Streams gets its jars and its compiled programs, Spark's peers use the
project's own environment and get only Spark's Kafka connector. Nothing is installed into the project's environment or into the
system. An environment is made again when what it is made of (requirements, sources) has changed.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from state.errors import StreamsError
from streams.broker.jars import JarSet, cache_dir, class_path, fetch_jars, find_java

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "peers"
STAMP = "made-of"
FETCHED_BY = "make peers"
JVM_OPTIONS = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
"""Of Kafka Streams; `JAVA_TOOL_OPTIONS` adds others for one run."""


def jars_of(peer: str) -> JarSet:
    """The jars that a peer's `requirements.txt` names by Maven coordinates; the first one names the set."""
    modules = tuple(_coordinates(line) for line in _lines(HERE / peer / "requirements.txt"))
    _, name, version = modules[0]
    # Another list of modules makes another set: the name tells them apart.
    digest = hashlib.sha256(repr(modules).encode()).hexdigest()[:8]
    return JarSet(f"{name}-{version}-{digest}", f"{name} {version}", modules, (f"{name}-",), FETCHED_BY)


def is_made(peer: str) -> bool:
    """Whether the peer's environment exists and is made of the present requirements and sources."""
    stamp = BUILD / peer / STAMP
    return stamp.is_file() and stamp.read_text() == _made_of(peer)


def make(peer: str) -> None:
    """Makes the environment of a peer, unless it is there.

    Raises:
        subprocess.CalledProcessError: Installing or compiling failed; its output is printed.
        StreamsError: Java or the jars are missing and cannot be fetched.
    """
    if is_made(peer):
        return
    folder = BUILD / peer
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _MAKERS[peer](peer)
    (folder / STAMP).write_text(_made_of(peer))


def _make_python(peer: str) -> None:
    folder = BUILD / peer
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "-r", str(HERE / peer / "requirements.txt")], check=True)


def _make_java(peer: str) -> None:
    """Compiles the programs, and writes the script that runs them."""
    jars = jars_of(peer)
    fetch_jars(jars=jars)
    java = find_java()
    classes = BUILD / peer / "classes"
    sources = sorted(str(source) for source in (HERE / peer / "src").glob("*.java"))
    options = ["--release", "17", "-Xlint:all,-serial,-processing", "-cp", class_path(jars), "-d", str(classes)]
    subprocess.run([str(java.with_name("javac")), *options, *sources], check=True)
    command = shlex.join([str(java), *JVM_OPTIONS, "-cp", f"{classes}:{class_path(jars)}", "Main"])
    script = BUILD / peer / "run.sh"
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)


def _make_spark(peer: str) -> None:
    fetch_jars(jars=jars_of(peer))


_MAKERS: dict[str, Callable[[str], None]] = {
    "kafka-streams": _make_java,
    "spark": _make_spark,
    "quix": _make_python,
    "faust": _make_python,
    "bytewax": _make_python,
}
"""How each environment is made. Spark's peers share one."""


def _made_of(peer: str) -> str:
    """A digest of all that the environment is made of."""
    # The jars and the folder are in the script of Java programs; the Python is in each virtual environment.
    digest = hashlib.sha256(repr((sys.version, BUILD, cache_dir(), JVM_OPTIONS)).encode())
    for path in [HERE / peer / "requirements.txt", *sorted((HERE / peer).glob("src/*.java"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _coordinates(line: str) -> tuple[str, str, str]:
    organisation, name, version = line.split(":")
    return organisation, name, version


def main(peers: Annotated[list[str] | None, typer.Argument(help="The environments; default: all.")] = None) -> None:
    """Set up the environments of the benchmark's peers below `build/peers`."""
    failed = []
    for peer in peers or list(_MAKERS):
        if peer not in _MAKERS:
            raise typer.BadParameter(f"there is no environment '{peer}', only {', '.join(_MAKERS)}")
        typer.echo(f"{peer}: {'is there' if is_made(peer) else 'setting up'}")
        try:
            make(peer)
        except (subprocess.CalledProcessError, OSError, StreamsError) as error:
            typer.echo(f"{peer}: failed: {error}", err=True)
            failed.append(peer)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
