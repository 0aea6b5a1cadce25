"""A project: `streams init` creates one, and `streams package` packs its environment for a cluster.

`init` writes the files in `templates`; `APPLICATION` in them stands for the project's name. `package` makes an archive for
`--archives` of spark-submit, or to be unpacked on each host. It is tried as a host would use it: unpacked in a separate folder,
without this environment, it has to import the program and build its topology.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from enum import Enum
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from streams.cli.command import argument, command, option
from streams.cli.options import Target
from streams.cli.target import load_topology
from streams.errors import ConfigError
from streams.topology.naming import wrong_application_id

_TEMPLATES = Path(__file__).with_name("templates")
_OWN = ("app.py", "test_app.py", "README.md")
_SHARED = {
    "streams.toml": "streams.toml",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "compose.yaml": "compose.yaml",
    ".github/workflows/tests.yml": "ci.yml",
    ".gitignore": "gitignore",
    ".dockerignore": "dockerignore",
}
"""Files that all templates share: the name in a project, and the name in the folder `shared`."""


class Template(str, Enum):
    """A program to begin with: its folder in `templates`."""

    PLAIN = "plain"
    JOINS = "joins"
    LAKE = "lake"
    TYPED = "typed"


_TOPICS = {
    Template.PLAIN: "visits visits-by-minute",
    Template.JOINS: "customers orders payments sales revenue-by-region",
    Template.LAKE: "visits",
    Template.TYPED: "orders alerts",
}
"""The topics that a program reads and writes."""


@command
def init(
    folder: Annotated[Path, argument("The project's folder: a new one, or one without these files.", metavar="FOLDER")],
    template: Annotated[
        Template,
        option(
            "What the program does: count visits (plain), join orders and payments (joins), write Delta tables (lake), or "
            "work with dataclasses (typed).",
            "--template",
            "-t",
        ),
    ] = Template.PLAIN,
) -> None:
    """Create a project: a topology (app.py), its test (test_app.py), settings (streams.toml), a README, and the files for an image.

    The folder's name is the application id. The test passes without changes: pytest FOLDER.
    """
    name = folder.absolute().name
    if (wrong := wrong_application_id(name)) is not None:
        raise ConfigError(f"The folder's name becomes the application id, but {name!r} is not a valid id: {wrong}.")
    files = {file: _TEMPLATES / template.value / file for file in _OWN}
    files |= {file: _TEMPLATES / "shared" / shared for file, shared in _SHARED.items()}
    there = [file for file in files if (folder / file).exists()]
    if there:
        raise ConfigError(f"{folder} already has {', '.join(there)}: give a new folder")
    words = {
        "APPLICATION": name,
        "PROJECT": name.strip("._-"),
        "EXTRAS": "spark,delta" if template is Template.LAKE else "spark",
        "TOPICS": _TOPICS[template],
    }
    for file, source in files.items():
        text = re.sub("|".join(words), lambda found: words[found.group()], source.read_text(encoding="utf-8"))
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    typer.echo(f"{name}: {', '.join(files)} written to {folder.absolute()}")
    steps = "pytest (pip install pytest, if it is missing); README.md shows how to run the application"
    typer.echo(f"next: {steps}" if folder.samefile(".") else f"next: cd {folder}, then {steps}")


# --- Packing

_FROM_HERE = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "SPARK_HOME"})


@command
def package(
    target: Target,
    output: Annotated[Path, option("The archive to write, a .tar.gz.", "--output", "-o")] = Path("environment.tar.gz"),
    force: Annotated[bool, option("Replace the archive if it exists.")] = False,
) -> None:
    """Pack this Python environment for spark-submit's --archives, and try the program with the archive."""
    load_topology(target)
    pack(output, force=force)
    try_out(output, target)
    typer.echo(
        f"{output}: {decimal(output.stat().st_size)}. The program's topology could be built from the archive alone."
    )
    typer.echo(
        f"next: PYSPARK_PYTHON=./environment/bin/python spark-submit --archives {output}#environment ..., "
        "or unpack it on every host, at the same path"
    )


def pack(output: Path, *, force: bool) -> None:
    """Packs the Python environment that runs this command."""
    try:
        import venv_pack
    except ImportError:
        raise ConfigError("the package venv-pack, which makes the archive, is missing: pip install venv-pack") from None
    if sys.prefix == sys.base_prefix:
        raise ConfigError(
            f"{sys.executable} is not in a virtual environment: create one, install what the program needs, and use its `streams`"
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
    """Builds the program's topology with nothing but an unpacked archive."""
    environment = {name: value for name, value in os.environ.items() if name not in _FROM_HERE}
    file, colon, name = target.partition(":")
    # A module has to be in the archive; a file goes to the cluster by itself.
    wanted = f"{Path(file).resolve()}{colon}{name}" if file.endswith(".py") else target
    with tempfile.TemporaryDirectory(prefix="streams-package-") as folder:
        subprocess.run(["tar", "-xzf", archive.resolve(), "-C", folder], check=True)
        # Run from there, because Python also looks for modules in the working directory.
        describe = [str(Path(folder, "bin", "python")), "-m", "streams", "describe", wanted]
        tried = subprocess.run(describe, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise ConfigError(
            f"{archive} lacks something that {target} needs. The output of its Python:\n{tried.stderr.strip()[-2000:]}"
        )
