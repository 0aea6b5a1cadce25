"""The reading side of live tasks: the order by event time, whatever arrives first, and the bounds of what waits and of a step."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.columns import RecordColumns
from state.commit.shared import SharedProducer
from state.commit.transaction import Transaction
from state.errors import ClientFailure
from state.kafka.error_mapping import PARTITION_EOF
from state.kafka.key_hash import partition_for_key
from state.kafka.range_reader import FetchedHead, RangeReader
from streams import (
    BytesSerde,
    Consumed,
    JsonSerde,
    Materialized,
    Produced,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    agg,
    col,
)
from streams.engine.live.partitions import FIRST_RECORDS, MOST_RECORDS, Pace
from streams.engine.live.task import LiveTask
from streams.engine.source.offsets import OffsetRange, SourceOffsets, TopicOffsets
from streams.engine.source.partition_times import PartitionTimes
from streams.engine.step.job import ProcessMemory
from streams.engine.step.read import PlannedRange, read_range
from streams.engine.step.step import BatchContext, run_step
from streams.errors import RecordFailedError
from streams.model.record import NO_TIME
from streams.model.timestamps import (
    CustomTimestampExtractor,
    FieldTimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology
from tests.budget import up_to
from tests.live.test_task import World

FAR_AHEAD = 7_258_118_400_000
"""In the year 2200, in ms."""


def by_field(*topics: str) -> Topology:
    """Copies topics whose event times are in a field."""
    builder = StreamsBuilder()
    consumed = Consumed(BytesSerde(), JsonSerde(), timestamp_extractor=FieldTimestampExtractor(("at",), "ms"))
    builder.stream(list(topics), consumed).to("out", Produced(BytesSerde(), JsonSerde()))
    return builder.build()


def value(name: str, time: int | None) -> bytes:
    return b"no JSON" if time is None else json.dumps({"id": name, "at": time}, separators=(",", ":")).encode()


def finish(world: World, task: LiveTask) -> None:
    """Steps until everything is processed."""
    for _ in range(100):
        world.run(task)
        if all(reader.at_end for reader in world.readers.values()) and not any(one.waiting for one in task._partitions):
            return
    raise AssertionError("it does not come to an end")


SKIPPED = {"future": "skip", "deserialization": "skip", "max_future_ms": 1_000}
# An event time (None: no record that can be read), and when Kafka got the record.
written = st.lists(st.tuples(st.sampled_from([*range(8), None, FAR_AHEAD]), st.integers(0, 9)), max_size=8)
arrivals = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 4)), max_size=20)


@pytest.mark.slow
@up_to(50)
@given(written, written, written, arrivals, st.integers(1, 6))
def test_the_order_is_that_of_event_times_whatever_arrives_first(
    a: list[Any], b: list[Any], c: list[Any], moves: list[tuple[str, int]], most: int
) -> None:
    def played(moves: Sequence[tuple[str, int]], most: int) -> list[bytes | None]:
        world = World(by_field("a", "b", "c"), settings=SKIPPED)
        for topic, records in zip("abc", (a, b, c), strict=True):
            for n, (time, in_kafka) in enumerate(records):
                world.kafka.append(topic, b"k", value(f"{topic}{n}", time), in_kafka, partition=0)
        with world.task() as task:
            task._pace.most = most
            for topic, count in moves:
                world.readers[topic].due = count
                world.step(task)
                task._pace.most = most
            finish(world, task)
            counters = dict(task.tally.counters)
            last = task.positions
        bad = sum(time is None for records in (a, b, c) for time, _ in records)
        assert counters.get("skipped:deserialization", 0) == bad
        assert last == {(topic, 0): len(records) for topic, records in zip("abc", (a, b, c), strict=True)}
        return world.out()

    at_once = played([], MOST_RECORDS)
    assert len(at_once) == sum(time not in (None, FAR_AHEAD) for records in (a, b, c) for time, _ in records)
    assert played(moves, most) == at_once


def test_a_record_that_is_turned_away_holds_nothing_up() -> None:
    world = World(by_field("a", "b"), settings=SKIPPED)
    for topic, times in (("a", (1, FAR_AHEAD, 3)), ("b", (2, 4))):
        for time in times:
            world.kafka.append(topic, b"k", value(topic, time), 1, partition=0)
    with world.task() as task:
        for due in ({"a": 2, "b": 0}, {"b": 1}):
            for topic, count in due.items():
                world.readers[topic].due = count
            world.step(task)
        # Of `a`, 1 was certain once `b` had 2; the record of the year 2200 is gone.
        assert world.out() == [value("a", 1)]
        finish(world, task)
    assert world.out() == [value("a", 1), value("b", 2), value("a", 3), value("b", 4)]


def test_an_error_is_raised_when_its_record_is_next() -> None:
    world = World(by_field("a", "b"))
    for topic, times in (("a", (2, None, 3)), ("b", (1, 5))):
        for time in times:
            world.kafka.append(topic, b"k", value(topic, time), 1, partition=0)
    with world.task() as task:
        world.readers["a"].due = 3
        assert not world.step(task), "the record in front of the bad one waits for the other topic"
        world.readers["b"].due = 1
        world.step(task)
        assert world.out() == [value("b", 1)]
        world.readers["b"].due = 1
        world.step(task)
        assert world.out() == [value("b", 1), value("a", 2)]
        with pytest.raises(RecordFailedError, match="record at a-0 offset 1"):
            world.step(task)
        # Nothing behind the bad record, and nothing that has its place behind it.
        assert task.positions == {("a", 0): 1, ("b", 0): 1}
    assert task.tally.counters["in:" + world.sub.sources[0].name] == 2


def test_of_several_bad_records_the_first_one_is_named() -> None:
    world = World(by_field("a"), settings={"max_future_ms": 1_000})
    for time in (1, FAR_AHEAD, None):
        world.kafka.append("a", b"k", value("a", time), 1, partition=0)
    with world.task() as task:
        world.readers["a"].due = 3
        world.step(task)
        with pytest.raises(RecordFailedError, match=r"record at a-0 offset 1, key .* has a timestamp too far"):
            world.step(task)
    assert world.out() == [value("a", 1)]


@pytest.mark.parametrize("by_expression", [True, False])
@pytest.mark.parametrize("due", [1, 2])
def test_a_record_that_is_filtered_out_has_its_place_in_the_order(by_expression: bool, due: int) -> None:
    builder = StreamsBuilder()
    streams = [builder.stream(topic, Consumed(StringSerde(), JsonSerde())) for topic in ("a", "b")]
    condition: Any = col("n") > 0 if by_expression else lambda key, value: value["n"] > 0
    both = streams[0].filter(condition).merge(streams[1].filter(condition))
    windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=2))
    both.group_by_key().windowed_by(windows).aggregate(n=agg.count()).to_stream(lambda window, _: window.key).to(
        "out", Produced(StringSerde(), JsonSerde())
    )
    world = World(builder.build())
    for topic, n, time in (("a", 0, 100), ("a", 1, 1), ("b", 1, 5), ("b", 1, 200)):
        world.kafka.append(topic, b"k", b'{"n":%d}' % n, time, partition=0)
    with world.task() as task:
        world.readers["a"].due = due
        world.step(task)
        world.readers["b"].due = 1
        world.step(task)
        finish(world, task)
        # In `a`, the record of 1 comes behind that of 100, and so behind that of 5 in `b`, which closes its window.
        assert sum(count for name, count in task.tally.counters.items() if name.endswith(":late")) == 1
    assert len(world.out()) == 2


def test_records_without_a_time_of_their_own_have_that_of_the_step() -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    now = Consumed(BytesSerde(), BytesSerde(), timestamp_extractor=WallclockTimestampExtractor())
    builder.stream("now", now).merge(builder.stream("old")).to("out")
    world = World(builder.build())
    world.send("now", [(b"n1", 1), (b"n2", 1)])
    world.send("old", [(b"o1", 5), (b"o2", 10_001)])
    with world.task() as task:
        world.readers["now"].due = 1
        assert not world.step(task)
        world.readers["old"].due = 1
        world.step(task)
        assert world.out() == [b"o1"], "older than the step; the other one may be followed by older ones"
        finish(world, task)
    assert world.out() == [b"o1", b"n1", b"n2", b"o2"]


def test_dead_letters_go_when_all_in_front_of_them_have_gone() -> None:
    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde(), timestamp_extractor=FieldTimestampExtractor(("at",), "ms"))
    builder.stream(["a", "b"], consumed).group_by_key().count(Materialized("n")).to_stream().to(
        "out", Produced(StringSerde(), JsonSerde())
    )
    world = World(builder.build(), settings={"deserialization": "dlq", "dead_letter_topic": "dlq"})
    world.kafka.create_topic("dlq")
    for time in (3, None, 4):
        world.kafka.append("a", b"k", value("a", time), 1, partition=0)
    for time in (2, 9):
        world.kafka.append("b", b"k", value("b", time), 1, partition=0)

    def letters() -> int:
        columns = world.kafka.columns("dlq", 0)
        return 0 if columns is None else len(columns)

    with world.task() as task:
        world.readers["a"].due, world.readers["b"].due = 3, 1
        world.step(task)
        assert (task.positions["a", 0], letters()) == (0, 0)
        finish(world, task)
    assert (task.positions["a", 0], letters(), world.out()[-1]) == (3, 1, b"4")


# --- Partition times


def time_of(record: Any, partition_time: int) -> int:
    found: int = record.value.get("at", partition_time)
    return found


def with_partition_times(*topics: str) -> Topology:
    builder = StreamsBuilder()
    consumed = Consumed(BytesSerde(), JsonSerde(), timestamp_extractor=CustomTimestampExtractor(time_of))
    builder.stream(list(topics), consumed).to("out", Produced(BytesSerde(), JsonSerde()))
    return builder.build()


def times(world: World) -> list[int]:
    columns = world.kafka.columns("out", 0)
    return [] if columns is None else columns.timestamps.tolist()


def test_the_partition_time_is_that_of_the_committed_position() -> None:
    world = World(with_partition_times("a", "b"))
    for at in ('{"at": 5}', "{}", '{"at": 80}'):
        world.kafka.append("a", b"k", at.encode(), 1, partition=0)
    for at in ('{"at": 20}', '{"at": 90}'):
        world.kafka.append("b", b"k", at.encode(), 1, partition=0)
    with world.task() as task:
        # All of `a` has arrived, but its last record waits for `b`.
        world.readers["a"].due, world.readers["b"].due = 3, 1
        world.step(task)
        assert (times(world), task.positions["a", 0]) == ([5, 5, 20], 2)
    planner = PartitionTimes(world.kafka, world.logs[0], lambda places: None)  # type: ignore[arg-type]
    found = planner.before([OffsetRange("a", 0, 2, 3), OffsetRange("b", 0, 1, 2)])
    assert found == {("a", 0): 5, ("b", 0): 20}, "micro-batches go on with it"
    world.kafka.append("a", b"k", b"{}", 1, partition=0)
    with world.task() as task:
        finish(world, task)
    assert times(world) == [5, 5, 20, 80, 80, 90], "the next lease, too"
    with world.task() as task:
        world.kafka.append("a", b"k", b"{}", 1, partition=0)
        finish(world, task)
    assert times(world)[-1] == 80


def test_a_record_without_a_timestamp_has_the_partition_time_in_the_next_lease_too() -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    extractor = UsePartitionTimeOnInvalidTimestamp()
    builder.stream("in", Consumed(BytesSerde(), BytesSerde(), timestamp_extractor=extractor)).to("out")
    world = World(builder.build())
    for timestamp in (7, -1):
        world.send("in", [(b"v", timestamp)])
        with world.task() as task:
            finish(world, task)
    assert times(world) == [7, 7]


def test_the_partition_time_of_micro_batches_is_that_of_the_first_live_step() -> None:
    world = World(with_partition_times("in"))
    world.kafka.append("in", b"k", b'{"at": 7}', 1, partition=0)
    with world.task() as task:
        step, ids = task.access.step, world.kafka.topic_ids(["in"])
        planned = PlannedRange("batch", ids["in"], OffsetRange("in", 0, 0, 1), time=NO_TIME)
        columns = world.kafka.columns("in", 0)
        assert columns is not None
        rows = list(read_range(world.job, planned, [columns]))
    run_step(world.job, step, BatchContext(0, 10_000, "run"), rows, None, lambda _: {})
    world.kafka.append("in", b"k", b"{}", 1, partition=0)
    task = world.task()
    task._start = SourceOffsets({"in": TopicOffsets(ids["in"], (1,))})
    with task:
        finish(world, task)
    assert times(world) == [7, 7]


# --- Open transactions


class Client(RangeReader[RecordColumns]):
    """Librdkafka's consumer: it knows the end of the log behind open transactions, and reads to the last stable offset."""

    says_ends = True

    def __init__(self, kafka: SimulatedKafka, topic: str, partition: int, start: int) -> None:
        super().__init__(topic, partition, start, 60.0)
        self._log = kafka.log(topic, partition)
        self._kafka = kafka
        self._next = start
        self._said = -1

    def _take_records(self, end: int, max_records: int) -> RecordColumns | None:
        columns = self._kafka.columns(self.topic, self.partition, self._next)
        if columns is None:
            return None
        columns = columns.part(0, min(max_records, len(columns)))
        self._next = int(columns.offsets[-1]) + 1
        return columns

    def _head(self) -> FetchedHead | None:
        end = self._log.stable_end
        return (
            FetchedHead(end, ClientFailure(PARTITION_EOF, "_PARTITION_EOF", "end"))
            if self.says_ends and self._said != end
            else None
        )

    def _drop_head(self) -> None:
        self._said = self._log.stable_end

    def _fill(self, max_records: int, wait_ms: int) -> bool:
        return False

    def _client_position(self) -> int:
        return int(self._log.stable_end)

    def _fetched_end(self) -> int:
        return int(self._log.end)

    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        return 0, 0

    def _open(self) -> None:
        """There is nothing to open."""

    def _close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("says_ends", [True, False])
def test_an_open_transaction_holds_up_its_own_topic_only(says_ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "says_ends", says_ends)
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(["left", "right"]).to("out")
    world = World(builder.build())
    monkeypatch.setattr(world, "_open", partial(Client, world.kafka))
    sink = world.kafka.producer("of-somebody-else")
    sink.init_transactions()
    for text in (b"committed", b"open"):
        sink.begin()
        sink.send("left", 0, b"k", text, 1)
        if text == b"committed":
            sink.commit()
    world.send("right", [(b"r%d" % n, 100 + n) for n in range(3)])
    with world.task() as task:
        for _ in range(4):
            # A client that does not say where it has come to an end leaves it to the task to ask the brokers.
            world.now += 0.0 if says_ends else 1.0
            world.step(task)
        assert world.out() == [b"committed", b"r0", b"r1", b"r2"]
        assert not task._partitions.waits_for_others, "so it rests until a client wakes it"
        sink.commit()
        world.step(task)
    assert world.out()[4:] == [b"open"]


# --- Bounds


class Endless:
    """A reader of a topic with as many records as anybody asks for, each a ms later than the one before."""

    at_end = False

    def __init__(self, topic: str, first_ms: int, size: int, most: int) -> None:
        self._topic, self._first_ms, self._value, self._most = topic, first_ms, b"x" * size, most
        self.position = 0

    def poll(self, max_records: int) -> list[RecordColumns]:
        offsets = np.arange(self.position, self.position + min(max_records, self._most))
        self.position += len(offsets)
        keys, values = ([cell] * len(offsets) for cell in (b"k", self._value))
        columns = (pa.array(cells, pa.binary()) for cells in (keys, values))
        return [RecordColumns(self._topic, 0, offsets, offsets + self._first_ms, *columns)]

    def wake(self, file: int) -> bool:
        return False

    def reopen(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(["large", "old"]).to("out")
    world = World(builder.build())
    world.job = replace(world.job, memory=ProcessMemory(4_000_000, 0))
    readers = {"large": Endless("large", 1_000_000, 20_000, 50), "old": Endless("old", 0, 1, 1)}
    monkeypatch.setattr(world, "_open", lambda topic, partition, start: readers[topic])
    with world.task() as task:
        for _ in range(100):
            world.step(task)
        large, old = task._partitions
        assert 1_000_000 < large.size <= 2_000_000
        assert large.count == readers["large"].position <= 100
        assert old.committed == readers["old"].position == 100
    # However large it is, one record is taken.
    for topic in readers:
        world.kafka.log(topic, 0).end = 1_000
    world.job = replace(world.job, memory=ProcessMemory(2, 0))
    readers |= {"large": Endless("large", 0, 20_000, 50), "old": Endless("old", 0, 1, 50)}
    with world.task() as task:
        for _ in range(10):
            world.step(task)
        assert all(one.committed > 0 and one.size < 51 * 20_200 for one in task._partitions)


def test_what_waits_is_bounded_by_what_a_micro_batch_may_have() -> None:
    world = World(by_field("a"), partitions=2)
    world.job = replace(world.job, source=replace(world.job.source, max_records=6))
    for time in range(9):
        world.kafka.append("a", b"k", value("a", time), 1, partition=partition_for_key(b"k", 2))
    with world.task(partition_for_key(b"k", 2)) as task:
        world.readers["a"].due = 9
        world.step(task)
        assert [one.committed for one in task._partitions] == [3]


def test_a_step_takes_about_as_long_as_it_may() -> None:
    steps: list[int] = []
    cost_s = 0.01
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())

    def slow(value: Any) -> Any:
        world.now += cost_s
        steps[-1] += 1
        return value

    builder.stream("in").map_values(slow).to("out")
    world = World(builder.build())
    world.send("in", [(b"v", n) for n in range(9_000)])
    with world.task() as task:
        for at in range(14):
            # First 10 ms for each record, then 1 ms, and at last 100.
            cost_s = 0.01 if at < 4 else 0.001 if at < 9 else 0.1
            steps.append(0)
            world.readers["in"].due = 9_000
            world.step(task)
    assert steps[0] == FIRST_RECORDS
    assert all(90 <= count <= 110 for count in steps[1:5])
    assert all(700 <= count <= 1_100 for count in steps[7:10])
    assert all(5 <= count <= 15 for count in steps[11:])


def test_tasks_that_share_a_slot_share_the_time() -> None:
    alone, together = Pace(1), Pace(10)
    for pace in (alone, together):
        pace.note(100, 0.5)
    assert (alone.most, together.most) == (201, 20)
    # What is quick, or has no records, says nothing.
    alone.note(3, 0.001)
    alone.note(0, 5.0)
    assert alone.most == 201
    for _ in range(9):
        alone.note(alone.most, 0.01)
    assert alone.most == MOST_RECORDS


def test_a_step_that_has_waited_for_a_processor_makes_the_next_ones_no_smaller() -> None:
    pace = Pace(32)
    pace.note(100, 0.02)
    assert pace.most == 501
    pace.note(100, 0.4)
    assert pace.most == 501
    # A second one in a row has not only waited; nor has one that took longer than a slot may.
    pace.note(100, 0.4)
    assert pace.most == 25
    pace.note(20, 0.01)
    pace.note(20, 2.0)
    assert pace.most == 1


def test_tasks_that_were_opened_at_different_times_send_their_offsets_at_the_same() -> None:
    """The two requests are the same for however many tasks of a transaction, so they are needed once a second, not once a task."""

    def sent(opened_s: float) -> list[float]:
        world, found = World(by_field("in")), []
        world.now = opened_s
        with world.task() as task:
            for at in range(1, 40):
                world.now = 1.0 + at / 10
                world.kafka.append("in", b"k", value("in", at), 1, partition=0)
                world.readers["in"].due = at
                assert task.begin(10_000)
                assert task._step is not None
                if task._step.noted:
                    found.append(world.now)
                task.commit()
                task.apply()
        return found

    assert sent(0.35) == sent(0.7) == [1.1, 2.0, 3.0, 4.0]


def test_a_new_producer_makes_the_next_steps_no_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(by_field("in"))
    for n in range(300):
        world.kafka.append("in", b"k", value("in", n), n, partition=0)
    with world.task() as task:
        transaction = SharedProducer.transaction

        def slow(shared: SharedProducer) -> Transaction:
            world.now += 0.0 if shared._transaction else 5.0
            return transaction(shared)

        monkeypatch.setattr(SharedProducer, "transaction", slow)
        world.readers["in"].due = 300
        world.step(task)
        assert task._pace.most > FIRST_RECORDS


# --- Errors


def test_the_first_bad_record_of_each_step_is_logged_and_none_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    world = World(by_field("a"), settings=SKIPPED)
    with caplog.at_level(logging.WARNING), world.task() as task:
        for _ in range(3):
            for _ in range(5):
                world.kafka.append("a", b"k", b"no JSON", 1, partition=0)
            world.readers["a"].due = 5
            world.step(task)
        assert not task._arrivals._pipeline._run.handlers._unreadable
    found = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert [f"offset {offset}" in text for offset, text in zip((0, 5, 10), found, strict=True)] == [True] * 3
    assert task.tally.counters["skipped:deserialization"] == 15


# --- No head: operators run in the task


def test_a_live_task_has_operators_in_front_of_it_only_on_columns() -> None:
    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde())
    stream = builder.stream("in", consumed)
    stream.filter(col("n") > 1).group_by_key().count(Materialized("n")).to_stream().to("out")
    stream.map_values(lambda value: value).group_by_key().count(Materialized("m")).to_stream().to("other")
    world = World(builder.build())
    task = world.task()
    planned, live = world.sub, task.job.sub
    assert {entry.transport for entry in planned.entries} == {"columns", "object"}
    assert {entry.transport for entry in live.entries} == {"columns", "raw"}
    assert live.head == {step.node for step in planned.columns.steps} < planned.head
    same = ("name", "nodes", "stores", "topology_hash", "topics", "sinks")
    assert all(getattr(live, name) == getattr(planned, name) for name in same)


def test_records_that_no_state_is_kept_of_may_be_in_any_partition() -> None:
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream("in").select_key(lambda key, value: value).to("out")
    world = World(builder.build(), partitions=2)
    for number in range(2):
        world.send("in", [(b"%d" % number, 1)], partition=number)
        with world.task(number) as task:
            world.readers["in"].due = 1
            world.step(task)
    both = [world.kafka.columns("out", number) for number in range(2)]
    assert sorted(cell for one in both if one is not None for cell in one.values.to_pylist()) == [b"0", b"1"]
