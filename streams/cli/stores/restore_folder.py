"""The folder that a restore writes to: new or empty, or one that a restore of the same application has left in part."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from state.tables.private_folder import make_private, write_private
from streams.errors import ConfigError

INCOMPLETE = "restore.incomplete"
"""Name of a file with the application's id, while the folder's state is not complete."""


@contextmanager
def restore_folder(
    given: Path | None, base_dir: Path, application_id: str, word: str = "restored", keep: bool = True
) -> Iterator[Path]:
    """The folder, marked as incomplete within the context; after an error it stays so, and another restore can continue in it.

    Raises:
        ConfigError: The folder has other content.
    """
    folder = _next_name(base_dir.absolute(), word, application_id) if given is None else given.absolute()
    _check(folder, given, application_id)
    make_private(folder)
    note = folder / INCOMPLETE
    write_private(note, application_id.encode())
    try:
        yield folder
    except BaseException:
        typer.echo(f"Not complete. The same command with --into {folder} continues from here.", err=True)
        raise
    note.unlink()
    if given is None and not keep:
        shutil.rmtree(folder)


def _next_name(base_dir: Path, word: str, application_id: str) -> Path:
    number = 1
    while (folder := base_dir / f"{word}-{application_id}-{number}").exists():
        number += 1
    return folder


def _check(folder: Path, given: Path | None, application_id: str) -> None:
    if not folder.exists():
        return
    if folder.is_dir():
        note = folder / INCOMPLETE
        if not any(folder.iterdir()) or (note.exists() and note.read_text(encoding="utf-8") == application_id):
            return
    raise ConfigError(f"{given} is not an empty folder; a restore does not mix with what is there")
