"""The README is true: its program gives what its table says, its figures are those of the result files (packaging/ plays it)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from benchmarks.harness import front
from benchmarks.harness.result import RESULTS, read
from streams.cli.main import COMMANDS, app
from streams.drills.cases import DRILLS
from tests.docs.page import examples

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


def test_the_program_gives_what_the_table_says() -> None:
    (example,) = examples(README)
    assert example.run("strict") == example.expected("out")


def test_the_front_page_is_short() -> None:
    assert len(README.splitlines()) <= 110


def test_no_table_has_figures_of_several_machines_or_commits() -> None:
    found = front.answers([read(path) for path in sorted(RESULTS.glob("*.json"))])
    for part in front.table(found).split("\n\n"):
        titles = {line.split(" | ")[0].removeprefix("| ") for line in part.splitlines()[2:]}
        assert len({one.where for one in found if one.question.title in titles}) == 1, part


def test_every_command_is_named() -> None:
    for command in COMMANDS:
        assert f"streams {command}" in COMMANDS_PAGE, command


@pytest.mark.parametrize("line", re.findall(r"(?:^\$ |&& |\| )(streams [^&|\n]+?)(?= &&| \||$)", README, re.MULTILINE))
def test_every_command_can_be_given_like_that(line: str) -> None:
    command: typer.core.TyperCommand | TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]
    name, *arguments = shlex.split(line)
    context = None
    while True:
        # Raises if an argument is too many, missing or unknown; nothing runs.
        context = command.make_context(name, list(arguments), parent=context)
        if not isinstance(command, TyperGroup):
            break
        found, sub, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        assert sub is not None
        name, command = found, sub  # type: ignore[assignment]


def test_every_page_that_is_linked_exists() -> None:
    linked = re.findall(r"\]\(((?!http)[^)#]+)", README)
    assert len(linked) > 20
    for path in linked:
        assert (ROOT / path).exists(), path


def test_the_figures_are_those_of_the_result_files() -> None:
    """`python -m benchmarks report` writes them."""
    answers = front.answers([read(path) for path in sorted(RESULTS.glob("*.json"))])
    assert front.between_marks(README, front.BEGIN, front.END, front.table(answers)) == README
    assert {one.times_better >= 1 for one in answers} == {True, False}, "losses stand next to wins"


def test_the_number_of_drills_is_right() -> None:
    assert f"in {len(DRILLS)} ways" in README
