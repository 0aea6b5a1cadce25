"""What a shell completes: commands, options, stores of a topology, and topics of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from streams.broker import EmbeddedBroker
from streams.cli.main import app
from tests.conftest import TopicFactory

Complete = Callable[[str], list[str]]


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Complete:
    """What bash is offered for the last word of a command line."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # The command has its own.

    def complete(line: str) -> list[str]:
        words = f"streams {line}"
        asked = {
            "_STREAMS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        for name, value in asked.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            app(prog_name="streams")
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("resc", ["rescale"]),
        ("run app.py --availab", ["--available-now"]),
        ("state tests.cli.topology:build to", ["totals"]),
        ("replica tests.cli.topology:build --store to", ["totals"]),
        ("state no.such.module to", []),
        ("topic read -b 127.0.0.1:1 x", []),
    ],
)
def test_a_word_is_completed(completed: Complete, line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_topics_are_those_of_the_cluster_of_the_line(
    completed: Complete, broker: EmbeddedBroker, topic: TopicFactory
) -> None:
    name = topic()
    for line in ("topic read -b {}", "topic describe -b {}", "dlq list -b {} --topic", "transactions -b {} --topic"):
        assert completed(f"{line.format(broker.bootstrap_servers)} {name[:-1]}") == [name], line
