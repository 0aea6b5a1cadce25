"""What a shell completes: commands, options, stores of a topology, and topics of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from tests.conftest import TopicFactory

ROOT = Path(__file__).parents[2]


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a command line."""
    words = f"streams {line}"
    last = str(len(words.split(" ")) - 1)
    environment = {**os.environ, "_STREAMS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
    command = [sys.executable, "-c", "from streams.cli.main import app; app(prog_name='streams')"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
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
def test_a_word_is_completed(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_topics_are_those_of_the_cluster_of_the_line(broker: EmbeddedBroker, topic: TopicFactory) -> None:
    name = topic()
    for line in ("topic read -b {}", "topic describe -b {}", "dlq list -b {} --topic", "transactions -b {} --topic"):
        assert completed(f"{line.format(broker.bootstrap_servers)} {name[:-1]}") == [name], line
