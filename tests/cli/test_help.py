"""Every command explains itself."""

import re
from pathlib import Path

import pytest

from streams.cli.main import COMMANDS

README = Path(__file__).parents[2] / "README.md"
BROKER_COMMANDS = ("fetch", "start", "stop", "status", "topics", "create", "send", "read")


def test_the_command_lists_all_commands(streams) -> None:
    text = streams("--help").output
    for name, command in COMMANDS.items():
        assert re.search(rf"{name}\s+{re.escape(command.help)}", text), name


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *(("broker", name) for name in BROKER_COMMANDS)])
def test_every_command_and_option_has_help(streams, command: tuple[str, ...]) -> None:
    result = streams(*command, "--help")
    assert result.exit_code == 0, result.output
    assert f"Usage: streams {' '.join(command)}" in result.output
    # In the help's tables, what has no text of its own ends in its metavar or type.
    rows = re.findall(r"^│ (?:\* )?\s*(--[\w-]+.*?)│$", result.output, re.M)
    assert [row for row in rows if not re.search(r"\s{2}\S.*[.\])]\s*$", row)] == []


def test_an_unknown_command_is_told(streams) -> None:
    result = streams("ruin")
    assert result.exit_code == 2
    assert "No such command 'ruin'" in result.output


@pytest.mark.skipif(not README.exists(), reason="there is no README yet")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    assert f"streams {command}" in README.read_text(encoding="utf-8")
