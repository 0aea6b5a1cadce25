"""Rows between reader and task: format, routing, order, times."""

import numpy as np
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from state.kafka.key_hash import partition_for_key
from streams import (
    Consumed,
    LogAndSkipOnInvalidTimestamp,
    Produced,
    StreamsBuilder,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    agg,
)
from streams.engine.graph.rows import NOW, RowBatch, decode, encode
from streams.engine.graph.settings import TaskSettings
from streams.engine.reader import pipeline, task_inputs
from streams.engine.reader.pipeline import ReaderPipeline
from streams.errors import RecordFailedError, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan

SETTINGS = TaskSettings("app")


def columns(keys, values, timestamps=None, topic="in", partition=0):
    n = len(keys)
    times = np.arange(n) if timestamps is None else np.array(timestamps)
    offsets = np.arange(100, 100 + n, dtype=np.int64)
    return RecordColumns(
        topic, partition, offsets, times.astype(np.int64), pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )


def plan_of(builder):
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    return sub


def test_encode_decode():
    rows = pa.RecordBatch.from_pydict({"offset": pa.array([1, 2]), "key": pa.array([b"a", None], pa.binary())})
    back = decode(encode(RowBatch("töpic", 3, -1, rows.slice(1))))
    assert (back.topic, back.partition, back.entry) == ("töpic", 3, -1)
    assert back.rows.to_pydict() == {"offset": [2], "key": [None]}


@pytest.mark.parametrize("kind", ["raw", "object", "columns"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_go_to_the_task_of_their_key(kind, tasks):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    if kind == "object":
        stream = stream.map_values(lambda v: v)
    if kind == "columns":
        stream.group_by_key().aggregate(x=agg.sum("x"))
    else:
        stream.group_by_key().count()
    keys = [b"k%d" % (i % 11) if i % 5 else None for i in range(60)]
    head = ReaderPipeline(plan_of(builder), tasks, SETTINGS)
    found = {}
    for task, batch in head.run(columns(keys, [b'{"x":%d}' % i for i in range(60)], partition=7)):
        batch = decode(encode(batch))
        assert batch.rows.column("offset").to_pylist() == sorted(batch.rows.column("offset").to_pylist())
        for offset, key in zip(batch.rows["offset"].to_pylist(), batch.rows["key"].to_pylist(), strict=True):
            found[offset] = (task, key)
        if kind == "columns":
            assert set(batch.rows["key"].dictionary.to_pylist()) == set(batch.rows["key"].drop_null().to_pylist())
    assert found == {
        100 + i: (7 % tasks if key is None else partition_for_key(key, tasks), key) for i, key in enumerate(keys)
    }


def test_rows_of_one_record_keep_depth_first_order_over_all_entries():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    serde = Produced()
    doubled = stream.flat_map_values(lambda v: [v, v + 1])
    doubled.filter(lambda v: True).to("out", serde)
    stream.to("out", Produced(name="second"))
    doubled.map_values(lambda v: -v).to("out", Produced(name="third"))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            topic.pipe_key_value_list([("k", 10), ("k", 20)], start_ms=5)
        assert driver.create_output_topic("out").read_values_to_list() == [10, -10, 11, -11, 10, 20, -20, 21, -21, 20]


def test_a_record_that_becomes_too_many_rows_meets_its_policy(monkeypatch):
    monkeypatch.setattr(task_inputs, "BRANCH_BITS", 2)
    builder = StreamsBuilder()
    builder.stream("in").flat_map_values(lambda v: range(v)).group_by_key().count()
    sub, piece = plan_of(builder), columns([b"a", b"b"], [b"4", b"5"])
    head = ReaderPipeline(sub, 1, TaskSettings("app", processing="skip"))
    ((_, batch),) = head.run(piece)
    assert batch.rows["offset"].to_pylist() == [100] * 4 + [101] * 4
    assert head.counters["skipped:processing"] == 1
    with pytest.raises(RecordFailedError, match=r"offset 101.*flat_map less at a time"):
        list(ReaderPipeline(sub, 1, SETTINGS).run(piece))


@pytest.mark.parametrize("in_task", [False, True])
def test_of_a_record_for_which_a_flat_map_fails_nothing_is_forwarded(in_task):
    def several(value):
        yield value
        if value == 2:
            raise ValueError("refused")
        yield -value

    builder = StreamsBuilder()
    stream = builder.stream("in")
    if in_task:
        stream = stream.group_by_key().reduce(lambda old, new: new).to_stream()
    stream.flat_map_values(several).to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            topic.pipe_key_value_list([("a", 1), ("b", 2), ("c", 3)])
        assert driver.create_output_topic("out").read_values_to_list() == [1, -1, 3, -3]


def test_ways_that_part_often() -> None:
    """Positions have room for fewer records then; in the end the program is refused."""

    def program(levels):
        builder = StreamsBuilder()
        stream = builder.stream("in").map_values(lambda v: v)
        for _ in range(levels):
            stream.filter(lambda v: v < 0).to("out")
            stream = stream.map_values(lambda v: v)
        stream.group_by_key().count()
        return plan_of(builder)

    ((_, batch),) = ReaderPipeline(program(20), 1, SETTINGS).run(columns([b"a"] * 3, [b"1"] * 3))
    assert batch.rows["offset"].to_pylist() == [100, 101, 102]
    parts = [batch for _, batch in ReaderPipeline(program(52), 1, SETTINGS).run(columns([b"a"] * 3000, [b"1"] * 3000))]
    assert len(parts) == 3
    with pytest.raises(TopologyError, match="branch at"):
        ReaderPipeline(program(60), 1, SETTINGS)


def test_ways_that_part_and_meet_again_forty_times():
    """There are a million million of them, and each node is planned once."""
    builder = StreamsBuilder()
    stream = builder.stream("in").map_values(lambda v: v)
    for _ in range(40):
        stream = stream.filter(lambda v: v > 0).merge(stream.filter(lambda v: v < 0))
    stream.group_by_key().count()
    ((_, batch),) = ReaderPipeline(plan_of(builder), 1, SETTINGS).run(columns([b"a"] * 3, [b"1", b"0", b"-1"]))
    assert batch.rows["offset"].to_pylist() == [100, 102]


def times_of(extractor, timestamps, partition_time=None):
    builder = StreamsBuilder()
    builder.stream("in", Consumed(timestamp_extractor=extractor)).group_by_key().count()
    head = ReaderPipeline(plan_of(builder), 1, SETTINGS)
    if partition_time is not None:
        head.partition_times[("in", 0)] = partition_time
    n = len(timestamps)
    rows = [b for _, b in head.run(columns([b"k"] * n, [b"1"] * n, timestamps))]
    return [t for batch in rows for t in batch.rows["timestamp"].to_pylist()], head


def test_times():
    assert times_of(LogAndSkipOnInvalidTimestamp(), [5, -1, 3])[0] == [5, 3]
    assert times_of(UsePartitionTimeOnInvalidTimestamp(), [5, -1, 3, -1])[0] == [5, 5, 3, 5]
    assert times_of(UsePartitionTimeOnInvalidTimestamp(), [-1, 3], partition_time=9)[0] == [9, 3]
    assert times_of(WallclockTimestampExtractor(), [5, -1])[0] == [NOW, NOW]
    assert times_of(lambda record, time: record.offset + time, [5, 5])[0] == [99, 200]
    times, head = times_of(LogAndSkipOnInvalidTimestamp(), [5, -1, 3])
    assert head.partition_times == {("in", 0): 5}
    assert head.counters["dropped:KSTREAM-SOURCE-in:timestamp"] == 1
    assert len(times) == 2
    with pytest.raises(RecordFailedError, match="in-0 offset 101"):
        times_of(Consumed().timestamp_extractor, [5, -1])


def test_the_wall_clock_is_the_steps():
    builder = StreamsBuilder()
    builder.stream("in", Consumed(timestamp_extractor=WallclockTimestampExtractor())).map_values(lambda v: v).to("out")
    with TopologyTestDriver(builder.build(), start_ms=5000) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 3)
        assert driver.create_output_topic("out").read_record().timestamp == 5000


def test_the_head_gives_the_same_rows_whatever_the_pieces(monkeypatch):
    builder = StreamsBuilder()
    builder.stream("in").flat_map_values(lambda v: [v] * (v % 3)).group_by_key().count()
    sub = plan_of(builder)
    keys, values = [b"k%d" % (i % 5) for i in range(30)], [b"%d" % i for i in range(30)]
    whole = columns(keys, values)

    def rows(pieces):
        head = ReaderPipeline(sub, 2, SETTINGS)
        return sorted(
            (task, *row.values())
            for piece in pieces
            for task, batch in head.run(piece)
            for row in batch.rows.to_pylist()
        )

    halves = [
        RecordColumns("in", 0, whole.offsets[s], whole.timestamps[s], whole.keys[s], whole.values[s])
        for s in (slice(0, 7), slice(7, 30))
    ]
    assert rows([whole]) == rows(halves)
    expected = rows([whole])
    monkeypatch.setattr(pipeline, "_OBJECT_BYTES", 20)
    assert rows([whole]) == expected


def test_partitioners_and_topic_extractors():
    builder = StreamsBuilder()
    builder.stream("in").to(
        lambda k, v, context: f"out-{context.offset % 2}", Produced(partitioner=lambda topic, k, v, n: v % n)
    )
    with TopologyTestDriver(
        builder.build(), partitions={"out-0": 3, "out-1": 3}, partition_counts={"out-0": 3, "out-1": 3}
    ) as driver:
        topic = driver.create_input_topic("in")
        for i in range(6):
            topic.pipe_input("k", i, i)
        rows = [
            (r.topic, r.partition, r.value)
            for name in ("out-0", "out-1")
            for r in driver.create_output_topic(name).read_records_to_list()
        ]
        assert rows == [
            ("out-0", 0, 0),
            ("out-0", 1, 4),
            ("out-0", 2, 2),
            ("out-1", 0, 3),
            ("out-1", 1, 1),
            ("out-1", 2, 5),
        ]
