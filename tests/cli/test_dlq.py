"""`streams dlq` refuses what it cannot know before it asks any cluster. (What it does: `spark/test_retries.py`.)"""

import pytest


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
