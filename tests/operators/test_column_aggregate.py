"""Built-in aggregates: whole columns at once give what record by record gives, to the last bit."""

import json

import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import JoinWindows, JsonSerde, Materialized, StreamsBuilder, StringSerde, TimeWindows, agg
from streams.operators.aggregate.columns.accumulators import accumulate, add_rows
from streams.operators.aggregate.columns.column_rows import (
    ABSENT,
    FLOAT,
    INT,
    TEXT,
    FieldColumn,
    assign,
    assign_plain,
    group,
    group_plain,
)
from streams.testing import TopologyTestDriver

KINDS = ["count", "sum", "min", "max", "mean", "first", "last"]


class RecordByRecord(JsonSerde):
    """Not exactly `JsonSerde`, so the planner sends whole records."""


numbers = st.one_of(
    st.integers(-100, 100),
    st.integers(-(2**62), 2**62),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 0]),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]),
)
cells = st.one_of(numbers, st.none(), st.text(max_size=3), st.booleans(), st.lists(st.integers(0, 3), max_size=2))
values = st.one_of(
    st.dictionaries(st.sampled_from(["x", "y", "o"]), st.one_of(cells, st.fixed_dictionaries({"z": cells}))),
    st.none(),
    st.integers(-9, 9),
    st.just("text"),
)


def topology(serde, windows, caching):
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=serde)
    grouped = builder.stream("in").group_by_key()
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    wanted = {f"{kind}_{field.replace('.', '')}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
    table = grouped.aggregate(n=agg.count(), **wanted, materialized=Materialized(name="s", caching=caching))
    table.to_stream().to("out")
    return builder.build()


def run(serde, windows, caching, steps):
    # Sums may leave 64 bits: no serde writes them, on either way.
    skip = {"processing": "skip", "production": "skip"}
    with TopologyTestDriver(topology(serde, windows, caching), partitions={"in": 2}, **skip) as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        for step in steps:
            with driver.batch():
                for key, value, timestamp in step:
                    topic.pipe_input(key, value, timestamp)
        rows = driver.create_output_topic("out").read_records_to_list()
        return [(r.key, orjson.dumps(r.value), r.timestamp) for r in rows], driver.dropped()


records = st.tuples(st.sampled_from(["a", "b", None]), values, st.integers(0, 50))
shapes = st.sampled_from([None, TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), TimeWindows(20, 5, 30)])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(records, max_size=8), max_size=3), shapes, st.booleans())
def test_columns_equal_records(steps, windows, caching):
    assert run(JsonSerde(), windows, caching, steps) == run(RecordByRecord(), windows, caching, steps)


@settings(max_examples=30, deadline=None)
@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 20))
def test_the_cut_into_steps_changes_no_last_value(rows, cut):
    rows = sorted(rows, key=lambda row: row[2])  # a step merges by time: only then is the order the same
    whole, _ = run(JsonSerde(), TimeWindows(10, 5, 0), True, [rows])
    cut %= len(rows) + 1
    parts, _ = run(JsonSerde(), TimeWindows(10, 5, 0), True, [rows[:cut], rows[cut:]])
    last = {key: rest for key, *rest in parts}
    assert last == {key: rest for key, *rest in whole}


def column(found):
    kinds = [
        ABSENT if x is None else FLOAT if isinstance(x, float) else INT if type(x) is int and abs(x) < 2**63 else TEXT
        for x in found
    ]
    return FieldColumn(
        np.array(kinds, np.uint8),
        np.array([x if k == INT else 0 for x, k in zip(found, kinds, strict=True)], np.int64),
        np.array([x if k == FLOAT else 0.0 for x, k in zip(found, kinds, strict=True)], np.float64),
        pa.array(
            [json.dumps(x).encode() if k == TEXT else None for x, k in zip(found, kinds, strict=True)], pa.binary()
        ),
    )


@settings(deadline=None)
@given(
    st.sampled_from(KINDS), st.lists(st.tuples(cells, st.integers(0, 3)), max_size=20), st.lists(numbers, max_size=4)
)
def test_accumulate_equals_its_twin(kind, rows, before):
    aggregate = getattr(agg, kind)("x")
    start = [aggregate.updated(aggregate.initial(), x) for x in before] + [aggregate.initial()] * (4 - len(before))
    at = np.arange(len(rows), dtype=np.int64)[::2]
    groups = np.array([g for _, g in rows], np.int64)[::2]
    found = column([x for x, _ in rows])
    assert repr(accumulate(aggregate, found, at, groups, start)) == repr(add_rows(aggregate, found, at, groups, start))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), max_size=30))
def test_group_equals_its_twin(pairs):
    codes = np.array([code for code, _ in pairs], np.int32)
    starts = np.array([start for _, start in pairs], np.int64)
    for a, b in zip(group(codes, starts), group_plain(codes.tolist(), starts.tolist()), strict=True):
        assert a.tolist() == b.tolist()


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=30), shapes, st.integers(-1, 30))
def test_assign_equals_its_twin(timestamps, windows, stream_time):
    windows = windows or TimeWindows(1, 1, 0)
    a = assign(np.array(timestamps, np.int64), windows, stream_time)
    b = assign_plain(timestamps, windows, stream_time)
    assert [x.tolist() if hasattr(x, "tolist") else x for x in a] == [
        x.tolist() if hasattr(x, "tolist") else x for x in b
    ]


def test_every_update_goes_on_at_its_place_in_the_step():
    """Without a cache: not ahead of the other records, which would be late then."""
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(materialized=Materialized(caching=False)).to_stream()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    counts.join(builder.stream("more"), lambda count, value: [count, value], windows).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with driver.batch():
            for topic, time in (("in", 1), ("more", 2), ("in", 50), ("more", 51)):
                driver.create_input_topic(topic).pipe_input("a", time, time)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, 2], [2, 51]]
