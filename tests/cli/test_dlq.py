"""`streams dlq` refuses what it cannot know before it asks any cluster. (What it does: `spark/test_bad_records.py`.)"""

from types import SimpleNamespace

import pytest

from streams.cli.dlq import DeadLetters, _cells
from streams.cli.output import print_table


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
    cells = _cells({**row, "letters": 1, "replayed": 0, "last": 0, "position": "0:0"})
    print_table([""] * len(cells), [cells])
    printed = capsys.readouterr().out
    assert all(word in printed for word in message.split())


def test_a_topic_that_does_not_exist_has_no_letters(streams, monkeypatch):
    monkeypatch.setattr("streams.cli.dlq.reachable", lambda config: config)
    nothing = SimpleNamespace(describe_topics=lambda names: {})
    monkeypatch.setattr(DeadLetters, "log", lambda self: SimpleNamespace(admin=nothing))
    run = streams("dlq", "list", "--topic", "dead-letters", "-b", "127.0.0.1:1")
    assert run.exit_code == 0, run.output
    assert "There is no topic dead-letters" in run.output
    assert "no dead letters" in run.output


def test_an_application_without_snapshots_is_an_answer(streams, monkeypatch):
    monkeypatch.setattr("streams.cli.options.reachable", lambda config: config)
    run = streams("snapshots", "topologies.word_count:build", "-a", "words", "-b", "127.0.0.1:1")
    assert (run.exit_code, "words takes no snapshots: snapshot_dir is not set" in run.output) == (0, True), run.output
