"""The README's code runs and prints what it says, and names every command."""

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from streams.cli.main import COMMANDS, app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_topology_is_the_one_in_the_repository() -> None:
    source = (ROOT / "topologies/word_count.py").read_text(encoding="utf-8")
    assert blocks("python")[0] in source


def test_the_example_prints_what_the_readme_says() -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(blocks("python")[1], "README.md", "exec"), {})
    assert f"```\n{printed.getvalue()}```" in README


def test_every_command_is_named() -> None:
    for command in COMMANDS:
        assert f"streams {command}" in README, command


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for line in README.splitlines()]
    return [line for line in lines if re.match(r"streams [a-z]+( |$)", line)]


@pytest.mark.parametrize("line", commands())
def test_every_command_can_be_given_like_that(line: str) -> None:
    command, (name, *arguments) = typer.main.get_command(app), shlex.split(line)
    context = None
    while True:
        # Raises if an argument is too many, missing or unknown; nothing runs.
        context = command.make_context(name, list(arguments), parent=context)
        if not isinstance(command, TyperGroup):
            break
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None
        assert command is not None


def test_every_file_named_exists() -> None:
    for path in re.findall(r"`((?:docs|topologies|benchmarks|tests)/[\w/.]+)`", README):
        assert (ROOT / path).exists(), path
