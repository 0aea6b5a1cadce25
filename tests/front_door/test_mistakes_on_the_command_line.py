"""What a newcomer types, and what the command line answers; nothing here needs a cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.front_door.newcomer import matches

PROGRAM = """
from streams import StreamsBuilder

def build():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count("counts").to_stream().to("out")
    return builder.build()
"""
NOWHERE = "-b 127.0.0.1:1"

COMMANDS: list[tuple[str, int, str]] = [
    # The topology: a file, a module, or a name in one.
    ("describe newcomer.py", 0, "topics: [in]"),
    ("describe newcomer", 0, "topics: [in]"),
    ("describe newcomer:build", 0, "topics: [in]"),
    ("describe newcomers.py", 1, "there is no file newcomers.py. Did you mean 'newcomer.py'?"),
    ("describe newcomer:biuld", 1, "has no 'biuld'. Did you mean 'build'?"),
    # Names of commands, options and settings.
    ("descirbe newcomer.py", 2, "Did you mean 'describe'?"),
    ("start newcomer.py", 2, "No such command 'start'. Did you mean 'state' or 'status'?"),
    ("topic crate", 2, "Did you mean 'create'?"),
    ("run newcomer.py --task 3", 2, "No such option: --task (Possible options: --tasks)"),
    ("run newcomer.py --set taks=3", 1, "there is no such setting. Did you mean 'tasks'?"),
    ("run newcomer.py --set spark.spark.sql.x=3", 1, "Spark has no such setting; write spark.sql.x"),
    # Values of settings, and where they come from.
    ("run newcomer.py --trigger-interval-ms 5s --explain", 0, "trigger_interval_ms = 5000 # command line"),
    ("run newcomer.py --trigger-interval-ms soon --explain", 1, "write 500ms, 5s, 10m, 1h30m or 7d"),
    ("run newcomer.py --bad-records ignore", 2, "'ignore' is not one of 'fail', 'skip', 'dlq'"),
    ("run newcomer.py --processing-policy dlq --explain", 1, "an error policy is 'dlq', but dead_letter_topic is not set"),
    ("run newcomer.py --explain --json", 0, '"value": '),
    ("config newcomer.py", 0, "# "),
    # The application's id stands in the same place everywhere.
    (f"reset -a orders --dry-run {NOWHERE}", 1, "Kafka at 127.0.0.1:1 did not answer"),
    (f"reset orders --dry-run {NOWHERE}", 1, "Kafka at 127.0.0.1:1 did not answer"),
    ("describe newcomer.py --json", 0, '"'),
    ("diff newcomer.py newcomer.py", 1, "streams describe --format json"),
    # What was missing.
    ("check newcomer.py", 0, "nothing was found"),
    ("topic send --help", 0, "--timestamp … --header … --key-serde"),
    ("topic read --help", 0, "--follow … --limit … --offset … --partition … --timestamps … --headers … --json … --value-serde"),
    ("topic create --help", 0, "--replication … --config"),
    ("topic delete --help", 0, "Delete"),
    ("status --help", 0, "how far an application is behind"),
    ("init --help", 0, "project"),
    ("run --help", 0, "--deserialization-policy … --processing-policy … --production-policy"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def program(streams: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program in the working directory; nobody waits long for a cluster that does not answer."""
    (tmp_path / "newcomer.py").write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("streams.cluster.admin.CONNECT_S", 0.5)
    yield
    sys.modules.pop("newcomer", None)


@pytest.mark.parametrize(("line", "code", "says"), COMMANDS, ids=[line for line, *_ in COMMANDS])
def test_a_command_works_or_says_what_to_write(streams, line: str, code: int, says: str) -> None:
    result = streams(*line.split())
    output = re.sub(r"[\s│]+", " ", result.output)
    assert (result.exit_code, matches(says, output)) == (code, True), result.output


@pytest.mark.parametrize("command", ["run", "reset", "diff", "topic send", "describe"])
def test_no_option_looks_like_a_choice_of_braces(streams, command: str) -> None:
    assert not re.search(r"\{[A-Z]|<bool>", streams(*command.split(), "--help").output)
