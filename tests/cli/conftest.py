"""The command `streams` in this process, on a wide terminal, without settings of the person who runs the tests."""

import os
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner, Result

from streams.cli.main import app


class Command(Protocol):
    """Runs `streams` with some arguments."""

    def __call__(self, *arguments: object, answer: str = "") -> Result: ...


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, in an empty folder: no embedded broker of somebody else is found there."""
    for name in os.environ:
        if name.startswith("STREAMS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, answer: str = "") -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer, prog_name="streams")

    return run
