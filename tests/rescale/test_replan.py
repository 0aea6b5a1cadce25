"""`streams rescale` without a number and a placement: an application that began in micro-batches goes on live, with its state."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from state.commit.marker import MARKER_KEY, read_last_marker
from state.errors import CheckpointMismatchError
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import FUNCTIONS, Placement
from state.kafka.topics import TopicSpec
from streams import Grouped, JoinWindows, Materialized, StreamsBuilder, StringSerde
from streams.application.owned_topics import write_manifest, written_manifest
from streams.application.prepare import plan_application
from streams.application.rescale.plan import UsersChoices, first_batch
from streams.application.rescale.replan import Replan, replan, states_of, unfinished_replan
from streams.application.rescale.rescale import RescaleContext, Rescaler
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint
from streams.checkpoint.files import LocalFiles, read_checkpoint
from streams.cli.rescale import _about, _line, as_dict
from streams.config import StreamsConfig
from streams.engine.source.offsets import FirstBatch
from streams.errors import RescaleError, RescaleUnfinishedError
from streams.testing.simulation import Crash
from streams.topology.topology import Topology
from tests.rescale.test_kills import KillAt
from tests.simulation.chaos import Quiet
from tests.simulation.cluster import Cluster
from tests.simulation.start import start_queries

APP = "app"
NOW_MS = 1_700_000_000_000
STEP = 17
"""Of the requests to Kafka, every how many-th is the last one of an interrupted rescale."""
KEYS = [f"user-{n}" for n in range(12)]


def built(build: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    build(builder)
    return builder.build()


def by_new_key(builder: StreamsBuilder) -> None:
    """Counts values: a function makes keys in front of a store."""
    grouped = builder.stream("in").group_by(lambda key, value: value, Grouped(name="by-value"))
    grouped.count(materialized=Materialized("counts", caching=False)).to_stream().map_values(str).to("out")


def by_key(builder: StreamsBuilder) -> None:
    counted = builder.stream("in").group_by_key().count(materialized=Materialized("counts", caching=False))
    counted.to_stream().map_values(str).to("out")


def two_counts(builder: StreamsBuilder) -> None:
    """Counts by the key that records come with, and by another: the store of one stays, that of the other moves."""
    stream = builder.stream("in")
    by_key = stream.group_by_key().count(materialized=Materialized("by-key", caching=False))
    by_key.to_stream().map_values(lambda count: f"key {count}").to("out")
    grouped = stream.group_by(lambda key, value: value, Grouped(name="by-value"))
    by_value = grouped.count(materialized=Materialized("by-value", caching=False))
    by_value.to_stream().map_values(lambda count: f"value {count}").to("out")


def joined(builder: StreamsBuilder) -> None:
    """Topics with different numbers of partitions meet."""
    windows = JoinWindows.of_time_difference_with_no_grace(10**9)
    pairs = builder.stream("in").join(builder.stream("more"), lambda left, right: f"{left}{right}", windows)
    pairs.to("out")


class World:
    """An application in a cluster of two hosts, without faults."""

    def __init__(self, folder: Path, topology: Topology, **partitions: int) -> None:
        self.cluster, self.topology, self.folder = Cluster(Quiet(), hosts=1), topology, folder
        self.cluster.advance(NOW_MS)
        self.kafka: Any = self.cluster.kafka
        self.kafka.create_topics([TopicSpec(name, partitions.get(name, 2)) for name in ("in", "more", "out")])
        self.files = LocalFiles(self.config().checkpoint_dir)
        self.fed = 0

    def config(self, **settings: Any) -> StreamsConfig:
        given: dict[str, Any] = {
            "application_id": APP,
            "bootstrap_servers": "nowhere:1",
            "base_dir": self.folder,
            **settings,
        }
        return StreamsConfig(**given)

    def feed(self, topic: str = "in", by: Placement = Placement.MURMUR2, count: int = 24) -> None:
        for number in range(self.fed, self.fed + count):
            key, value = KEYS[number % len(KEYS)].encode(), b"%d" % (number % 5)
            partition = partition_for_key(key, self.kafka.partition_count(topic), by)
            self.kafka.append(topic, key, value, NOW_MS + number, partition=partition)
        self.fed += count

    def run(self, execution: str) -> list[str]:
        """Processes what there is; returns the sub-topologies that have run live."""
        config = self.config(execution=execution)
        batches, leases = start_queries(self.cluster, self.topology, config, self.files, "run")
        write_manifest(plan_application(self.topology, config, self.kafka).plan, config.checkpoint_dir)
        going: list[Any] = [*batches, *([leases] if leases else [])]
        while sum(one.trigger() for one in going):
            pass
        if leases is not None:
            leases.closed = True
        return [] if leases is None else [query.job.sub.name for query in leases.queries]

    def moved(self, kafka: Any = None, files: LocalFiles | None = None) -> tuple[Rescaler, Replan]:
        """What `streams rescale` does, as far as it is not asked."""
        kafka, files, config = kafka or self.kafka, files or self.files, self.config()
        begun = unfinished_replan(self.topology, APP, kafka, kafka)
        plan = replan(self.topology, config, kafka, kafka, begun)

        def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch | None:
            checkpoint = read_checkpoint(files, sub.name, {one.batch_id for one in markers.values() if one})
            check_checkpoint(sub, checkpoint, markers)
            return first_batch(sub, checkpoint, markers)

        context = RescaleContext(kafka, kafka, files, first_of, UsersChoices(), None)
        rescaler = plan.rescaler(states_of(plan.before, kafka, kafka), context)
        return Rescaler(rescaler.subs, lambda: plan.accept(config.checkpoint_dir)), plan

    def rescale(self) -> Replan:
        rescaler, plan = self.moved()
        rescaler.run()
        return plan

    def out(self) -> Counter[tuple[Any, Any]]:
        found: Counter[tuple[Any, Any]] = Counter()
        for number in range(self.kafka.partition_count("out")):
            columns = self.kafka.columns("out", number)
            if columns is not None:
                found.update(zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True))
        return found

    def rows(self, store: str) -> dict[bytes, int]:
        """The key of each row of a changelog -> its partition."""
        topic = f"{APP}-{store}-changelog"
        found = {}
        for number in range(self.kafka.partition_count(topic)):
            columns = self.kafka.columns(topic, number)
            found |= dict.fromkeys([] if columns is None else columns.keys.to_pylist(), number)
        return found


def without_rescale(folder: Path, topology: Topology, feed: Callable[[World], None], **partitions: int) -> Counter[Any]:
    """What comes out if the application goes on in micro-batches."""
    world = World(folder, topology, **partitions)
    for _ in range(2):
        feed(world)
        world.run("micro-batch")
    return world.out()


@pytest.mark.parametrize("program", [by_new_key, two_counts, joined])
def test_what_began_in_micro_batches_goes_on_live_with_its_state(tmp_path: Path, program: Any) -> None:
    topology, partitions = built(program), {"more": 3} if program is joined else {}

    def feed(world: World) -> None:
        world.feed()
        if program is joined:
            world.feed("more")

    expected = without_rescale(tmp_path / "other", topology, feed, **partitions)
    world = World(tmp_path / "own", topology, **partitions)
    feed(world)
    world.run("micro-batch")
    assert world.run("auto") == []
    plan = world.rescale()
    assert len(plan.added) == 1
    assert plan.obstacles({"in": 2, "more": 3}) == {}
    feed(world)
    assert world.run("live") == [one.sub.name for one in plan.after.subs]
    assert world.out() == expected
    assert world.rescale().added == {}
    assert world.moved()[0].waiting == []


def test_a_topic_that_has_the_name_of_an_added_one_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, built(by_new_key))
    world.feed()
    world.run("micro-batch")
    rescaler, _ = world.moved()
    world.kafka.create_topics([TopicSpec("app-by-value-repartition", 2)])
    before = contents(world)
    with pytest.raises(RescaleError, match="the topic app-by-value-repartition, which the plan adds, already exists"):
        rescaler.run()
    assert contents(world) == before


def test_a_task_that_commits_during_the_copy_is_found_out(tmp_path: Path) -> None:
    """All else is as in a rescale within the plan: nothing is replaced."""
    world = World(tmp_path, built(two_counts))
    world.feed()
    world.run("micro-batch")
    rescaler, _ = world.moved()
    for step in ("begin", "stage"):
        for sub in rescaler.waiting:
            getattr(sub, step)()
    (task, last) = 1, read_last_marker(world.kafka, ("app-in-commits", 1))
    assert last is not None
    later = replace(last.marker, version=last.marker.version + 1)
    world.kafka.append("app-in-commits", MARKER_KEY, later.to_bytes(), NOW_MS, partition=task)
    before = contents(world)
    with pytest.raises(CheckpointMismatchError, match="Stop the application"):
        rescaler.run()
    changelogs = [topic for topic in before if "-changelog-" in topic and "rescale" not in topic]
    assert {topic: contents(world)[topic] for topic in changelogs} == {topic: before[topic] for topic in changelogs}
    assert not any("repartition" in topic for topic in world.kafka.topics)


def test_what_idle_time_has_no_effect_on_any_more_is_named(tmp_path: Path) -> None:
    """Behind a repartition topic nobody knows whether nothing comes, or its writer is only slow."""
    world = World(tmp_path, built(two_counts))
    world.feed()
    world.run("micro-batch")
    assert world.moved()[1].without_idle_time == []
    config = world.config(idle_timeout_ms=1_000, wall_clock_interval_ms=1_000)
    assert replan(world.topology, config, world.kafka, world.kafka).without_idle_time == ["by-value-repartition"]


def test_rows_are_where_the_added_topic_brings_their_keys(tmp_path: Path) -> None:
    world = World(tmp_path, built(two_counts))
    world.feed()
    world.run("micro-batch")
    rescaler, plan = world.moved()
    (sub,) = rescaler.subs
    assert [(part.name, sorted(part.sub.stores)) for part in sub.parts] == [
        ("in", ["by-key"]),
        ("by-value-repartition", ["by-value"]),
    ]
    assert plan.added == {
        "app-by-value-repartition": "KSTREAM-KEY-SELECT-in makes keys before KSTREAM-AGGREGATE-by-value"
    }
    assert _line(sub) == (
        "in: from 2 tasks by murmur2 to in (2 tasks by murmur2, by-key), by-value-repartition (2 tasks by murmur2, by-value)"
    )
    assert list(_about(plan, world.kafka)) == [
        "adds the topic app-by-value-repartition: KSTREAM-KEY-SELECT-in makes keys before KSTREAM-AGGREGATE-by-value"
    ]
    assert as_dict(sub)["parts"][1] == {
        "name": "by-value-repartition", "tasks": 2, "placement": "murmur2", "stores": ["by-value"]
    }  # fmt: skip
    rescaler.run()
    assert {key: partition_for_key(key, 2) for key in world.rows("by-value")} == world.rows("by-value")
    assert {key: partition_for_key(key, 2) for key in world.rows("by-key")} == world.rows("by-key")


def test_topics_whose_keys_no_function_explains_get_a_topic_behind_them(tmp_path: Path) -> None:
    """Began live, with one producer; then another one joined that uses another function."""
    topology = built(by_key)
    world = World(tmp_path, topology)
    world.feed()
    assert world.run("live") == ["in"]
    world.feed(by=Placement.CRC32)
    assert world.run("micro-batch") == []
    assert world.run("auto") == []
    plan = world.rescale()
    assert plan.added == {"app-in-repartition": "no known function puts the keys of in into partitions"}
    world.feed(by=Placement.CRC32)
    world.feed()
    assert world.run("live") == ["in", "in-repartition"]
    assert {value for (_, value) in world.out()} == {b"%d" % number for number in range(1, 9)}
    assert max(world.rows("counts").values()) == 1


def test_one_function_that_explains_all_keys_is_gone_over_to(tmp_path: Path) -> None:
    world = World(tmp_path, built(by_key))
    first = next(key for key in map(str.encode, KEYS) if len({partition_for_key(key, 2, by) for by in FUNCTIONS}) == 1)
    world.kafka.append("in", first, b"1", NOW_MS, partition=partition_for_key(first, 2))
    assert world.run("micro-batch") == []
    world.feed(by=Placement.CRC32)
    plan = world.rescale()
    assert (plan.added, [one.placement for one in plan.after.subs]) == ({}, [Placement.CRC32])
    assert world.run("live") == ["in"]
    assert world.rows("counts") == {key: partition_for_key(key, 2, Placement.CRC32) for key in map(str.encode, KEYS)}


# --- Interruptions


def twin(world: World, folder: Path) -> World:
    """The same application in the same cluster, once more."""
    other = copy.deepcopy(world)
    shutil.copytree(world.folder, folder)
    other.folder = folder
    other.files = LocalFiles(other.config().checkpoint_dir)
    return other


def contents(world: World) -> dict[str, Any]:
    """Topics, markers without the ids of their queries, and the description of the plan."""
    found: dict[str, Any] = {"plan": written_manifest(world.config().checkpoint_dir)}
    for topic in sorted(world.kafka.topics):
        for number in range(world.kafka.partition_count(topic)):
            last = read_last_marker(world.kafka, (topic, number)) if topic.endswith("-commits") else None
            entries = world.kafka.log(topic, number).readable()
            records = [(entry.key, entry.value, entry.timestamp) for entry in entries]
            found[f"{topic}-{number}"] = replace(last.marker, query_id="") if last else records
    return found


@pytest.mark.slow
def test_an_interrupted_one_keeps_starts_away_and_goes_on_or_is_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path / "own", built(two_counts))
    world.feed()
    world.run("micro-batch")
    before = contents(world)
    whole = twin(world, tmp_path / "whole")
    whole.rescale()
    after = contents(whole)
    whole.feed()
    assert whole.run("live") == ["in", "by-value-repartition"]
    expected, ends, number = whole.out(), Counter[str](), 0
    while True:
        one = twin(world, tmp_path / str(number))
        one.kafka.hook = KillAt(number)
        try:
            one.rescale()
        except Crash:
            one.kafka.hook = one.cluster
        else:
            break
        if any(topic.endswith("-rescale") for topic in one.kafka.topics):
            with pytest.raises(RescaleUnfinishedError, match="Run the same"):
                one.run("auto")
        other = twin(one, tmp_path / f"{number}-aborted")
        try:
            other.moved()[0].abort()
        except RescaleError:
            ends["forward only"] += 1
        else:
            assert contents(other) in (before, after)
            ends["taken back"] += contents(other) == before
        one.rescale()
        assert contents(one) == after
        if number % 20 == 0:
            one.feed()
            assert one.run("live") == ["in", "by-value-repartition"]
            assert one.out() == expected
        number += STEP
    assert min(ends["taken back"], ends["forward only"]) > 3
