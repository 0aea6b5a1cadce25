"""The programs of docs/howto run as they are printed; only addresses and a module that protoc would make are others."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams import JsonSerde, StreamsBuilder, Suppressed, TimeWindows
from streams.broker import EmbeddedBroker
from streams.testing import TopologyTestDriver
from tests.serdes.registry_server import running

FOLDER = Path(__file__).parents[2] / "docs" / "howto"


def blocks(page: str) -> list[str]:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"```py\n((?:(?!```).)*)```", text, re.DOTALL)


def large_orders() -> Any:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value_serde=JsonSerde())
    orders.filter(lambda order: order["amount"] > 100).to("large-orders")
    return builder.build()


def test_a_breakpoint_stops_in_a_function(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stopped: list[None] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stopped.append(None))
    exec(compile(blocks("debug")[0], "debug", "exec"), {"__name__": "debug"})
    assert stopped == [None]
    assert "('ann', {'amount': 500})" in capsys.readouterr().out


def test_a_record_is_played_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"key": "ann", "value": json.dumps({"amount": 500}), "timestamp": 1_700_000_000_000}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    app = ModuleType("app")
    app.__dict__["build"] = large_orders
    monkeypatch.setitem(sys.modules, "app", app)
    exec(compile(blocks("debug")[1], "debug", "exec"), {})
    assert "('ann', {'amount': 500})" in capsys.readouterr().out


def test_a_window_closes_when_time_moves_on(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder()
    counts = (
        builder.stream("in", value_serde=JsonSerde())
        .group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1)))
        .count()
        .suppress(Suppressed.until_window_closes())
    )
    counts.to_stream().map(lambda window, count: (window.key, count)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        space = {"driver": driver, "i": driver.create_input_topic("in"), "o": driver.create_output_topic("out")}
        exec(compile(blocks("no-results")[0], "no-results", "exec"), space)
    assert capsys.readouterr().out == "[]\n[('a', 1)]\n1\n"


def test_a_program_with_avro_and_a_registry_runs() -> None:
    avro, protobuf, login = blocks("schema-registry")
    with running() as registry:
        # A dataclass looks its annotations up in its module.
        space = sys.modules.setdefault("howto_avro", ModuleType("howto_avro")).__dict__
        exec(compile(avro.replace("http://localhost:8081", registry.url), "schema-registry", "exec"), space)
        with TopologyTestDriver(space["build"]()) as driver:
            orders = driver.create_input_topic("orders")
            for amount in (50, 500):
                orders.pipe_input("a", space["Order"]("tea", amount))
            found = driver.create_output_topic("large-orders").read_values_to_list()
    assert found == [space["Order"]("tea", 500)]
    for other in (protobuf, login):
        compile(other, "schema-registry", "exec")


def test_records_are_sent_and_read_from_python(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"lines-{uuid4().hex[:8]}"
    with KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.create_topics([TopicSpec(topic, 1)])
    for code in blocks("python-clients"):
        own = code.replace("localhost:9092", broker.bootstrap_servers).replace('"lines"', f'"{topic}"')
        exec(compile(own.replace('"a-look"', f'"look-{topic}"'), "python-clients", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["a {'text': 'to be or not to be'}", "a {'text': 'be quick'}"]
