"""What newcomers met in their first hour: each is one sentence, or simply works."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from state.errors import TopicNotFoundError
from streams import (
    ConfigError,
    Consumed,
    JsonSerde,
    KafkaStreams,
    Named,
    Processor,
    SerdeError,
    Stores,
    StreamsBuilder,
    StringSerde,
    Topology,
    TopologyError,
)
from streams.broker import cluster, processes
from streams.cli import reset
from streams.driver.launch.settings import prepare_environment
from streams.testing import TopologyTestDriver

REPOSITORY = Path(__file__).parents[2]
TEMPLATES = REPOSITORY / "streams" / "cli" / "templates"


@dataclass
class Customer:
    name: str


def copied(serde: JsonSerde[Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(value_serde=serde)).to("out")
    return builder.build()


def test_an_editable_installation_is_a_path_that_editors_follow(tmp_path: Path) -> None:
    (flag,) = (word for word in (REPOSITORY / "Makefile").read_text().split() if word.startswith("editable_mode="))
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "setup.py").write_text("from setuptools import setup; setup(name='p', packages=['pkg'])")
    mode, value = flag.split("=")
    build = f"from setuptools import build_meta as b; b.build_editable('.', {{{mode!r}: {value!r}}})"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)], check=True, capture_output=True, text=True
    )
    assert ".pth" in listing.stdout
    assert "finder" not in listing.stdout


def test_the_first_port_of_a_new_cluster_is_kafkas_if_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cluster.RequestedCluster(nodes=1, preferred_port=9092)
    monkeypatch.setattr(processes, "_is_free", lambda port: True)
    assert asked.new().nodes[0].port == 9092
    monkeypatch.setattr(processes, "_is_free", lambda port: port != 9092)
    assert asked.new().nodes[0].port != 9092


def test_typed_topics_take_what_a_producer_would_send() -> None:
    with TopologyTestDriver(copied(JsonSerde(Customer))) as driver:
        driver.create_input_topic("in").pipe_input("c1", {"name": "Ann"})
        assert driver.create_output_topic("out").read_key_values_to_map() == {"c1": Customer("Ann")}
        with pytest.raises(SerdeError, match="cannot write an int"):
            driver.create_input_topic("in").pipe_input("c1", 5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num.stream.threads", "the threads are Spark's cores"),
        ("processing.guarantee", "exactly once, without a setting"),
        ("num.standby.replicas", "streams replica"),
        ("default.value.serde", "Consumed\\(key_serde=..., value_serde=...\\)"),
        ("processing.exception.handler", "'processing' is 'fail', 'skip' or 'dlq'"),
    ],
)
def test_settings_of_java_are_answered(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        KafkaStreams(copied(JsonSerde()), {"application_id": "a", "bootstrap_servers": "localhost:1", name: "x"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ContextualProcessor", "use Processor"),
        ("StoreBuilder", "use Stores"),
        ("QueryableStoreTypes", "store_dataframe"),
        ("LogAndContinueExceptionHandler", "processing='skip'"),
        ("To", "child='name'"),
    ],
)
def test_classes_of_java_are_answered(name: str, says: str) -> None:
    with pytest.raises(ImportError, match=says):
        exec(f"from streams import {name}")


def test_missing_topics_are_named_all_at_once() -> None:
    TopicNotFoundError.if_missing(["a"], {"a": 1})
    with pytest.raises(TopicNotFoundError, match=r"topics 'b', 'c' do not exist.*streams topic create b c") as raised:
        TopicNotFoundError.if_missing(["a", "b", "c"], {"a": 1})
    assert (raised.value.topic, raised.value.others) == ("b", ("c",))


def carried_out(monkeypatch: pytest.MonkeyPatch, *, yes: bool, warnings: tuple[str, ...]) -> bool:
    """Whether a reset goes as far as deleting."""

    def deleted(*_: Any) -> None:
        raise typer.Abort

    monkeypatch.setattr(reset, "check_reset_rights", lambda *_: None)
    monkeypatch.setattr(reset, "while_stopped", lambda *_: nullcontext())
    monkeypatch.setattr(reset, "reset_application", deleted)
    monkeypatch.setattr(reset, "RightsProbe", lambda client: client)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)
    plan: Any = SimpleNamespace(config=SimpleNamespace(application_id="shop", client={}), warnings=warnings, topics={})
    try:
        reset._carry_out(plan, SimpleNamespace(), reset.PositionOptions(), False, yes, print)  # type: ignore[arg-type]
    except typer.Abort:
        return True
    return False


def test_a_reset_that_asks_nobody_is_refused_while_the_application_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = ("the last commit is 26 s old",)
    with pytest.raises(
        ConfigError, match=r"shop may still be running: the last commit is 26 s old\. Nothing was deleted"
    ):
        carried_out(monkeypatch, yes=True, warnings=signs)
    assert carried_out(monkeypatch, yes=True, warnings=())
    assert carried_out(monkeypatch, yes=False, warnings=signs)


def test_a_wrong_spark_home_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Spark in that folder"):
        prepare_environment()


def test_a_column_that_delta_does_not_take_is_one_sentence() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="'unit price' has ' ' in its name"):
        builder.stream("in").to_delta("/tmp/t", schema={"unit price": float})


class Kept(Processor[Any, Any, Any, Any]):
    """Uses the store "seen", so it fails unless the processor is connected to it."""

    def init(self, context: Any) -> None:
        self.context = context
        self.store = context.get_state_store("seen")

    def process(self, record: Any) -> None:
        self.store.put(record.key, record.value)
        self.context.forward(record)


@pytest.mark.parametrize("method", ["process", "process_values"])
@pytest.mark.parametrize("arguments", [(Named("keep"), "seen"), (Named("keep"), ["seen"]), ("seen", Named("keep"))])
def test_a_name_may_stand_before_the_stores_as_in_java(method: str, arguments: tuple[Any, ...]) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", StringSerde(), JsonSerde()))
    getattr(builder.stream("in"), method)(Kept, *arguments).to("out")
    topology = builder.build()
    assert "keep" in str(topology.describe())
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in").pipe_input("a", 1)
        assert driver.create_output_topic("out").read_key_values_to_map() == {"a": 1}


def test_templates_do_not_speak_of_their_authors() -> None:
    for page in TEMPLATES.glob("*/README.md"):
        assert "authors" not in page.read_text(), page
