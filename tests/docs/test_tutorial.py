"""The tutorials work as they are written. The first one is played from the wheel, too (tests/packaging)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.cli.main import app
from tests.docs.console import play, steps

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SECOND = (ROOT / "docs" / "start" / "second.md").read_text(encoding="utf-8")


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_every_command_of_the_first_prints_what_the_page_says(tmp_path: Path) -> None:
    play(TUTORIAL, tmp_path)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
def test_every_command_of_the_second_prints_what_the_page_says(tmp_path: Path) -> None:
    play(SECOND, tmp_path)


def test_the_quick_start_is_a_part_of_the_tutorial() -> None:
    rest = iter(steps(TUTORIAL))
    for command, expected in steps((ROOT / "README.md").read_text(encoding="utf-8")):
        assert any(command == one and set(expected) <= set(lines) for one, lines in rest), command


def test_the_program_is_that_of_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["init", "shop"]).exit_code == 0
    code = TUTORIAL.partition("```python\n")[2].partition("```")[0]
    lines = [line.partition("  #")[0].strip() for line in code.splitlines()]
    program = [line.strip() for line in (tmp_path / "shop" / "app.py").read_text(encoding="utf-8").splitlines()]
    first = program.index(lines[0])
    assert program[first : first + len(lines)] == lines
