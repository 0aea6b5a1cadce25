"""Every command explains itself."""

import re
from pathlib import Path

import pytest

from streams.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BROKER_COMMANDS = ("fetch", "start", "stop", "status")
TOPIC_COMMANDS = ("create", "list", "describe", "send", "read", "delete")
DRILL_COMMANDS = ("list", "run")
EVERY = [
    *((name,) for name in COMMANDS),
    *(("broker", name) for name in BROKER_COMMANDS),
    *(("topic", name) for name in TOPIC_COMMANDS),
    *(("drill", name) for name in DRILL_COMMANDS),
]
WITH_JSON = [
    *(
        (name,)
        for name in (
            "check",
            "config",
            "describe",
            "diff",
            "replica",
            "reset",
            "restore",
            "run",
            "snapshots",
            "state",
            "status",
        )
    ),
    *(("topic", name) for name in ("list", "describe", "send", "read")),
    *(("drill", name) for name in DRILL_COMMANDS),
    ("broker", "status"),
]


def test_the_command_lists_all_commands(streams) -> None:
    text = streams("--help").output
    for name, command in COMMANDS.items():
        assert re.search(rf"{name}\s+{re.escape(command.help)}", text), name


@pytest.mark.parametrize("command", EVERY)
def test_every_command_and_option_has_help(streams, command: tuple[str, ...]) -> None:
    result = streams(*command, "--help")
    assert result.exit_code == 0, result.output
    assert f"Usage: streams {' '.join(command)}" in result.output
    # In the help's tables, what has no text of its own ends in its metavar or type.
    rows = re.findall(r"^│ (?:\* )?\s*(--[\w-]+.*?)│$", result.output, re.M)
    assert [row for row in rows if not re.search(r"\s{2}\S.*[.\])]\s*$", row)] == []


@pytest.mark.parametrize("command", [(), *EVERY])
def test_help_has_neither_braces_nor_types_of_flags(streams, command: tuple[str, ...]) -> None:
    text = streams(*command, "--help").output
    assert not re.search(r"[{}]|<bool>|<str>", re.sub(r'\{"[^│]*', "", text)), text


@pytest.mark.parametrize("command", WITH_JSON)
def test_what_has_a_result_gives_it_as_json(streams, command: tuple[str, ...]) -> None:
    assert re.search(r"--json\s", streams(*command, "--help").output)


@pytest.mark.parametrize(
    "command", ["adopt", "config", "replica", "reset", "restore", "run", "snapshots", "state", "status"]
)
def test_options_of_an_application_are_the_same_everywhere(streams, command: str) -> None:
    text = streams(command, "--help").output
    for option in ("--application-id", "--config", "--set", "--base-dir", "--bootstrap-servers", "--property"):
        assert re.search(rf"{option}\s", text), option


@pytest.mark.parametrize("code", ["0 done", "1 it failed", "2 the command line is wrong", "3 the answer is no"])
def test_the_help_tells_the_exit_codes(streams, code: str) -> None:
    assert code in " ".join(streams("--help").output.split())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("ruin",), "No such command 'ruin'. Did you mean 'run'?"),
        (("foo",), "No such command 'foo'."),
        (("topic", "raed"), "No such command 'raed'. Did you mean 'read'?"),
        (("run", "--taks", "3"), "No such option: --taks"),
    ],
)
def test_a_misspelt_command_is_asked_about(streams, wrong: tuple[str, ...], said: str) -> None:
    result = streams(*wrong)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_commands_has_every_command(command: str) -> None:
    assert f"`streams {command}" in PAGE.read_text(encoding="utf-8")
