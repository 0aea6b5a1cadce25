"""The first start decides whether an application has repartition topics where records change their task, and later ones keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams import Grouped, Materialized, StreamsBuilder
from streams.application.execution import obstacle
from streams.application.owned_topics import write_manifest, written_manifest
from streams.application.prepare import Application, plan_application
from streams.application.start import check_start
from streams.config import Execution, StreamsConfig
from streams.topology.topology import Topology
from tests.application.cluster import Cluster

TOPIC = "app-by-value-repartition"


def counted(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by(lambda key, value: value, Grouped(name="by-value"))
    grouped.count(materialized=Materialized("counts")).to_stream().to("out")


def joined(builder: StreamsBuilder) -> None:
    table = builder.table("more", materialized=Materialized("more"))
    builder.stream("in").join(table, lambda left, right: left).to("out")


def built(*programs: Any) -> Topology:
    builder = StreamsBuilder()
    for program in programs:
        program(builder)
    return builder.build()


class World:
    """An application, its cluster and its folder."""

    def __init__(self, folder: Path, **partitions: int) -> None:
        self.kafka, self.folder = Cluster(), folder
        for topic in ("in", "more", "out"):
            self.kafka.put(topic, partitions=partitions.get(topic, 2))

    def start(
        self, topology: Topology, execution: Execution, commits: bool = True, placements: Any = None, **settings: Any
    ) -> Application:
        """A start, with the topics that it creates, and one commit of each sub-topology."""
        options = {"application_id": "app", "bootstrap_servers": "nowhere:1", "base_dir": self.folder, **settings}
        config = StreamsConfig(execution=execution, **options)
        kafka: Any = self.kafka
        application = plan_application(topology, config, kafka, placements=placements or {})
        check_start(application, kafka, kafka)
        for prepared in application.subs:
            kafka.put(f"app-{prepared.sub.name}-commits", partitions=prepared.tasks)
            for sink in prepared.sub.sinks:
                if str(sink.topic) in application.plan.repartition_topics:
                    count = application.partitions.get(str(sink.topic), prepared.tasks)
                    kafka.put(str(sink.topic), partitions=count)
            if commits:
                kafka.commit(f"app-{prepared.sub.name}-commits", "app", list(prepared.sub.stores))
        write_manifest(application.plan, config.checkpoint_dir)
        return application

    def forget(self) -> None:
        (self.folder / "checkpoint" / "app" / "topology.json").unlink()


def topics(application: Application) -> list[str]:
    return sorted(application.plan.repartition_topics)


@pytest.mark.parametrize("execution", [Execution.LIVE, Execution.AUTO])
@pytest.mark.parametrize("lost", [False, True])
def test_what_began_live_has_the_topics_in_both_executions(tmp_path: Path, execution: Execution, lost: bool) -> None:
    world = World(tmp_path)
    assert topics(world.start(built(counted), execution)) == [TOPIC]
    kept = written_manifest(str(tmp_path / "checkpoint" / "app"))
    assert kept is not None
    assert kept["repartitioned"] == {}
    for now in (Execution.MICRO_BATCH, Execution.AUTO):
        if lost:
            world.forget()
        application = world.start(built(counted), now)
        assert topics(application) == [TOPIC]
        assert [obstacle(one, {"in": 2, TOPIC: 2}) for one in application.subs] == [None, None]


@pytest.mark.parametrize("lost", [False, True])
def test_what_began_in_micro_batches_keeps_its_plan(tmp_path: Path, lost: bool) -> None:
    world = World(tmp_path)
    world.start(built(counted), Execution.MICRO_BATCH)
    if lost:
        world.forget()
    (prepared,) = world.start(built(counted), Execution.AUTO).subs
    why = obstacle(prepared, {"in": 2})
    assert why is not None
    assert "makes keys before KSTREAM-AGGREGATE-counts" in why
    assert "`streams rescale TARGET` adds it" in why


def test_a_start_that_has_committed_nothing_has_decided_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert topics(world.start(built(counted), Execution.MICRO_BATCH, commits=False)) == []
    assert topics(world.start(built(counted), Execution.LIVE, commits=False)) == [TOPIC]
    # The topic exists now, and may have records.
    assert topics(world.start(built(counted), Execution.MICRO_BATCH)) == [TOPIC]


@pytest.mark.parametrize("lost", [False, True])
def test_sources_are_decided_once(tmp_path: Path, lost: bool) -> None:
    world = World(tmp_path, more=3)
    application = world.start(built(joined), Execution.LIVE)
    assert topics(application) == ["app-in-repartition"]
    assert application.plan.topology.repartitioned == {"in": "in has 2 partitions, and more has 3"}
    assert {one.sub.name: one.tasks for one in application.subs} == {"in": 2, "in-repartition": 3}
    assert application.partitions == {"app-in-repartition": 3}
    # More partitions change no plan.
    world.kafka.topics["in"] += [[], [], []]
    if lost:
        world.forget()
    assert topics(world.start(built(joined), Execution.LIVE)) == ["app-in-repartition"]


def test_topics_that_grow_get_no_topic_afterwards(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert topics(world.start(built(joined), Execution.LIVE)) == []
    world.kafka.topics["in"].append([])
    (prepared,) = world.start(built(joined), Execution.LIVE).subs
    assert obstacle(prepared, {"in": 3, "more": 2}) == "in has 3 partitions and the sub-topology 2 tasks"


def test_new_sources_are_decided_when_they_come(tmp_path: Path) -> None:
    world = World(tmp_path, more=3)

    def both(builder: StreamsBuilder) -> None:
        others = builder.stream("others")
        others.merge(builder.stream("further")).group_by_key().count(materialized=Materialized("others"))

    world.kafka.put("others", partitions=2).put("further", partitions=5)
    world.start(built(joined), Execution.LIVE)
    application = world.start(built(joined, both), Execution.MICRO_BATCH)
    assert topics(application) == ["app-in-repartition", "app-others-repartition"]


def test_as_many_tasks_as_are_asked_for(tmp_path: Path) -> None:
    application = World(tmp_path).start(built(counted), Execution.LIVE, tasks=4)
    assert {one.sub.name: one.tasks for one in application.subs} == {"in": 4, "by-value-repartition": 4}
    assert application.partitions == {TOPIC: 4}
    few = World(tmp_path / "few").start(built(counted), Execution.LIVE, tasks=1)
    # Each partition of the source needs a task, which keeps no state.
    assert {one.sub.name: one.tasks for one in few.subs} == {"in": 2, "by-value-repartition": 1}
    for found in (application, few):
        partitions = {"in": 2, **found.partitions}
        assert [obstacle(one, partitions) for one in found.subs] == [None, None]


def test_topics_by_different_producers(tmp_path: Path) -> None:
    placements = {"in": "crc32", "more": "murmur2"}
    application = World(tmp_path).start(built(joined), Execution.LIVE, placements=placements)
    assert topics(application) == ["app-in-repartition"]
