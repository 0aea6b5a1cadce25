"""What a source is, in micro-batches and live: each field of `SourceSpec`, and each setting about sources, by the same start."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from state.errors import CheckpointMismatchError, OffsetsLostError, TopicNotFoundError, TopicRecreatedError
from streams import (
    BytesSerde,
    Consumed,
    Materialized,
    Processor,
    Produced,
    Record,
    Repartitioned,
    Retry,
    StreamsBuilder,
    StringSerde,
)
from streams.application import start
from streams.engine.source.topics import SourceSpec
from streams.errors import ConfigError, NewPartitionsError
from streams.topology.topology import Topology
from tests.simulation.chaos import Quiet
from tests.simulation.cluster import Cluster
from tests.simulation.history import simulated_surroundings
from tests.simulation.leases import Leases
from tests.simulation.programs import APPLICATION, config_of
from tests.simulation.spark import Files, Query, QueryFailed
from tests.simulation.start import start_queries

EXECUTIONS = ("micro-batch", "live")
OTHER = dict(zip(EXECUTIONS, reversed(EXECUTIONS), strict=True))


class Patient(Quiet):
    """No faults; and a slot that waits does so for half a minute, so that it looks after its topics. Its leases are short."""

    def __init__(self) -> None:
        self._heard = 0

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        if what.startswith("lease"):
            self._heard += 1
            return int(self._heard % 100 == 0)
        return int(what.startswith("a moment"))


class World:
    """An application on a simulated cluster, as each start finds it."""

    def __init__(self, execution: str) -> None:
        self.cluster = Cluster(Patient(), hosts=1)
        self.kafka = self.cluster.kafka
        self.files = Files(self.cluster)
        self.execution = execution
        self.settings: dict[str, Any] = {}
        self.topology: Topology = copy("in")
        self.runs: list[Query | Leases] = []
        self._starts = 0
        for topic in ("in", "out"):
            self.kafka.create_topic(topic, 1)

    def send(self, topic: str, *values: str, at_ms: int = 1, partition: int = 0) -> None:
        for value in values:
            self.kafka.append(topic, value.encode(), value.encode(), at_ms, partition=partition)

    def start(self, execution: str | None = None) -> None:
        """Starts the application, whose tasks have not run yet."""
        self.execution = execution or self.execution
        self._starts += 1
        config = config_of(1, tuple(sorted({**self.settings, "execution": self.execution}.items())))
        batches, leases = start_queries(self.cluster, self.topology, config, self.files, f"run {self._starts}")
        self.runs = [*batches, *([] if leases is None else [leases])]

    def work(self) -> None:
        """Runs until nothing is left to do.

        Raises:
            StreamsError: What ended the application.
        """
        try:
            for _ in range(10):
                # A record that waits to be retried keeps a slot from coming to rest.
                if not sum(run.trigger() for run in self.runs):
                    return
        except QueryFailed as end:
            raise end.__cause__ or end from None

    def run(self, execution: str | None = None) -> list[str]:
        """One start, and all that there is to do; returns the results so far."""
        self.start(execution)
        self.work()
        return self.out

    @property
    def out(self) -> list[str]:
        columns = self.kafka.columns("out", 0)
        return [] if columns is None else [value.decode() for value in columns.values.to_pylist()]

    def make_anew(self, topic: str, partitions: int = 1) -> None:
        self.kafka.delete_topic(topic)
        self.kafka.create_topic(topic, partitions)


@pytest.fixture(params=EXECUTIONS)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield from surrounded(World(request.param), monkeypatch)


def surrounded(made: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world, while it stands for Kafka, disks and the time."""
    surroundings: Any = SimpleNamespace(cluster=made.cluster)
    monkeypatch.setattr(start, "now_ms", lambda: made.cluster.now_ms)
    with simulated_surroundings(surroundings):
        yield made


def copy(topic: str | re.Pattern[str], **consumed: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic, Consumed(BytesSerde(), BytesSerde(), **consumed))
    stream.to("out", Produced(BytesSerde(), BytesSerde()))
    return builder.build()


def copy_of_pattern(**consumed: Any) -> Topology:
    return copy(re.compile("in.*"), **consumed)


# --- Where reading begins


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("earliest", ["a", "b", "c", "d"]), ("latest", ["d"]), (timedelta(seconds=10), ["b", "c", "d"])],
)
def test_reading_begins_where_the_policy_says(world: World, policy: Any, expected: list[str]) -> None:
    world.cluster.advance(20_000)
    now_ms = world.cluster.now_ms
    for value, at_ms in (("a", 1), ("b", now_ms - 9_000), ("c", now_ms)):
        world.send("in", value, at_ms=at_ms)
    world.topology = copy("in", offset_reset=policy)
    world.start()
    world.send("in", "d")
    world.work()
    assert world.out == expected
    assert world.run() == expected


@pytest.mark.parametrize(("setting", "expected"), [("timestamp:5", ["b"]), ("latest", []), ("earliest", ["a", "b"])])
def test_reading_begins_where_the_setting_says(world: World, setting: str, expected: list[str]) -> None:
    world.send("in", "a", at_ms=4)
    world.send("in", "b", at_ms=5)
    world.settings["starting_offsets"] = setting
    assert world.run() == expected


def test_nothing_begins_without_a_policy(world: World) -> None:
    world.topology = copy("in", offset_reset="none")
    with pytest.raises(ConfigError, match="'in' is read with offset_reset 'none'"):
        world.run()


def test_the_first_position_holds_from_the_first_step_on(world: World) -> None:
    world.topology = copy("in", offset_reset="latest")
    world.send("in", "a")
    world.start()
    world.send("in", "b")
    world.work()
    world.send("in", "c")
    assert world.run() == ["b", "c"]


@pytest.mark.parametrize("then", [lambda execution: execution, OTHER.get], ids=["stays", "switches"])
def test_a_lost_commits_topic_is_refused(world: World, then: Callable[[str], str]) -> None:
    """Without stores nothing else tells that records were read."""
    world.send("in", "a", "b")
    assert world.run() == ["a", "b"]
    world.kafka.delete_topic("app-in-commits")
    with pytest.raises(CheckpointMismatchError, match="the commits topic has nothing at all of task 0: the commits"):
        world.run(then(world.execution))
    assert world.out == ["a", "b"]


# --- Topics that are new under a pattern, or out of sight


@pytest.mark.parametrize(("policy", "expected"), [("earliest", ["a", "b", "c"]), ("latest", ["a", "c"])])
@pytest.mark.parametrize("then", [lambda execution: execution, OTHER.get], ids=["stays", "switches"])
def test_a_topic_that_is_new_under_a_pattern(
    world: World, policy: str, expected: list[str], then: Callable[[str], str]
) -> None:
    world.topology = copy_of_pattern(offset_reset=policy)
    world.start()
    world.send("in", "a")
    world.work()
    world.kafka.create_topic("in-b", 1)
    world.send("in-b", "b")
    world.start(then(world.execution))
    # A micro-batch without its records gives the topic its position.
    if world.execution == "micro-batch":
        world.work()
    world.send("in-b", "c")
    world.work()
    assert world.out == expected
    for execution in (*EXECUTIONS, *EXECUTIONS):
        assert world.run(execution) == expected
    world.send("in-b", "d")
    assert world.run() == [*expected, "d"]


def test_the_first_position_of_a_new_topic_holds_although_nothing_is_read_yet(world: World) -> None:
    world.topology = copy_of_pattern(offset_reset="latest")
    world.start()
    world.send("in", "a")
    world.work()
    world.kafka.create_topic("in-b", 1)
    world.send("in-b", "b")
    world.start("live")
    # This start ends before its tasks begin.
    world.send("in-b", "c")
    assert world.run() == ["a", "c"]


@pytest.mark.parametrize("seen", EXECUTIONS)
@pytest.mark.parametrize("unseen", EXECUTIONS)
def test_a_topic_out_of_sight_keeps_its_position(
    world: World, seen: str, unseen: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.topology = copy_of_pattern()
    world.kafka.create_topic("in-b", 1)
    world.send("in", "a")
    world.send("in-b", "b")
    assert sorted(world.run(seen)) == ["a", "b"]
    hidden = world.kafka._topics.pop("in-b")
    world.send("in", "c")
    with caplog.at_level(logging.WARNING):
        assert sorted(world.run(unseen)) == ["a", "b", "c"]
        assert sorted(world.run(unseen)) == ["a", "b", "c"]
    assert (
        "topics that no longer match, or cannot be seen, keep their positions until they come back: in-b" in caplog.text
    )
    world.kafka._topics["in-b"] = hidden
    world.send("in-b", "d")
    assert sorted(world.run()) == ["a", "b", "c", "d"]
    world.make_anew("in-b")
    with pytest.raises(TopicRecreatedError, match="in-b"):
        world.run()


# --- Lost offsets


@pytest.mark.parametrize(("policy", "expected"), [("earliest", ["a", "d", "e"]), ("latest", ["a", "e"])])
def test_reading_goes_on_behind_what_is_lost(
    world: World, policy: str, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    world.settings["on_lost_offsets"] = policy
    world.send("in", "a")
    world.run()
    world.send("in", "b", "c", "d")
    world.kafka.log("in", 0).cut(3)
    with caplog.at_level(logging.WARNING):
        world.run()
    to, without = (3, 2) if policy == "earliest" else (4, 3)
    assert f"in-0: offset 1 is lost, the log has [3, 4); continuing at {to}, without {without} offsets" in caplog.text
    world.send("in", "e")
    caplog.clear()
    assert world.run() == expected
    assert "is lost" not in caplog.text, "the jump is written down at once"


def test_lost_offsets_are_named_with_what_helps(world: World) -> None:
    world.send("in", "a")
    world.run()
    world.send("in", "b", "c", "d")
    world.kafka.log("in", 0).cut(3)
    for _ in range(2):
        with pytest.raises(OffsetsLostError, match=r"in-0: offset 1 is needed .* \[3, 4\).*set `on_lost_offsets` to"):
            world.run()
    assert world.out == ["a"]
    world.settings["on_lost_offsets"] = "earliest"
    assert world.run() == ["a", "d"]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_topic_that_is_shorter_than_it_was(world: World, policy: str) -> None:
    world.settings["on_lost_offsets"] = policy
    world.send("in", "a", "b", "c")
    world.run()
    log = world.kafka.log("in", 0)
    log.entries, log.end = log.entries[:1], 1
    world.run()
    world.send("in", "d")
    assert world.run() == ["a", "b", "c", *(["a"] if policy == "earliest" else []), "d"]


# --- Identity


@pytest.mark.parametrize("policy", ["fail", "latest"])
@pytest.mark.parametrize("count", [1, 9])
def test_a_topic_that_was_created_again(world: World, policy: str, count: int) -> None:
    world.settings["on_lost_offsets"] = policy
    world.send("in", "a", "b")
    world.run()
    world.make_anew("in")
    world.send("in", *(str(number) for number in range(count)))
    for execution in EXECUTIONS:
        with pytest.raises(TopicRecreatedError, match="'in'"):
            world.run(execution)
    assert world.out == ["a", "b"]


def test_a_topic_that_was_deleted(world: World) -> None:
    world.send("in", "a")
    world.run()
    world.kafka.delete_topic("in")
    with pytest.raises(TopicNotFoundError, match="'in'"):
        world.run()


def test_a_topic_with_more_partitions(world: World) -> None:
    world.start()
    world.send("in", "a")
    world.work()
    world.kafka.create_topic("in", 2)
    world.send("in", "b", partition=1)
    world.cluster.advance(1)
    if world.execution == "micro-batch":
        world.work()
        assert world.out == ["a", "b"]
    else:
        # Nobody has the new partition's task; the driver switches to micro-batches.
        with pytest.raises(NewPartitionsError, match="in has 2 partitions now"):
            world.work()
        assert world.run("auto") == ["a", "b"]


# --- Internal topics, retries and ticks


def test_what_is_read_of_an_internal_topic_is_deleted(world: World) -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream("in").repartition(Repartitioned(name="again")).to("out")
    world.topology = builder.build()
    world.send("in", "a", "b")
    world.run()
    for _ in range(2):
        world.send("in", "c")
        world.cluster.advance(40_000)
        world.work()
    log = world.kafka.log(f"{APPLICATION}-again-repartition", 0)
    assert log.begin > 0
    assert world.kafka.log("in", 0).begin == 0
    assert world.out == ["a", "b", "c", "c"]


class FailsAtFirst(Processor[bytes, bytes, bytes, bytes]):
    def process(self, record: Record[bytes, bytes]) -> None:
        if self.ctx.topic == "in":
            raise ValueError("at first")
        self.ctx.forward(record)


def test_a_retried_record_waits_for_its_topics_delay(world: World) -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    retry = Retry([timedelta(hours=1)], dead_letters="dead")
    builder.stream("in").process_values(FailsAtFirst, named="try", on_error=retry).to("out")
    world.topology = builder.build()
    world.kafka.create_topic("dead", 1)
    world.send("in", "a")
    assert world.run() == []
    world.cluster.advance(3_000_000)
    world.work()
    assert world.out == []
    world.cluster.advance(1_000_000)
    world.work()
    assert world.out == ["a"]


class Clock(Processor[bytes, bytes, str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1_000, "wall_clock", lambda now_ms: self.ctx.forward(Record("k", "tick", now_ms)))

    def process(self, record: Record[bytes, bytes]) -> None:
        """It only waits for the clock."""


def test_ticks_are_steps_without_records(world: World) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(BytesSerde(), BytesSerde())).process(Clock)
    stream.to("out", Produced(StringSerde(), StringSerde()))
    world.topology = builder.build()
    world.settings["wall_clock_interval_ms"] = 1_000
    world.run()
    before = len(world.out)
    for _ in range(3):
        world.cluster.advance(1_000)
        world.work()
    assert len(world.out) >= before + 3


# --- Global tables


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("table", Consumed(StringSerde(), StringSerde()), Materialized("rows"))
    stream = builder.stream("in", Consumed(StringSerde(), StringSerde()))
    stream.left_join(table, lambda key, value: "k", lambda value, row: f"{value}:{row}").to(
        "out", Produced(StringSerde(), StringSerde())
    )
    return builder.build()


def row(world: World, value: str, partition: int = 0) -> None:
    world.kafka.append("table", b"k", value.encode(), 1, partition=partition)


@pytest.fixture
def tables(world: World) -> World:
    world.topology = joined()
    world.kafka.create_topic("table", 1)
    row(world, "1")
    world.send("in", "a")
    world.run()
    return world


def test_a_step_sees_the_ends_of_global_tables(tables: World) -> None:
    row(tables, "2")
    tables.send("in", "b")
    tables.work()
    tables.kafka.create_topic("table", 2)
    row(tables, "3", partition=1)
    tables.send("in", "c")
    tables.work()
    assert tables.out == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize("count", [1, 5])
def test_a_global_tables_topic_that_was_created_again(tables: World, count: int) -> None:
    tables.make_anew("table")
    for number in range(count):
        row(tables, str(number))
    tables.send("in", "b")
    with pytest.raises(TopicRecreatedError, match="'table'"):
        tables.work()
    for execution in EXECUTIONS:
        with pytest.raises(TopicRecreatedError, match="'table'"):
            tables.run(execution)
    assert tables.out == ["a:1"]


def test_a_global_tables_topic_that_was_deleted(tables: World) -> None:
    tables.kafka.delete_topic("table")
    tables.send("in", "b")
    with pytest.raises(TopicNotFoundError, match="'table'"):
        tables.work()


# --- Every field and setting has its test

TESTED: Mapping[str, object] = {
    "starting": test_reading_begins_where_the_policy_says,
    "trimmed": test_what_is_read_of_an_internal_topic_is_deleted,
    "on_lost_offsets": test_reading_goes_on_behind_what_is_lost,
    "global_topics": test_a_step_sees_the_ends_of_global_tables,
    "tick_ms": test_ticks_are_steps_without_records,
    "first": test_the_first_position_holds_from_the_first_step_on,
    "delays": test_a_retried_record_waits_for_its_topics_delay,
    "max_records": "how large a micro-batch is; a live step has bounds of its own",
    "max_bytes": "how large a micro-batch is; a live step has bounds of its own",
    "interval_ms": "how large a micro-batch is; a live step has bounds of its own",
    "reads_together": "how ranges of micro-batches share readers; each live partition has one",
    "readers": "how ranges of micro-batches share readers; each live partition has one",
    "broker_wait_ms": "how long a planner waits for brokers; a live task's attempt ends, and the driver waits",
    "until": "for runs over the existing input",
    "pauses": "tests/simulation pauses both",
    "times_topic": "partition times",
    "decide_s": "partition times",
}


def test_each_field_has_its_test() -> None:
    assert TESTED.keys() == {field.name for field in fields(SourceSpec)}
