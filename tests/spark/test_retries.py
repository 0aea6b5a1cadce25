"""Retries, dead letters and pauses on real Spark and Kafka, with the commands that people use for them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from streams import KafkaStreams, Processor, Record, Retry, StreamsBuilder, StringSerde
from streams.cli.main import app
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent


class Ship(Processor):
    """Fails on `late` when it sees it for the first time, and on `never` each time."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "never" or (record.value == "late" and "-retry-" not in str(self.ctx.topic)):
            raise ValueError(f"no truck for {record.value}")
        self.ctx.forward(record)


def build(source: str, target: str, dead: str) -> Topology:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry([1, 1], dead_letters=dead, keep_order=True)
    builder.stream(source).process_values(Ship, named="ship", on_error=retry).to(target)
    return builder.build()


def test_retries_dead_letters_and_pauses(harness: Harness) -> None:
    source, target, dead = harness.topic("in"), harness.topic("out"), harness.topic("dead")
    topology = build(source, target, dead)

    def command(*words: str) -> Any:
        run = CliRunner().invoke(app, [*words, "--json", "--bootstrap-servers", harness.servers])
        assert run.exit_code == 0, run.output
        return json.loads(run.output)

    given = ["late", "a", "never", "b"]
    harness.send(source, [Sent(b"k", value.encode(), 1_000 + at, 0) for at, value in enumerate(given)])
    harness.run(topology)
    # One run reads again what it has written itself, as long as that is due.
    while len(harness.read(target)) + len(harness.read(dead)) < len(given):
        harness.run(topology)
    results = harness.read(target)
    assert [(one.value, one.timestamp, one.headers) for one in results] == [
        (b"late", 1_000, ()),
        (b"a", 1_001, ()),
        (b"b", 1_003, ()),
    ]
    (letter,) = command("dlq", "list", "--topic", dead)
    assert (letter["error"], letter["letters"], letter["origin"]) == ("ValueError", 1, f"{source}-0@2")
    shown = command("dlq", "show", letter["position"], "--topic", dead)
    assert (shown["key"], shown["value"], shown["attempts"], shown["event_time"]) == ("k", "never", 3, 1_002)

    app_id, streams = harness.application_id, KafkaStreams(topology, harness.config())
    assert list(command("pause", app_id)["paused_since"]) == [""]
    assert streams.is_paused()
    assert command("dlq", "replay", "--topic", dead, "--yes")["sent"] == 1
    assert command("dlq", "replay", "--topic", dead, "--yes")["sent"] == 0
    harness.run(topology)
    assert len(harness.read(dead)) == 1, "a paused application does nothing"
    streams.resume()
    assert command("resume", app_id)["paused_since"] == {}
    while len(harness.read(dead)) < 2:
        harness.run(topology)
    again = harness.read(dead)[1]
    assert (again.value, dict(again.headers)["__streams.retry.attempt"]) == (b"never", b"3")
    assert dict(again.headers)["__streams.errors.topic"] == source.encode()
    assert command("dlq", "purge", "--topic", dead, "--replayed", "--yes")["letters"] == 1
    assert [one["replayed"] for one in command("dlq", "list", "--each", "--topic", dead)] == [0]
