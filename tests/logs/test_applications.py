"""Applications and commands that fail before anything runs: their events, their lines, and no secret in either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from streams import ConfigError, KafkaStreams, StreamsBuilder, Topology
from streams.config import StreamsConfig
from streams.logs.events import FAILED, STARTING, Event

CANARIES = {
    "kafka": {"sasl.password": "canary-1", "ssl.key.pem": "canary-2", "security.url": "https://u:canary-3@h"},
    "spark": {"spark.hadoop.fs.s3a.secret.key": "canary-4", "spark.executorEnv.DB_PASSWORD": "canary-5"},
    "snapshot_dir": "s3://key:canary-6@bucket/x",
}
WRONG = {"spark.speculation": "true"}
"""A setting that is refused before anything is created."""


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def test_an_application_tells_its_listener_that_it_starts_and_why_it_fails(tmp_path: Path) -> None:
    events: list[Event] = []
    streams = KafkaStreams(
        topology(), application_id="app", bootstrap_servers="127.0.0.1:1", base_dir=tmp_path, spark=WRONG
    )
    streams.set_event_listener(events.append)
    with pytest.raises(ConfigError, match=r"spark\.speculation"):
        streams.run()
    assert [event.kind for event in events] == [STARTING, FAILED]
    assert {event.application for event in events} == {"app"}
    assert set(events[0].fields) == set(STARTING.fields)
    assert events[1].fields["error"]["type"] == "ConfigError"


def test_settings_are_shown_without_secrets() -> None:
    config = StreamsConfig(application_id="app", **CANARIES)
    assert "canary" not in f"{config!r} {config} {config.printable()}"
    assert config.kafka["sasl.password"] == "canary-1"


def test_an_error_of_a_command_is_a_line_of_json_if_that_is_asked_for(tmp_path: Path) -> None:
    done = process("-m", "streams", "run", "tests.cli.topology:build", "--log-format", "json", "--set", "tasks=x")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = [orjson.loads(text) for text in done.stderr.splitlines()]
    assert (line["level"], line["error"]["type"]) == ("ERROR", "ConfigError")


PROGRAM = """
from streams import KafkaStreams, StreamsBuilder
builder = StreamsBuilder()
builder.stream("in").to("out")
settings = {"bootstrap_servers": "127.0.0.1:1", "log_format": "json", "spark": {"spark.speculation": "true"}}
KafkaStreams(builder.build(), settings, application_id="app").run()
"""


@pytest.mark.slow
def test_a_program_with_json_logs_ends_with_a_line_of_json_too() -> None:
    done = process("-c", PROGRAM)
    lines = [orjson.loads(text) for text in done.stderr.splitlines()]
    assert [line.get("event") for line in lines] == ["starting", "failed", None]
    assert lines[-1]["level"] == "CRITICAL"
    assert "spark.speculation" in lines[-1]["error"]["message"]
    assert lines[-1]["error"]["stack"].startswith("Traceback")


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process without settings of the person who runs the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMS_")}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False, env=own
    )
