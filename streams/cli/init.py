"""`streams init`: a project to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.skeleton import FILES
from streams.errors import ConfigError
from streams.topology.application_id import wrong_application_id


@command
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The project's folder: a new one, or one without these files.")
    ],
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
    for file, text in FILES.items():
        (folder / file).write_text(text.replace("APPLICATION", name), encoding="utf-8")
    typer.echo(f"{name}: {', '.join(FILES)} written to {folder.absolute()}")
    steps = "pytest (pip install pytest, if it is missing); README.md says how to run the application"
    typer.echo(f"next: {steps}" if folder.samefile(".") else f"next: cd {folder}, then {steps}")
