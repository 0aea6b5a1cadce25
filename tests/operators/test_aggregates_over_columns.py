"""Built-in aggregates over columns: the same results, changelogs, counters and state, to the last byte, as record by record."""

import json
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    agg,
    col,
    fields,
)
from streams.errors import RecordError
from streams.operators.aggregate import accumulators
from streams.operators.aggregate.accumulators import accumulators_of
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn
from streams.operators.aggregate.functions import FieldAggregates
from streams.operators.columnar import OneByOne
from streams.operators.stores.codec import Codec
from streams.testing import TopologyTestDriver
from tests.operators.both_ways import HUGE, KINDS, NUMBERS, Step, check, everything, examples, steps

MANY = 100
"""More rows than there are: all of them are few."""
CODEC = Codec("changelog", JsonSerde(), JsonSerde())
modes = st.sampled_from(["strict", "compat"])
CLOSE = EmitStrategy.on_window_close()
WINDOWS = {
    "groups": st.sampled_from([None, TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), TimeWindows(20, 5, 30)]),
    "sessions": st.builds(SessionWindows, st.sampled_from([0, 4, 6, 8]), st.sampled_from([0, 10, 40, 60])),
    "sliding": st.builds(SlidingWindows, st.integers(1, 12), st.sampled_from([0, 10, 40, 60])),
    "on close": st.sampled_from([TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), TimeWindows(20, 5, 30)]).map(
        lambda windows: (windows, CLOSE)
    ),
}
DAY = 24 * 3_600_000
WINDOWS["calendar"] = st.builds(
    CalendarWindows.of,
    st.sampled_from(["day", "week"]),
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "Pacific/Apia"]),
    st.sampled_from([0, DAY // 6, 5 * DAY]),
)
WINDOWS |= {
    f"{kind} on close": st.tuples(WINDOWS[kind], st.just(CLOSE)) for kind in ("sessions", "sliding", "calendar")
}
FAR = {
    "sessions": st.builds(
        SessionWindows, st.sampled_from([28_000, 42_000, 56_000]), st.sampled_from([0, 90_000, 500_000])
    ),
    "sliding": st.builds(SlidingWindows, st.integers(1, 80_000), st.sampled_from([0, 90_000, 500_000])),
}
"""Windows over several segments of the store, and, with records that are near each other, the first windows of all."""


def steps_for(kind, apart=1, **how):
    return steps(apart=DAY // 24 if kind.startswith("calendar") else apart, **how)


def grouped(stream, windows):
    found = stream.group_by_key()
    if isinstance(windows, tuple):
        windows, strategy = windows
        return found.windowed_by(windows).emit_strategy(strategy)
    return found if windows is None else found.windowed_by(windows)


def many(windows, retention=None):
    def build(stream):
        wanted = {f"{kind}_{field[0]}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
        wanted |= {"n": agg.count(), "twice": agg.sum(col("x") * 2)}
        wanted |= {
            "best": agg.max_by(fields("y", x=col("x")), by="x"),
            "least": agg.min_by("o", by=col("x") * 2),
            "latest": agg.last_by(col("x") // 2, by="o.z", where=col("x") > 0),
            "recent": agg.collect("x", last=3),
            "median": agg.quantile("o.z", 0.5),
            "tails": agg.quantile(col("x") * 2, [0.9, 0.1], accuracy=0.1, where=col("x") > 0),
            "values": agg.approx_count_distinct("y"),
        }
        how = Materialized(name="s", retention=retention)
        grouped(stream, windows).aggregate(**wanted, materialized=how).to_stream().to("out")

    return build


def distinct(windows):
    def build(stream):
        wanted = {
            "n": agg.count(),
            "x": agg.count_distinct("x"),
            "positive": agg.count_distinct("x", where=col("x") > 0),
            "half": agg.count_distinct(col("x") / 2),
            "y": agg.count_distinct("y", where=col("o.z") > 0),
            "o": agg.count_distinct("o"),
            "sum": agg.sum("x"),
            "best": agg.max_by(fields("y", x=col("x")), by="o.z"),
        }
        grouped(stream, windows).aggregate(**wanted, materialized=Materialized(name="s")).to_stream().to("out")

    return build


def counted(windows):
    def group_of(key, n):
        return (key.window.end % 3, n) if isinstance(key, Windowed) else (str(n), n)

    def build(stream):
        counts = grouped(stream, windows).count(materialized=Materialized(name="s"))
        # A function that changes what it is given, another reader of the same results, and one that needs old values.
        counts.to_stream().map_values(lambda n: [n]).peek(lambda key, value: value.append(0)).to("out")
        counts.to_stream().to("counts")
        by_group = counts.group_by(group_of)
        by_group.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("sums")

    return build


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, MANY], ids=["arrays", "objects"])
@pytest.mark.parametrize("kind", WINDOWS)
@examples
@given(st.data())
def test_built_in_aggregates(kind, few, data):
    windows = data.draw(WINDOWS[kind] | FAR["sliding"] if kind == "sliding" else WINDOWS[kind])
    retention = data.draw(st.sampled_from([None, 10_000])) if kind == "sessions" else None
    with patch.multiple(accumulators, FEW=few, FEW_CELLS=few):
        check(many(windows, retention), data.draw(steps_for(kind)), mode=data.draw(modes))


TEXTS = ("", "a", "ab", "Z", "é", "\U0001f600", "\ufffd", '"', "a\n", "a!")
"""Some are written with escapes, and some come in another order as UTF-16."""


def by_texts(windows):
    def build(stream):
        wanted = {
            "latest": agg.last_by(fields("y", "o", x=col("x")), by="x"),
            "most": agg.max_by(fields("x", twice=col("x") + col("x")), by="x", where=col("y").is_not_null()),
            "least": agg.min_by("o", by=col("x") + "!"),
        }
        grouped(stream, windows).aggregate(**wanted, materialized=Materialized(name="s")).to_stream().to("out")

    return build


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, MANY], ids=["arrays", "objects"])
@pytest.mark.parametrize("kind", WINDOWS)
@examples
@given(st.data())
def test_what_is_chosen_by_texts(kind, few, data):
    """Texts are compared as Python compares them, and what is kept is copied as JSON."""
    with patch.multiple(accumulators, FEW=few, FEW_CELLS=few):
        check(by_texts(data.draw(WINDOWS[kind])), data.draw(steps(numbers=TEXTS)), mode=data.draw(modes))


def joined(windows, kind):
    def build(stream):
        last = grouped(stream, windows).aggregate(last=agg.last("x"), materialized=Materialized(name="s"))
        counts = grouped(stream.filter(col("y").is_not_null()), windows).aggregate(n=agg.count("x"))
        getattr(last, kind)(counts, lambda one, other: [one, other]).to_stream().to("out")

    return build


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@examples
@given(st.data())
def test_aggregates_of_columns_whose_tables_are_joined(kind, data):
    """Each side sees the other one's rows as last forwarded, which columns change at the end of the step, too."""
    check(joined(data.draw(WINDOWS["groups"]), kind), data.draw(steps()), mode=data.draw(modes))


BY_START = ["groups", "on close", "calendar", "calendar on close"]


@pytest.mark.parametrize("few", [0, MANY], ids=["arrays", "objects"])
@pytest.mark.parametrize("kind", BY_START)
@examples
@given(st.data())
def test_counts_of_distinct_values(kind, few, data):
    """Also that the rows of values are written in the same order, with the same times."""
    numbers = data.draw(st.sampled_from([NUMBERS, (1, 1.0, 2.5, "a", "\u00e9", '"', "1", 2**70, float(2**70), -0.0)]))
    with patch.multiple(accumulators, FEW=few, FEW_CELLS=few):
        check(distinct(data.draw(WINDOWS[kind])), data.draw(steps_for(kind, numbers=numbers)), mode=data.draw(modes))


@pytest.mark.parametrize("kind", BY_START)
@examples
@given(st.data())
def test_a_record_at_fault_leaves_no_distinct_value_behind(kind, data):
    """Sums that overflow are found out where the step is added: then its records are taken one by one."""
    check(distinct(data.draw(WINDOWS[kind])), data.draw(steps_for(kind, numbers=HUGE)), at_once=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
@examples
@given(st.data())
def test_what_arrays_cannot_add(kind, data):
    """Long integers, and records that fail: sums that overflow, sums of texts, texts among the numbers of a minimum."""
    values = data.draw(st.sampled_from([HUGE, (*HUGE, "text", "a"), (1, 2.5, "text", "a", "")]))
    check(many(data.draw(WINDOWS[kind])), data.draw(steps_for(kind, numbers=values)), at_once=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
@examples
@given(st.data())
def test_counts_with_old_values_and_several_readers(kind, data):
    far = kind in FAR and data.draw(st.booleans())
    windows = data.draw((FAR if far else WINDOWS)[kind])
    check(counted(windows), data.draw(steps_for(kind, apart=7_000 if far else 1)), mode=data.draw(modes))


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_windows_of_length_zero(mode):
    """Every record fails in compat mode."""
    found = [Step([("a", {"x": 1}, 3), ("a", {"x": 2}, 3), ("a", {}, 4)], False)]
    check(counted(SlidingWindows(0, 5)), found, at_once=mode == "strict", mode=mode)


@pytest.mark.parametrize("kind", ["calendar", "calendar on close"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("aggregates", [many, distinct])
def test_a_time_behind_the_calendar_fails_its_record_alone(kind, columns, aggregates):
    """It moves stream time, as in Kafka Streams, but closes nothing itself; so does each record in a step of its own."""
    days = CalendarWindows.of("day", "UTC")
    build = aggregates((days, CLOSE) if kind.endswith("close") else days)
    records = [("a", {"x": 1}, 5), ("b", {"x": 2}, 3 * 10**14), ("a", {"x": 3}, 7), ("a", {"x": "text"}, 4 * 10**14)]
    records += [("b", {"x": 4}, DAY)]
    together, alone = (
        everything(build, columns, found, max_future_ms=None)["topics"]
        for found in ([Step(records, False)], [Step([one], False) for one in records])
    )
    assert [json.loads(value)["n"] for _, value, _, _ in together["out"]] == [1]
    assert [key for key, _, _, _ in together["dead"]] == [b"b", b"a"]
    for name in ("out", "dead"):
        assert [row[:3] for row in together[name]] == [row[:3] for row in alone[name]]
    if columns:
        check(build, [Step(records, False)], max_future_ms=None)


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


# --- The kernels that add rows, and their definition.


numbers = st.one_of(
    st.integers(-100, 100),
    st.integers(-(2**62), 2**62),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 0]),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0, 1.7e308, -1.7e308, 2**64, 10**30]),
)
ADDED = ("min", "max", "sum", "mean")
"""Those of numbers, whose other values are refused while the columns are read."""
anything = st.none() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(0, 3), max_size=2)


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


def started(aggregate, values):
    found = aggregate.initial()
    for value in values:
        with suppress(RecordError):
            found = aggregate.updated(found, value)
    return found


def after(function, *arguments):
    """The accumulators, or the error of the first record that cannot be added."""
    try:
        return repr(function(*arguments))
    except RecordError as error:
        return str(error)


@given(st.sampled_from(KINDS), st.data(), st.lists(numbers, max_size=4))
def test_arrays_add_as_the_definition_does(kind, data, before):
    cells = numbers | (st.none() if kind in ADDED else anything)
    rows = data.draw(st.lists(st.tuples(cells, st.integers(0, 3)), max_size=20))
    fields = FieldAggregates({kind: getattr(agg, kind)("x")}, bare=True)
    start = [started(fields.aggregates[kind], [x]) for x in before]
    at = np.arange(len(rows), dtype=np.int64)[::2]
    groups = np.array([g for _, g in rows], np.int64)[::2]
    found = column([x for x, _ in rows])

    def added(few):
        with patch.multiple(accumulators, FEW=few):
            made = accumulators_of(fields, [found], start, 4, len(at))
            made.apply(at, groups)
            made.check()
            return made.take(np.arange(4))

    with suppress(OneByOne):  # a sum has overflowed: the definition decides
        assert after(added, 0) == after(added, MANY)


@given(st.data(), st.lists(numbers, max_size=4), st.booleans())
def test_few_rows_are_added_and_written_as_many_are(data, before, bare):
    """One by one as objects, and as arrays of numbers and texts: the same bytes for the store and for the sink."""
    kinds = ["count"] if bare else KINDS
    fields = FieldAggregates({kind: getattr(agg, kind)("x") for kind in kinds}, bare)
    rows = data.draw(st.lists(st.tuples(numbers | st.none(), st.integers(0, 3)), min_size=1, max_size=20))
    known = [[started(one, [x]) for one in fields.aggregates.values()] for x in before]
    found = [column([x for x, _ in rows])] * len(kinds)
    at, groups = np.arange(len(rows), dtype=np.int64)[::2], np.array([g for _, g in rows], np.int64)[::2]
    slots = np.unique(groups)[::-1]

    def written(few):
        with patch.multiple(accumulators, FEW=few, FEW_CELLS=few):
            made = accumulators_of(fields, found, [one[0] for one in known] if bare else known, 4, len(at))
            made.apply(at, groups)
            made.check()
            values = made.values(slots)
            texts = values.column(JsonSerde(), "").to_pylist()
            return repr(made.take(slots)), made.written(slots, CODEC).to_pylist(), texts, repr(list(values))

    try:
        arrays = written(0)
    except OneByOne:
        return  # the definition decides
    assert written(MANY) == arrays
