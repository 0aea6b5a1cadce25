"""Where `enrich` stands makes no difference to the order of anything: it is as if `map_values` stood there."""

import random

import numpy as np
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from streams import (
    Branched,
    Int64Serde,
    JoinWindows,
    Materialized,
    Produced,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    Window,
    Windowed,
)
from streams.engine.graph.settings import TaskSettings
from streams.engine.reader.pipeline import ReaderPipeline
from streams.engine.task.task import StreamTask
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan


def tenfold(value):
    return value * 10


def one_more(value):
    if value % 7 == 3:
        raise ValueError("seven")
    return value + 1


async def tenfold_async(value):
    return tenfold(value)


class Ways:
    """Three ways to call: in place, many at a time, side by side."""

    def __init__(self, way, size):
        self.way, self.size = way, size

    def __call__(self, stream, function, on_error="fail"):
        if self.way == "map":
            return stream.map_values(function)
        if self.way == "batch":

            def many(values):
                return [function(value) for value in values]

            return stream.enrich(many, batch_size=self.size, on_error=on_error)

        async def one(value):
            return function(value)

        return stream.enrich(one, concurrency=self.size, on_error=on_error)


WAYS = [Ways(way, size) for way in ("batch", "async") for size in (1, 2, 5, 1000)]


def branching(call):
    """A head with everything: what is enriched, what is not, twice, split, merged, flattened, failing."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("raw")
    flat = stream.flat_map_values(lambda value: range(value % 4))
    first = call(flat, one_more)
    first.merge(flat).map_values(lambda value: ["merged", value]).to("merged")
    second = call(first.flat_map_values(lambda value: [value, -value]), tenfold)
    branches = second.split().branch(lambda value: value > 10, Branched("big")).default_branch(Branched("rest"))
    branches["big"].to("big")
    call(branches["rest"].merge(stream), one_more).group_by_key().count()
    stream.map_values(lambda value: 1 // (value % 5)).to("failing")
    return builder.build()


def columns(values, start, end):
    return RecordColumns(
        "in",
        0,
        np.arange(start, end, dtype=np.int64),
        np.arange(start, end, dtype=np.int64),
        pa.array([b"k%d" % (value % 5) if value % 9 else None for value in values[start:end]], pa.binary()),
        pa.array([b"%d" % value if value % 11 else b"{" for value in values[start:end]], pa.binary()),
    )


def head_rows(topology, values, sizes):
    """What the head gives in pieces of these sizes: rows by (task, entry)."""
    (sub,) = build_plan(topology, "app").sub_topologies
    settings = TaskSettings("app", deserialization="dlq", processing="dlq", dead_letter_topic="letters")
    head = ReaderPipeline(sub, 3, settings)
    found, start = {}, 0
    while start < len(values):
        end = min(len(values), start + next(sizes))
        for task, batch in head.run(columns(values, start, end)):
            rows = batch.rows.to_pydict()
            # Which frames an error went through, and what its message says of a batch, is not what this is about.
            names = [
                name for name in ("offset", "seq", "timestamp", "key", "value") if batch.entry >= 0 or name != "seq"
            ]
            found.setdefault((task, batch.entry), []).extend(zip(*(rows[name] for name in names), strict=True))
        start = end
    head.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.way}-{way.size}")
def test_rows_are_those_of_map_values(way):
    rng = random.Random(way.size)
    values = [rng.randrange(100) for _ in range(150)]
    expected = head_rows(branching(Ways("map", 0)), values, iter([1000]))
    assert {entry for _, entry in expected} == {-1, 0, 1, 2, 3, 4}
    for sizes in (iter([1000]), iter(lambda: rng.choice([1, 2, 9, 60]), None)):
        assert head_rows(branching(way), values, sizes) == expected


def run(build, seed, *, batches):
    """Two inputs, in steps of random sizes with restarts, or all in one step; everything that comes out."""
    rng, records = random.Random(seed), []
    now = 0
    for number in range(80):
        now += rng.choice([0, 1, 3, 10])
        records.append((rng.choice(["left", "right"]), rng.choice("abc"), number, max(0, now - rng.choice([0, 0, 9]))))
    with TopologyTestDriver(build(), partitions={"left": 2, "right": 2}) as driver:
        while records:
            size = rng.choice([1, 2, 9, 20]) if batches else len(records)
            with driver.batch():
                for topic, key, value, timestamp in records[:size]:
                    driver.create_input_topic(topic).pipe_input(key, value, timestamp)
            del records[:size]
            if batches and rng.random() < 0.3:
                driver.restart(wipe_state=rng.random() < 0.5)
        found = driver.create_output_topic("out").read_records_to_list()
        return [(row.partition, row.key, row.value, row.timestamp) for row in found]


def joined(call):
    def build():
        builder = StreamsBuilder()
        left, right = call(builder.stream("left"), tenfold), builder.stream("right")
        left.left_join(right, lambda a, b: [a, b], JoinWindows.of_time_difference_and_grace(5, 10)).to("out")
        return builder.build()

    return build


def late_counts(call):
    def build():
        builder = StreamsBuilder()
        stream = call(builder.stream("left"), tenfold).merge(builder.stream("right"))
        table = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).reduce(lambda a, b: a + b)
        table.dropped().to("out")
        return builder.build()

    return build


@pytest.mark.slow
@pytest.mark.parametrize("build", [joined, late_counts])
@pytest.mark.parametrize("way", [Ways("batch", 3), Ways("async", 4)], ids=["batch", "async"])
@pytest.mark.parametrize("batches", [False, True])
def test_joins_and_windows_behind_it_see_the_same(build, way, batches):
    for seed in range(3):
        expected = run(build(Ways("map", 0)), seed, batches=batches)
        assert expected
        assert run(build(way), seed, batches=batches) == expected


def behind_state(call):
    def build():
        builder = StreamsBuilder()
        counts = builder.stream("left").group_by_key().count().to_stream()
        call(counts, tenfold).merge(builder.stream("right")).group_by_key().reduce(lambda a, b: a + b).to_stream().to(
            "out"
        )
        return builder.build()

    return build


def test_behind_a_stateful_operator_it_runs_in_the_next_head():
    topology = behind_state(Ways("batch", 3))()
    first, second = build_plan(topology, "app").sub_topologies
    assert first.head == frozenset()
    assert "KSTREAM-ENRICH-left" in second.head
    assert [str(topic) for topic in second.topics if "repartition" in topic] != []
    for seed in range(3):
        # Sums of all that was added, in the end.
        by_key = [{key: value for _, key, value, _ in run(behind_state(way), seed, batches=False)} for way in WAYS[:5]]
        assert by_key[0] != {}
        assert all(one == by_key[0] for one in by_key)


def test_two_of_them_behind_one_stream_share_the_topic_and_a_name_is_the_topics_too():
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count().to_stream()
    counts.enrich(tenfold_async).to("one")
    counts.enrich(tenfold_async).to("two")
    plan = build_plan(builder.build(), "app")
    assert len(plan.repartition_topics) == 1
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().enrich(tenfold_async, named="looked-up").to("out")
    assert list(build_plan(builder.build(), "app").repartition_topics) == ["app-looked-up-repartition"]


def test_windowed_keys_and_dropped_records_behind_a_stateful_operator():
    builder = StreamsBuilder(ensure_explicit_naming=True)
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    counts = windowed.count(materialized=Materialized(name="counts")).to_stream()
    enriched = counts.enrich(
        lambda keys, values: [one_more(v) for v in values], batch_size=2, on_error="drop", named="more"
    )
    enriched.to("out")
    enriched.dropped().select_key(lambda windowed, value: windowed.key).to("side", Produced(value_serde=Int64Serde()))
    with TopologyTestDriver(builder.build(), partitions={"in": 2}) as driver:
        for number in range(4):
            driver.create_input_topic("in").pipe_input("a", number, number)
        out = driver.create_output_topic("out").read_records_to_list()
        assert [(row.key, row.value) for row in out] == [(Windowed("a", Window(0, 10)), n) for n in (2, 3, 5)]
        side = driver.create_output_topic("side").read_records_to_list()
        assert [(row.key, row.value, dict(row.headers)["__streams.dropped.node"]) for row in side] == [
            ("a", 3, b"more")
        ]


# What is not the same in a repeated attempt ---------------------------------------------------------------------------


def test_a_key_made_of_a_result_does_not_choose_the_task():
    """Else a record could be committed by one task in one attempt, and by another one in the next."""
    builder = StreamsBuilder()
    rekeyed = builder.stream("in").enrich(tenfold_async).select_key(lambda value: f"k{value}")
    rekeyed.to("out")
    rekeyed.group_by_key().count().to_stream().to("counts")
    first, second = build_plan(builder.build(), "app").sub_topologies
    assert first.head == {"KSTREAM-ENRICH-in"}
    assert [(entry.from_node, entry.node) for entry in first.entries] == [
        ("KSTREAM-ENRICH-in", "KSTREAM-KEY-SELECT-in")
    ]
    assert second.topics[0].endswith("-repartition")
    with TopologyTestDriver(builder.build(), partitions={"in": 3}) as driver:
        for number in range(6):
            driver.create_input_topic("in").pipe_input(f"x{number}", number % 3, number)
        found = driver.create_output_topic("counts").read_records_to_list()
        assert {row.key: row.value for row in found} == {"k0": 2, "k10": 2, "k20": 2}


def attempt(function, key="a"):
    """The tasks that a reader calls, and those that get rows, by entry."""
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda value: f"k{value}")
    enriched = stream.enrich(function, batch_size=10).filter(lambda value: value is not None)
    enriched.group_by_key().count().to_stream().to("out")
    settings = TaskSettings("app", processing="dlq", dead_letter_topic="letters")
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    head = ReaderPipeline(sub, 8, settings)
    batches = list(head.run(columns([1, 2, 3, 4], 0, 4)))
    head.close()
    return head.touched, {(task, batch.entry) for task, batch in batches}, batches


def test_every_attempt_calls_the_same_tasks_and_dead_letters_go_where_results_go():
    def fails(values):
        raise ValueError

    touched, given, _ = attempt(lambda values: values)
    tasks = {task for task, _ in given}
    assert touched == tasks
    assert len(tasks) > 1
    touched, given, _ = attempt(lambda values: [None] * len(values))
    assert (touched, given) == (tasks, set())
    touched, given, batches = attempt(fails)
    assert (touched, given) == (tasks, {(task, -1) for task in tasks})
    assert sorted(key for _, batch in batches for key in batch.rows.column("key").to_pylist()) == [
        b"k1",
        b"k2",
        b"k3",
        b"k4",
    ]


def test_a_task_without_rows_makes_an_empty_step():
    builder = StreamsBuilder()
    builder.stream("in").enrich(tenfold_async).to("out", Produced(key_serde=StringSerde()))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    output = StreamTask(sub, 0, None, {}, TaskSettings("app")).process([], 0)
    assert (output.sends, output.records_in) == ([], 0)
