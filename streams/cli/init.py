"""`streams init`: a project to begin with, out of the files in `templates`; `APPLICATION` in them stands for its name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.command import argument, command, option
from streams.errors import ConfigError
from streams.topology.naming import wrong_application_id

_TEMPLATES = Path(__file__).with_name("templates")
FILES = ("app.py", "test_app.py", "streams.toml", "README.md")
"""What a project has: the template's own file, or that of all templates."""


class Template(str, Enum):
    """A program to begin with: its folder in `templates`."""

    PLAIN = "plain"
    JOINS = "joins"
    LAKE = "lake"
    TYPED = "typed"


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
    """Create a project: a topology (app.py), its test (test_app.py), settings (streams.toml) and a README.

    The folder's name is the application id. The test passes without changes: pytest FOLDER.
    """
    name = folder.absolute().name
    if (wrong := wrong_application_id(name)) is not None:
        raise ConfigError(f"The folder's name becomes the application id, and {name!r} cannot be one: {wrong}.")
    there = [file for file in FILES if (folder / file).exists()]
    if there:
        raise ConfigError(f"{folder} has {', '.join(there)} already: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        own = _TEMPLATES / template.value / file
        text = (own if own.exists() else _TEMPLATES / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace("APPLICATION", name), encoding="utf-8")
    typer.echo(f"{name}: {', '.join(FILES)} written to {folder.absolute()}")
    steps = "pytest (pip install pytest, if it is missing); README.md says how to run the application"
    typer.echo(f"next: {steps}" if folder.samefile(".") else f"next: cd {folder}, then {steps}")
