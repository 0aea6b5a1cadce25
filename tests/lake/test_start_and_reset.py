"""What starts and resets say of lake sinks, before anything is written or deleted."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest

from streams import StreamsBuilder, Topology
from streams.application.owned_topics import write_manifest
from streams.application.prepare import Application, plan_application
from streams.application.reset import plan_reset, reset
from streams.application.start import check_start
from streams.checkpoint.files import LocalFiles, write_query_id
from streams.config import StreamsConfig
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.errors import TopologyMismatchError
from tests.application.cluster import Cluster

TOPIC = "app-delta-orders-repartition"


class Trimmed(Cluster):
    """A cluster that knows how much of each partition is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: dict[tuple[str, int], int] = {}

    def begin_offsets(self, places: Any) -> dict[tuple[str, int], int]:
        return {place: self.begins.get(place, 0) for place in places}


def build(table: str | None = "/lake/orders", **schema: Any) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in")
    orders.group_by_key().count()
    if table is not None:
        orders.to_delta(table, schema=schema or {"amount": int}, named="delta-orders")
    return builder.build()


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", base_dir=tmp_path)


@pytest.fixture
def kafka(config: StreamsConfig) -> Trimmed:
    """Of an application that has run and has left a row in the internal topic of its sink."""
    made = Trimmed()
    made.put("in")
    application = start(build(), config, made)
    made.put(TOPIC, b"row")
    for prepared in application.subs:
        made.commit(f"app-{prepared.sub.name}-commits", "app", list(prepared.sub.stores))
    return made


def start(topology: Topology, config: StreamsConfig, kafka: Cluster) -> Application:
    application = plan_application(topology, config, kafka)  # type: ignore[arg-type]
    check_start(application, kafka, kafka)  # type: ignore[arg-type]
    write_manifest(application.plan, config.checkpoint_dir)
    return application


def test_the_internal_topic_of_a_sink_is_made_with_the_partitions_of_its_writer(
    config: StreamsConfig, kafka: Trimmed
) -> None:
    application = plan_application(build(), config, kafka)  # type: ignore[arg-type]
    assert application.plan.repartition_topics == {TOPIC: None}
    assert application.plan.internal_topics[TOPIC] == "a repartition topic"


def test_a_sink_with_unread_rows_cannot_leave_the_program(config: StreamsConfig, kafka: Trimmed) -> None:
    with pytest.raises(TopologyMismatchError, match=f"{TOPIC}: the old program of app wrote records there"):
        start(build(None), config, kafka)


def test_a_sink_whose_rows_are_all_in_the_table_may_leave_the_program(config: StreamsConfig, kafka: Trimmed) -> None:
    kafka.begins[TOPIC, 0] = 1
    start(build(None), config, kafka)


def test_what_a_function_has_got_need_not_be_read_again(config: StreamsConfig, kafka: Trimmed) -> None:
    kafka.groups["app"] = {(TOPIC, 0): 1}
    start(build(None), config, kafka)


def test_before_the_note_in_kafka_the_checkpoint_says_what_a_function_has_got(
    config: StreamsConfig, kafka: Trimmed
) -> None:
    folder = Path(config.checkpoint_dir) / "delta-orders"
    write_query_id(LocalFiles(config.checkpoint_dir), "delta-orders", "query")
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    end = orjson.dumps(SourceOffsets({TOPIC: TopicOffsets("id", (1,))}).to_json()).decode()
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{end}")
    with pytest.raises(TopologyMismatchError):
        start(build(None), config, kafka)
    (folder / "commits" / "0").write_text("v1\n{}")
    start(build(None), config, kafka)


def test_the_rows_of_a_sink_can_be_given_up_as_the_error_advises(
    config: StreamsConfig, kafka: Trimmed, streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TopologyMismatchError) as refused:
        start(build(None), config, kafka)
    (advice,) = re.findall(r"`streams (reset app --drop-sink [^`]+)`", str(refused.value))
    copy = Path(config.checkpoint_dir) / "delta-orders" / "table-commit.json"
    copy.parent.mkdir()
    copy.write_text("{}")
    before = set(kafka.topics)
    monkeypatch.setattr("streams.cli.reset.reachable", lambda config: config)
    monkeypatch.setattr("streams.cli.reset.KafkaAdmin", lambda client: nullcontext(kafka))
    monkeypatch.setattr("streams.cli.reset.check_topic_deletion", lambda *arguments: None)
    options = (*advice.split(), "-b", "nowhere:1", "--base-dir", str(config.base_dir))
    told = streams(*options, "--dry-run").output
    assert "up to 1 offset that delta table /lake/orders will not receive" in told
    assert copy.exists()
    assert streams(*options, "--yes").exit_code == 0
    assert before - set(kafka.topics) == {TOPIC}
    assert not copy.parent.exists()
    start(build(None), config, kafka)
    assert "--drop-sink delta-orders: topology.json in" in streams(*options, "--yes").output


def test_another_type_of_a_column_is_refused_and_another_column_is_not(config: StreamsConfig, kafka: Trimmed) -> None:
    with pytest.raises(TopologyMismatchError, match="other types of amount"):
        start(build(amount=float), config, kafka)
    start(build(amount=int, note=str), config, kafka)


def test_a_reset_names_the_table_leaves_it_and_deletes_what_the_sink_has_made(
    config: StreamsConfig, kafka: Trimmed
) -> None:
    copy = Path(config.checkpoint_dir) / "delta-orders" / "table-commit.json"
    copy.parent.mkdir()
    copy.write_text("{}")
    plan = plan_reset(config, kafka, kafka)  # type: ignore[arg-type]
    told = "\n".join(plan.lines())
    assert "not delta table /lake/orders: it stays as it is, with all rows of the sink delta-orders" in told
    reset(plan, kafka, lambda line: None)  # type: ignore[arg-type]
    assert set(kafka.topics) == {"in"}
    assert not copy.exists()
