"""`streams dlq` refuses what it cannot know before it asks any cluster. (What it does: `spark/test_retries.py`.)"""

import pytest

from streams.cli.dlq.list import _print


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list"], "Name a topology"),
        (["purge", "--topic", "dlq"], "how far?"),
        (["purge", "--topic", "dlq", "--all", "--replayed"], "how far?"),
        (["purge", "--topic", "dlq", "--all", "--json"], "--json cannot ask"),
        (["replay", "--topic", "dlq", "--json"], "--json cannot ask"),
        (["list", "--topic", "dlq"], "No Kafka cluster is given"),
    ],
)
def test_mistakes(streams, words, says):
    run = streams("dlq", *words)
    assert run.exit_code == 1
    assert says in run.output


@pytest.mark.parametrize("command", [["dlq", "replay"], ["dlq", "purge"], ["dlq", "list"], ["dlq", "show"], ["pause"]])
def test_every_command_has_help(streams, command):
    run = streams(*command, "--help")
    assert run.exit_code == 0
    assert "Usage: streams" in run.output


def test_a_list_shows_the_whole_message(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    message = " ".join(f"word{number}" for number in range(40))
    row = {"topic": "dlq", "error": "ValueError", "message": message, "stage": "processing", "origin": "in-0@1"}
    _print([{**row, "letters": 1, "replayed": 0, "last": 0, "position": "0:0"}])
    printed = capsys.readouterr().out
    assert all(word in printed for word in message.split())
