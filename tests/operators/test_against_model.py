"""Random records through the driver against the plain model: whatever the cut into steps and the restarts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import JoinWindows, Materialized, StreamsBuilder, TimeWindows
from streams.testing import TopologyTestDriver
from tests.operators.model import inner_join, table_join, windowed_sums

keys = st.sampled_from(["a", "b", "c", None])
values = st.one_of(st.integers(-5, 5), st.none())
times = st.integers(0, 60)
marks = st.sampled_from(["", "", "", "step", "restart"])


def pieces(records, marked):
    """Records cut into steps by their marks: lists of records, each with whether a restart follows."""
    piece = []
    for record, mark in zip(records, marked, strict=True):
        piece.append(record)
        if mark:
            yield piece, mark == "restart"
            piece = []
    yield piece, False


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(keys, st.integers(-5, 5), times, marks), max_size=40),
    st.sampled_from([(10, 10, 0), (10, 5, 3), (10, 3, 7), (7, 7, 20)]),
    st.booleans(),
)
def test_windows(rows, shape, caching):
    size, advance, grace = shape
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(size, grace).advance_by(advance)
    table = builder.stream("in").group_by_key().windowed_by(windows)
    table.aggregate(
        list, lambda v, agg: [*agg, v], materialized=Materialized(name="s", caching=caching)
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for piece, restart in pieces(rows, [row[3] for row in rows]):
            with driver.batch():
                for key, value, timestamp, _ in piece:
                    topic.pipe_input(key, value, timestamp)
            if restart:
                driver.restart()
        found = driver.create_output_topic("out").read_records_to_list()
        late = driver.dropped("late")
    last = {(r.key.key, r.key.window.start): (tuple(r.value), r.timestamp) for r in found}
    expected, expected_late = windowed_sums([row[:3] for row in rows], size, advance, grace)
    assert (last, late) == (expected, expected_late)
    if not caching:
        assert len(found) == sum(len(v) for v, _ in expected.values())


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["left", "right"]), keys, values, times, marks), max_size=40),
    st.sampled_from([(10, 10, 0), (0, 0, 0), (5, 20, 3), (-5, 10, 0), (10, -3, 7), (0, 5, 60)]),
)
def test_inner_join(rows, shape):
    before, after, grace = shape
    builder = StreamsBuilder()
    join = builder.stream("left").join(builder.stream("right"), lambda a, b: [a, b], JoinWindows(before, after, grace))
    join.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side) for side in ("left", "right")}
        for side, key, value, timestamp, mark in rows:
            topics[side].pipe_input(key, value, timestamp)
            if mark == "restart":
                driver.restart()
        found = [(r.key, *r.value, r.timestamp) for r in driver.create_output_topic("out").read_records_to_list()]
        late = driver.dropped("late")
    assert (sorted(found), late) == inner_join([row[:4] for row in rows], before, after, grace)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["in", "table"]), keys, values, times, marks), max_size=40), st.booleans())
def test_table_join(rows, left):
    builder = StreamsBuilder()
    table = builder.table("table", materialized=Materialized(name="t"))
    stream = builder.stream("in")
    join = stream.left_join if left else stream.join
    join(table, lambda k, a, b: [a, b]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side) for side in ("in", "table")}
        for side, key, value, timestamp, mark in rows:
            topics[side].pipe_input(key, value, timestamp)
            if mark == "restart":
                driver.restart()
        found = [(r.key, *r.value, r.timestamp) for r in driver.create_output_topic("out").read_records_to_list()]
    assert found == table_join([row[:4] for row in rows], left)


@pytest.mark.parametrize("rocksdb", [False, True])
def test_partitions_and_tasks_give_the_same_counts(rocksdb):
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda v: v % 7).map(lambda k, v: (str(k), v)).group_by_key().count(
        materialized=Materialized(name="c")
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions={"in": 3, "out": 2}, tasks=4, rocksdb=rocksdb) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for i in range(200):
                topic.pipe_input(f"k{i}", i, i)
        driver.restart()
        for i in range(200, 210):
            topic.pipe_input(f"k{i}", i, i)
        counts = driver.create_output_topic("out").read_key_values_to_map()
        stored = {key: found.value for key, found in driver.get_store("c").all()}
        assert driver.get_store("c").get("3").value == 30
    assert counts == stored == {str(k): 30 for k in range(7)}
