"""`streams init`: a project to begin with, out of the files in `templates`; `APPLICATION` in them stands for its name."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.command import argument, command, option
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
"""Files that all templates have in common: the name in a project, and the one in the folder `shared`."""


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
    """Create a project: a topology (app.py), its test (test_app.py), settings (streams.toml), a README, and what builds an image.

    The folder's name is the application id. The test passes without changes: pytest FOLDER.
    """
    name = folder.absolute().name
    if (wrong := wrong_application_id(name)) is not None:
        raise ConfigError(f"The folder's name becomes the application id, and {name!r} cannot be one: {wrong}.")
    files = {file: _TEMPLATES / template.value / file for file in _OWN}
    files |= {file: _TEMPLATES / "shared" / shared for file, shared in _SHARED.items()}
    there = [file for file in files if (folder / file).exists()]
    if there:
        raise ConfigError(f"{folder} has {', '.join(there)} already: give a new folder")
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
    steps = "pytest (pip install pytest, if it is missing); README.md says how to run the application"
    typer.echo(f"next: {steps}" if folder.samefile(".") else f"next: cd {folder}, then {steps}")
