"""Every command that a page names exists, with the options that it is given there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from streams.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(text: str) -> list[str]:
    """The commands of a page: in code within a line, and in blocks, also behind a pipe."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if language in ("", "console")]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"`(streams [a-zA-Z][^`]+)`", prose.replace("\n", " "))
    for block in blocks:
        found += re.findall(r"(?:^|\$ |&& |\| )(streams [a-z][^&|#\n<>]+)", block, re.MULTILINE)
    return [" ".join(one.split()) for one in found if "\\" not in one and "…" not in one]


def problem(line: str) -> str | None:
    """What is wrong with a command."""
    group: Any = typer.main.get_command(app)
    _, *words = line.replace("'", "").split()
    if not words or words[0].startswith("-"):
        return None
    # `streams dlq list, show` and `streams NAME` name commands, they do not give one.
    name, *rest = words[0].rstrip(","), *words[1:]
    if name.isupper():
        return None
    if name not in COMMANDS:
        return f"no command {name}"
    command = group.resolve_command(group.context_class(group), [name])[1]
    if getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        sub = rest.pop(0).rstrip(",")
        if sub not in command.commands:
            return f"no command {name} {sub}"
        command = command.commands[sub]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    wrong = [word for word in rest if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in known]
    return f"no option {wrong}" if wrong else None


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_every_command_and_option_exists(path: Path) -> None:
    wrong = {line: found for line in commands(path.read_text(encoding="utf-8")) if (found := problem(line))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("streams fly app.py", "no command fly"),
        ("streams topic fly", "no command topic fly"),
        ("streams run app.py --fly", "no option ['--fly']"),
        ("streams run app.py --available-now -c app.toml", None),
    ],
)
def test_what_does_not_exist_is_found(line: str, found: str | None) -> None:
    assert problem(line) == found
