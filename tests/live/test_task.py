"""Live tasks over the simulated Kafka: the order of records, however they arrive, and what is committed of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.changelog import changelog_topic, commits_topic
from state.columns import RecordColumns
from state.commit.decide import TaskIdentity
from state.commit.step import CommitStep
from state.errors import TopicRecreatedError
from state.kafka.key_hash import partition_for_key
from state.restore.task_stores import WorkerMemory
from streams import BytesSerde, Consumed, JsonSerde, Materialized, Produced, StreamsBuilder
from streams.engine.graph.settings import TaskSettings
from streams.engine.live.partitions import SILENT_S, OwnPartition
from streams.engine.live.task import POLL_S, SOON_S, LiveTask
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.source.topics import SourceSpec
from streams.engine.step import global_tables
from streams.engine.step.job import QueryJob
from streams.engine.step.step import TaskAccess
from streams.errors import KeyPlacementError, NewPartitionsError
from streams.testing.simulation import SimulatedKafka, SimulatedStores, SimulatedTable
from streams.topology.plan import build_plan
from streams.topology.topology import Topology

APP = "app"


class Arriving:
    """A reader whose records arrive when the test says so; it knows where its log ended when the last ones did."""

    def __init__(self, kafka: SimulatedKafka, topic: str, partition: int, start: int) -> None:
        self._kafka, self._place = kafka, (topic, partition)
        self.position = start
        self.at_end = False
        self.due = 0
        self.reopened = 0

    def poll(self, max_records: int) -> list[RecordColumns]:
        columns = self._kafka.columns(*self._place, self.position)
        count = min(self.due, max_records, 0 if columns is None else len(columns))
        self.due = 0
        if columns is not None and count:
            self.position = int(columns.offsets[count - 1]) + 1
        end = self._kafka.end_offsets([self._place])[self._place]
        if columns is None or count == len(columns):
            # Only control records may be left, which a client passes.
            self.position = end
        self.at_end = self.position >= end
        return [columns.part(0, count)] if columns is not None and count else []

    def wake(self, file: int) -> bool:
        return False

    def reopen(self) -> None:
        self.reopened += 1

    def close(self) -> None:
        """Nothing is open."""


class World:
    """One task of a topology, its topics and its readers."""

    def __init__(self, topology: Topology, partitions: int = 1, settings: Mapping[str, Any] | None = None) -> None:
        (self.sub,) = build_plan(topology, APP).sub_topologies
        self.logs = [commits_topic(APP, self.sub.name), *(changelog_topic(APP, store) for store in self.sub.stores)]
        self.outputs = sorted({str(sink.topic) for sink in self.sub.sinks})
        self.kafka = SimulatedKafka(dict.fromkeys([*self.sub.topics, *self.logs, *self.outputs], partitions))
        source = SourceSpec(dict.fromkeys(self.sub.topics, "earliest"))
        given = TaskSettings(application_id=APP, partition_counts=dict.fromkeys(self.outputs, 1), **(settings or {}))
        self.job = QueryJob(self.sub, partitions, given, source, {}, Path(), 0, 0, bulk_io=False)
        self.readers: dict[str, Arriving] = {}
        self.table, self.memory = SimulatedTable(), WorkerMemory()
        self.now = 0.0

    def send(self, topic: str, records: Sequence[tuple[bytes, int]], partition: int = 0) -> None:
        for value, timestamp in records:
            self.kafka.append(topic, b"k", value, timestamp, partition=partition)

    def task(self, number: int = 0, wakes: int | None = None, start: SourceOffsets | None = None) -> LiveTask:
        identity = TaskIdentity(APP, self.sub.name, number, self.job.tasks, "query", self.sub.topology_hash)
        specs = [node.spec for node in self.sub.stores.values()]
        stores = SimulatedStores(self.kafka, identity, specs, self.table, self.memory)
        step = CommitStep(identity, self.kafka, stores, self.job.crash)
        ids = self.kafka.topic_ids(self.sub.topics)
        if start is None:
            start = SourceOffsets({name: TopicOffsets(ids[name], (0,) * self.job.tasks) for name in self.sub.topics})
        access: Any = TaskAccess(step, self.kafka, stores)  # type: ignore[arg-type]
        return LiveTask(self.job, access, start, "run", open_reader=self._open, wakes=wakes, clock=lambda: self.now)

    def _open(self, topic: str, partition: int, start: int) -> Arriving:
        self.readers[topic] = Arriving(self.kafka, topic, partition, start)
        return self.readers[topic]

    def step(self, task: LiveTask) -> bool:
        if not task.begin(now_ms=10_000):
            return False
        task.commit()
        task.apply()
        return True

    def run(self, task: LiveTask) -> None:
        """Steps with all that is there, until nothing is left."""
        while True:
            for reader in self.readers.values():
                reader.due = 1_000
            if not self.step(task):
                return

    def written(self) -> list[str]:
        """The topics of results and changes of state."""
        return [*self.outputs, *self.logs[1:]]

    def out(self) -> list[bytes | None]:
        columns = self.kafka.columns("out", 0)
        return [] if columns is None else columns.values.to_pylist()


def copy(*topics: str) -> Topology:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(list(topics)).to("out")
    return builder.build()


times = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@pytest.mark.slow
@given(times, times, st.lists(st.tuples(st.sampled_from(["left", "right"]), st.integers(1, 4)), max_size=20))
def test_the_order_does_not_depend_on_what_arrives_first(
    left: list[int], right: list[int], arrivals: list[tuple[str, int]]
) -> None:
    def played(moves: Sequence[tuple[str, int]]) -> list[bytes | None]:
        world = World(copy("left", "right"))
        world.send("left", [(b"l%d" % n, time) for n, time in enumerate(left)])
        world.send("right", [(b"r%d" % n, time) for n, time in enumerate(right)])
        with world.task() as task:
            for topic, count in moves:
                world.readers[topic].due = count
                world.step(task)
        return world.out()

    everything = [("left", 99), ("right", 99)]
    at_once = played([("left", 0), *everything])
    assert len(at_once) == len(left) + len(right)
    assert played([*arrivals, *everything]) == at_once


def test_records_wait_for_a_partition_that_is_known_to_have_older_ones() -> None:
    world = World(copy("left", "right"))
    world.send("left", [(b"l", 5)])
    world.send("right", [(b"r1", 1), (b"r2", 9)])
    with world.task() as task:
        world.readers["left"].due = 1
        assert not world.step(task)
        world.readers["right"].due = 1
        world.step(task)
        assert world.out() == [b"r1"]
        world.readers["right"].due = 1
        world.step(task)
        assert world.out() == [b"r1", b"l", b"r2"]
        # Nothing more is known of the other one, so nothing waits.
        world.send("left", [(b"l2", 20)])
        world.readers["left"].due = 1
        world.step(task)
    assert world.out() == [b"r1", b"l", b"r2", b"l2"]


def test_the_tasks_of_a_process_share_its_copy_of_global_tables(tmp_path: Path) -> None:
    """One that each task opened anew for itself would be closed and opened with every step, and lose what it has counted."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(BytesSerde(), BytesSerde())).join(
        builder.global_table("names", Consumed(BytesSerde(), BytesSerde())),
        lambda key, value: value,
        lambda value, name: name,
    ).to("out", Produced(BytesSerde(), BytesSerde()))
    world = World(builder.build(), partitions=2)
    world.job = replace(world.job, state_dir=tmp_path)
    jobs = [world.task(number).job for number in range(2)]
    ends = {"names": TopicOffsets("an id", (0,))}
    copies = [global_tables._copy_of(job, global_tables._folder(job, ends)) for job in jobs]
    assert copies[0] is copies[1]


def test_a_task_continues_behind_its_last_commit() -> None:
    world = World(copy("left", "right"))
    world.send("left", [(b"a", 1), (b"b", 2)])
    with world.task() as task:
        world.readers["left"].due, world.readers["right"].due = 1, 1
        world.step(task)
        world.readers["left"].due = 1
        # Sent, but not committed.
        assert task.begin(now_ms=10_000)
    with world.task() as task:
        assert task.positions == {("left", 0): 1, ("right", 0): 0}
        world.readers["left"].due, world.readers["right"].due = 9, 9
        world.step(task)
    assert world.out() == [b"a", b"b"]


def test_a_key_in_another_partition_fails_before_anything_is_sent() -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream("in").group_by_key().count().to_stream().to("out")
    world = World(builder.build(), partitions=2)
    wrong = 1 - partition_for_key(b"k", 2)
    own = next(key for key in (b"a", b"b", b"c", b"d") if partition_for_key(key, 2) == wrong)
    world.kafka.append("in", own, b"v", 1, partition=wrong)
    world.send("in", [(b"v", 1)], partition=wrong)
    with world.task(wrong) as task:
        world.readers["in"].due = 2
        with pytest.raises(
            KeyPlacementError,
            match=f"at in-{wrong} offset 1, key b'k', has a key of task {1 - wrong}, by murmur2: crc32 would put it here",
        ):
            world.step(task)
    assert task.session.last is None


def test_a_topic_with_more_partitions_than_tasks_ends_live_execution() -> None:
    world = World(copy("left", "right"))
    with world.task() as task:
        task.ask()
        world.kafka.create_topic("right", 2)
        with pytest.raises(NewPartitionsError, match="right has 2 partitions now, and the sub-topology 1 tasks"):
            task.ask()


def made_anew(world: World, topic: str) -> None:
    world.kafka.delete_topic(topic)
    world.kafka.create_topic(topic, 1)


@pytest.mark.parametrize("begun", [False, True])
def test_nothing_is_committed_once_a_topic_is_known_to_be_another_one(begun: bool) -> None:
    world = World(copy("in"))
    world.send("in", [(b"old", 1)])
    with world.task() as task:
        world.run(task)
        world.send("in", [(b"more", 2)])
        world.readers["in"].due = 1
        assert not begun or task.begin(now_ms=10_000)
        made_anew(world, "in")
        world.send("in", [(b"new", 3)] * 9)
        with pytest.raises(TopicRecreatedError, match="'in'"):
            task.ask()
        with pytest.raises(TopicRecreatedError, match="'in'"):
            task.commit() if begun else task.begin(now_ms=10_000)
    assert world.out() == [b"old"]
    with pytest.raises(TopicRecreatedError, match="'in'"), world.task():
        """The next attempt finds it, too."""


def test_a_topic_that_was_made_anew_is_no_lost_offset() -> None:
    world = World(copy("in"))
    world.job = replace(world.job, source=replace(world.job.source, on_lost_offsets="latest"))
    world.send("in", [(b"old", 1), (b"old", 2)])
    with world.task() as task:
        world.run(task)
    made_anew(world, "in")
    with pytest.raises(TopicRecreatedError, match="'in'"), world.task():
        """Its position is beyond the end of the new one."""


def test_a_topic_without_a_position_begins_where_its_policy_says() -> None:
    world = World(copy("left", "right"))
    world.job = replace(world.job, source=replace(world.job.source, starting={"left": "earliest", "right": "latest"}))
    world.send("left", [(b"a", 1)])
    world.send("right", [(b"b", 2)])
    with world.task(start=SourceOffsets({})) as task:
        assert task.positions == {("left", 0): 0, ("right", 0): 1}


def test_a_marker_keeps_the_positions_of_topics_out_of_sight() -> None:
    world = World(copy("left", "right"))
    world.send("left", [(b"a", 1), (b"b", 2)])
    with world.task() as task:
        world.run(task)
    whole = world.job
    world.job = replace(whole, source=replace(whole.source, starting={"right": "earliest"}))
    world.send("right", [(b"c", 3)])
    with world.task() as task:
        world.run(task)
        assert task.session.last is not None
        assert task.session.last.live_positions == {("left", 0): 2, ("right", 0): 1}
    world.job = whole
    with world.task(start=SourceOffsets({})) as task:
        assert task.positions == {("left", 0): 2, ("right", 0): 1}


def test_a_client_that_hears_nothing_of_records_that_exist_is_replaced() -> None:
    world = World(copy("in"))
    with world.task() as task:
        for waits_s, reopened in ((SILENT_S, 0), (SILENT_S / 2, 0), (SILENT_S / 2, 1), (SILENT_S / 2, 1)):
            if world.now:
                world.send("in", [(b"v", 1)])
            world.now += waits_s
            world.step(task)
            task.ask()
            task.heed()
            assert world.readers["in"].reopened == reopened


def test_a_tick_is_a_step_without_records_and_the_first_is_at_the_start() -> None:
    world = World(copy("in"))
    world.job = replace(world.job, source=replace(world.job.source, tick_ms=1_000))
    world.now = 50.0
    with world.task() as task:
        assert world.step(task)
        assert not world.step(task)
        world.now += 0.9
        assert not world.step(task)
        world.now += 0.2
        assert world.step(task)
    assert task.session.last is not None
    assert task.session.last.version == 2


def test_a_task_rests_until_records_arrive_or_a_tick_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arriving, "wake", lambda self, file: True)
    world = World(copy("left", "right"))
    world.job = replace(world.job, source=replace(world.job.source, tick_ms=1_000))
    world.send("left", [(b"a", 5)])
    with world.task(wakes=1) as task:
        assert task.rests_s == POLL_S, "one partition has records, and of the other one nothing is known"
        world.run(task)
        world.now += 0.4
        assert task.rests_s == pytest.approx(0.6)
    world.job = replace(world.job, source=replace(world.job.source, tick_ms=None))
    with world.task(wakes=1) as task:
        world.run(task)
        assert task.rests_s == inf
    with world.task() as task:
        world.run(task)
        assert task.rests_s == POLL_S, "its readers say nothing"


def test_a_task_rests_shortly_while_records_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arriving, "wake", lambda self, file: True)
    world = World(copy("in"))
    world.send("in", [(b"a", 5)])
    with world.task(wakes=1) as task:
        assert task.rests_s == SOON_S, "its client has not given the record"
        world.run(task)
        assert task.rests_s == inf


def test_the_consumer_group_has_positions_once_a_second_and_at_the_end() -> None:
    world = World(copy("in"))

    def group() -> int | None:
        return world.kafka.group_offsets(APP, [("in", 0)]).get(("in", 0))

    with world.task() as task:
        seen = []
        for at_s in (0.0, 0.5, 1.0, 1.1):
            world.now = at_s
            world.send("in", [(b"v", 1)])
            world.readers["in"].due = 1
            assert world.step(task)
            seen.append(group())
        assert seen == [None, None, 3, 3]
        assert task.begin(now_ms=10_000, last=True)
        task.commit()
        task.apply()
        assert group() == 4
        assert not task.begin(now_ms=10_000, last=True)
    # After a crash the group may be behind the marker: the next session catches up, without any record.
    with world.task() as task:
        assert not world.step(task)
        world.now += 1.0
        assert world.step(task)
        assert not world.step(task)


def test_records_of_a_retry_topic_come_when_they_are_due_and_hold_nothing_up() -> None:
    world = World(copy("in", "retry"))
    world.job = replace(world.job, source=replace(world.job.source, delays={"retry": 1_000}))
    world.send("retry", [(b"r1", 9_000), (b"r2", 9_001)])
    with world.task() as task:
        world.readers["retry"].due = 1
        assert not world.readers["retry"].at_end
        world.send("in", [(b"a", 5)])
        world.readers["in"].due = 1
        assert task.begin(now_ms=9_999)
        task.commit()
        task.apply()
        assert world.out() == [b"a"]
        world.readers["retry"].due = 1
        assert task.begin(now_ms=10_000)
        task.commit()
        task.apply()
        assert world.out() == [b"a", b"r1"]
        assert task.positions["retry", 0] == 1
        assert task.begin(now_ms=10_001)
        task.commit()
        task.apply()
    assert world.out() == [b"a", b"r1", b"r2"]


def test_a_task_with_records_that_its_client_has_not_heard_of_is_not_idle() -> None:
    world = World(copy("in"), settings={"idle_timeout_ms": 1_000})
    world.job = replace(world.job, source=replace(world.job.source, tick_ms=1_000))

    def stream_time(task: LiveTask) -> int:
        assert task.session.last is not None
        return task.session.last.stream_time

    with world.task() as task:
        world.send("in", [(b"a", 5)])
        world.readers["in"].due = 1
        assert world.step(task)
        world.send("in", [(b"b", 6)])
        reader = world.readers["in"]
        hears, reader.poll = reader.poll, lambda _: []  # type: ignore[method-assign]
        assert reader.at_end
        for now_ms in (11_000, 12_000):
            world.now += 1.0
            assert task.begin(now_ms)
            task.commit()
            task.apply()
            assert stream_time(task) == 5
        reader.poll, reader.due = hears, 1  # type: ignore[method-assign]
        for now_ms in (12_500, 14_000):
            world.now += 1.0
            assert task.begin(now_ms)
            task.commit()
            task.apply()
    assert world.out() == [b"a", b"b"]
    assert stream_time(task) == 6 + 1_500


def test_a_key_belongs_to_the_partition_of_its_canonical_bytes() -> None:
    """In any notation, with and without an operator in front of the shuffle."""
    spaced, compact = (json.dumps({"id": 1}, separators=by).encode() for by in (None, (",", ":")))
    own = partition_for_key(compact, 5)
    assert partition_for_key(spaced, 5) != own
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(JsonSerde(), BytesSerde()))
    stream.group_by_key().count(Materialized("n")).to_stream().to("out", Produced(JsonSerde(), JsonSerde()))
    stream.filter(lambda k, v: True).group_by_key().count(Materialized("m"))
    for partition in (own, partition_for_key(spaced, 5)):
        world = World(builder.build(), partitions=5)
        for key in (spaced, compact):
            world.kafka.append("in", key, b"v", 1, partition=partition)
        with world.task(partition) as task:
            world.readers["in"].due = 2
            if partition == own:
                world.step(task)
                columns = world.kafka.columns("out", own)
                assert columns is not None
                assert (columns.keys.to_pylist(), columns.values.to_pylist()) == ([compact], [b"2"])
            else:
                with pytest.raises(KeyPlacementError, match=f"has a key of task {own}.* in another notation"):
                    world.step(task)


def test_a_pause_keeps_its_clients() -> None:
    world = World(copy("in"))
    with world.task() as task:
        world.send("in", [(b"0", 0)])
        world.run(task)
        # Nobody asks the client of a paused task for records.
        world.send("in", [(b"1", 1)])
        for _ in range(120):
            world.now += 5.0
            task.ask()
            task.heed()
        reader = world.readers["in"]
        assert reader.reopened == 0
        # It has fetched what has come.
        world.run(task)
        world.now += 5.0
        task.ask()
        task.heed()
        assert (reader.reopened, world.out()) == (0, [b"0", b"1"])


def test_a_retried_record_of_a_clock_that_was_ahead_holds_nothing_up() -> None:
    reader = Arriving(SimulatedKafka({"in-retry": 1}), "in-retry", 0, 0)
    partition = OwnPartition("in-retry", 0, reader, 0, 0.0, delay_ms=10)
    waiting: Any = SimpleNamespace(order=np.array([100, 5_000_000, 101, 115]))
    partition.waiting = [waiting]
    due = np.searchsorted(partition.order(now_ms=111), 111 - 10, "right")
    assert due == 3
    # Twice its delay after now it may still be the clock of this host, which was set a little.
    assert np.searchsorted(partition.order(now_ms=4_999_995), 4_999_985, "right") == 1
