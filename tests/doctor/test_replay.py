"""A replay reads the same input into topics of its own, beside the application that it repeats."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from state.errors import TopicNotFoundError
from streams import JsonSerde, Processor, Retry, StreamsBuilder
from streams.application.prepare import make_outputs
from streams.cli import replay as command
from streams.engine.source.planner import BatchPlanner
from streams.errors import ConfigError, TopologyError
from streams.topology.graph import SinkNode, SourceNode
from streams.topology.plan import build_plan
from streams.topology.rewrite import with_own_outputs
from tests.doctor.world import NOW_MS, Kafka, World, counting


def renamed(topic: str) -> str:
    return f"again.{topic}"


def test_a_replay_counts_the_input_again_and_leaves_the_application_alone(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    before = world.kafka.end_offsets([("out", 0), ("out", 1)])
    again = World(tmp_path, with_own_outputs(counting(), renamed), {"application_id": "again"})
    again.kafka, again.cluster = world.kafka, world.cluster
    assert make_outputs(world.kafka, {"out": "again.out"}) == ["again.out"]
    again.run("d")
    places = [("again.out", 0), ("again.out", 1)]
    rows = [
        row
        for place in places
        if (columns := world.kafka.columns(*place)) is not None
        for row in columns.keys.to_pylist()
    ]
    assert sorted(set(rows)) == [b"a", b"b", b"c", b"d"]
    assert world.kafka.end_offsets([("out", 0), ("out", 1)]) == before


def test_topics_that_a_program_writes_and_reads_are_renamed_on_both_sides_and_tables_read_from_the_start() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("middle")
    table = builder.table("users")
    builder.stream("middle").join(table, lambda one, _: one).to("out")
    program = with_own_outputs(builder.build(), renamed)
    sources = {node.topics: node.offset_reset for node in program.nodes.values() if isinstance(node, SourceNode)}
    assert sources == {("in",): None, ("again.middle",): None, ("users",): "earliest"}
    sinks = {node.topic for node in program.nodes.values() if isinstance(node, SinkNode)}
    assert sinks == {"again.middle", "again.out"}


def test_a_program_that_retries_has_retry_topics_and_dead_letters_of_its_own() -> None:
    builder = StreamsBuilder()
    retry = Retry((1_000,), dead_letters="dead", keep_order=True)
    builder.stream("in").process_values(Processor, named="ship", on_error=retry).to("out")
    plan = build_plan(with_own_outputs(builder.build(), renamed), "again")
    (sub,) = plan.sub_topologies
    own = {"again.out", "again.dead", "again-ship-retry-1-repartition"}
    assert {str(sink.topic) for sink in sub.sinks} == own
    assert set(sub.delays) == set(plan.repartition_topics) == {"again-ship-retry-1-repartition"}
    assert {str(topic) for topic in sub.topics} == {"in", "again-ship-retry-1-repartition"}


def test_rows_of_lake_sinks_go_to_topics_and_what_is_called_again_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", value_serde=JsonSerde())
    orders.to_delta("/lake/orders", schema={"amount": int})
    orders.foreach_batch(lambda frame, batch_id: None, "archive", schema={"amount": int})
    orders.foreach(lambda key, value: None)
    world = World(tmp_path)
    monkeypatch.setattr(command, "KafkaAdmin", lambda client: nullcontext(world.kafka))
    program, _ = command.prepared(builder.build(), world.config, "again.")
    plan = build_plan(program, "again")
    assert plan.topology.lake_sinks == {}
    assert not plan.repartition_topics
    (sub,) = plan.sub_topologies
    assert {str(sink.topic) for sink in sub.sinks} == {"again.delta-orders-rows", "again.archive-rows"}
    assert world.kafka.partition_count("again.archive-rows") == 2, "as many as the input has"
    said = capsys.readouterr().out
    assert "delta table /lake/orders gets nothing: its rows go to the topic again.delta-orders-rows" in said
    assert "gets nothing: its rows go to the topic again.archive-rows" in said
    assert "KSTREAM-FOREACH" in said


def test_outputs_that_a_function_chooses_cannot_be_replayed() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: "x")
    with pytest.raises(TopologyError, match="a function chooses"):
        with_own_outputs(builder.build(), renamed)


def test_outputs_are_made_like_the_originals(tmp_path: Path) -> None:
    kafka: Kafka = World(tmp_path).kafka
    kafka.settings["out"] = {"retention.ms": "5000", "cleanup.policy": "compact", "segment.ms": "7"}
    make_outputs(kafka, {"out": "again.out"})
    assert kafka.partition_count("again.out") == 2
    assert kafka.settings["again.out"] == {"retention.ms": "5000", "cleanup.policy": "compact"}
    with pytest.raises(TopicNotFoundError):
        make_outputs(kafka, {"nowhere": "again.nowhere"})


@pytest.mark.parametrize("prefix", ["", "more-"])
def test_a_prefix_that_leads_to_topics_of_the_application_is_refused(prefix: str, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.stream("more").to("more-out")
    with pytest.raises(ConfigError, match="the application itself writes to more-out"):
        command.prepared(builder.build(), World(tmp_path).config, prefix)


@pytest.mark.parametrize(
    ("text", "setting"),
    [("earliest", "earliest"), ("2023-11-14T22:13:20Z", f"timestamp:{NOW_MS}"), (str(NOW_MS), f"timestamp:{NOW_MS}")],
)
def test_beginnings(text: str, setting: str) -> None:
    assert command._starting(text) == setting


def test_a_beginning_some_time_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.cli.replay.time.time", lambda: NOW_MS / 1000)
    assert command._starting("2h") == f"timestamp:{NOW_MS - 7_200_000}"


def test_a_replay_under_the_applications_own_id_is_refused(streams: Any) -> None:
    result = streams("replay", f"{__name__}:counting", "--as", "x", "-a", "x", "-b", "nowhere:1")
    assert result.exit_code == 1
    assert "that is the application itself" in result.output
    result = streams("replay", f"{__name__}:counting", "--as", "x", "--follow", "--until", "7", "-b", "nowhere:1")
    assert "give one of them" in result.output


def test_a_replay_does_not_take_the_address_of_its_application(
    streams: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "app.toml"
    settings.write_text('application_id = "x"\nmetrics = "9464"\nui = "8080"\n')
    found = []
    monkeypatch.setattr(command, "reachable", lambda config: config)
    monkeypatch.setattr(command, "prepared", lambda topology, config, prefix: (topology, found.append(config)))
    monkeypatch.setattr(command, "run_topology", lambda *run: None)
    arguments = ("replay", f"{__name__}:counting", "--as", "y", "-c", str(settings), "-b", "nowhere:1")
    for more in ((), ("--metrics", "0", "--ui", "0"), ("--set", "metrics=none")):
        assert streams(*arguments, *more).exit_code == 0
    assert [config.metrics for config in found] == ["", "127.0.0.1:0", ""]
    assert [config.ui for config in found] == ["", "127.0.0.1:0", ""]


def test_a_replay_ends_at_the_first_record_past_a_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.feed("a", "b")
    world.feed("c", at_ms=NOW_MS + 60_000)
    application, prepared = world.plan()
    ends = application.ends(world.kafka, NOW_MS + 1)  # type: ignore[arg-type]
    assert ends == {("in", 0): 2, ("in", 1): 2}
    planner = BatchPlanner(
        world.kafka, dataclasses.replace(application.source_spec(prepared.sub), until=ends), world.kafka.sample
    )
    planner.freeze()
    assert planner.latest(planner.initial()).topics["in"].offsets == (2, 2)
