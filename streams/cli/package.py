"""`streams package`: this environment as an archive for the hosts of a cluster, tried before anybody depends on it.

The archive goes to `--archives` of spark-submit, or is unpacked on each host. It is tried where a host would have it: unpacked in a
folder of its own, without this environment, where it has to import what the program imports and build its topology.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from streams.cli.command import command, option
from streams.cli.options import Target
from streams.cli.target import load_topology
from streams.errors import ConfigError

_FROM_HERE = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "SPARK_HOME"})


@command
def package(
    target: Target,
    output: Annotated[Path, option("The archive to write, a .tar.gz.", "--output", "-o")] = Path("environment.tar.gz"),
    force: Annotated[bool, option("Replace the archive if it exists.")] = False,
) -> None:
    """Pack this Python environment for spark-submit's --archives, and try the program with what was packed."""
    load_topology(target)
    pack(output, force=force)
    try_out(output, target)
    typer.echo(f"{output}: {decimal(output.stat().st_size)}. The program's topology was built with what is in it.")
    typer.echo(
        f"next: PYSPARK_PYTHON=./environment/bin/python spark-submit --archives {output}#environment ..., "
        "or unpack it on every host, at the same path"
    )


def pack(output: Path, *, force: bool) -> None:
    """Packs the environment that runs this.

    Raises:
        ConfigError: It cannot be packed: the text says why.
    """
    try:
        import venv_pack
    except ImportError:
        raise ConfigError("the package venv-pack makes the archive, and is missing: pip install venv-pack") from None
    if sys.prefix == sys.base_prefix:
        raise ConfigError(
            f"{sys.executable} is in no virtual environment: make one, install what the program needs, and use its `streams`"
        )
    if editable := [one.name for one in distributions() if _is_editable(one)]:
        raise ConfigError(
            f"{', '.join(editable)} is installed as editable, so its files are elsewhere: install it without -e"
        )
    if not output.name.endswith(".tar.gz"):
        raise ConfigError(
            f"--output {output}: the name has to end with .tar.gz, because Spark unpacks the archive by it"
        )
    try:
        # A higher level takes minutes and makes it a tenth smaller: most of it is compressed already.
        venv_pack.pack(prefix=sys.prefix, output=str(output), force=force, compress_level=1)
    except venv_pack.VenvPackException as error:
        raise ConfigError(f"this environment cannot be packed: {error}") from error


def _is_editable(found: Distribution) -> bool:
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def try_out(archive: Path, target: str) -> None:
    """Builds the program's topology with an unpacked archive alone.

    Raises:
        ConfigError: That fails; the text is that of the Python in the archive.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _FROM_HERE}
    file, colon, name = target.partition(":")
    # A module has to be in the archive; a file goes to the cluster by itself.
    wanted = f"{Path(file).resolve()}{colon}{name}" if file.endswith(".py") else target
    with tempfile.TemporaryDirectory(prefix="streams-package-") as folder:
        subprocess.run(["tar", "-xzf", archive.resolve(), "-C", folder], check=True)
        # From there, since Python looks for modules in the working directory, too.
        describe = [str(Path(folder, "bin", "python")), "-m", "streams", "describe", wanted]
        tried = subprocess.run(describe, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise ConfigError(
            f"{archive} lacks something that {target} needs. What its Python said:\n{tried.stderr.strip()[-2000:]}"
        )
