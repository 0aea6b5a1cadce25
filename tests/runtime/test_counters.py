"""Every operator counts what comes in, what goes out and what it drops, wherever it runs."""

import time

from streams import Consumed, JoinWindows, Materialized, Produced, StreamsBuilder, TimeWindows, agg
from streams.engine.graph.settings import CPU_NS
from streams.testing import TopologyTestDriver


def counts_of(build, records, **settings):
    """Counters of a topology fed with (topic, key, value, time)."""
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), partitions={"in": 2}, **settings) as driver:
        for topic, key, value, time in records:
            driver.create_input_topic(topic).pipe_input(key, value, time)
        return driver.counts()


def test_readers_and_tasks_count_each_operator():
    def build(builder):
        stream = builder.stream("in").flat_map_values(lambda value: value, named="words")
        big = stream.filter(lambda word: len(word) > 1, named="big")
        counted = big.group_by(lambda word: word, named="by-word").count("counted", Materialized(caching=False))
        counted.to_stream(named="updates").to("out")

    counts = counts_of(build, [("in", "a", ["x", "yy", "zz"], 1), ("in", "b", [], 2), ("in", "c", ["yy"], 3)])
    assert {name: counts.get(f"in:{name}", 0) for name in ("words", "big", "by-word", "counted", "updates")} == {
        "words": 3,
        "big": 4,
        "by-word": 3,
        "counted": 3,
        "updates": 3,
    }
    assert {name: counts[f"out:{name}"] for name in ("words", "big", "by-word", "counted", "updates")} == {
        "words": 4,
        "big": 3,
        "by-word": 3,
        "counted": 3,
        "updates": 3,
    }


def test_each_operator_counts_what_it_drops_by_reason():
    windows = TimeWindows.of_size_with_no_grace(10)

    def build(builder):
        stream, other = builder.stream("in"), builder.stream("other")
        stream.group_by_key().windowed_by(windows).count("windowed").to_stream().to("counts")
        stream.group_by_key().windowed_by(windows).aggregate(n=agg.count(), named="columns").to_stream().to("columns")
        stream.join(other, lambda a, b: a, JoinWindows.of_time_difference_with_no_grace(5)).to("joined")

    records = [("in", "k", 1, 5), ("in", None, 1, 6), ("in", "k", 1, 30), ("in", "k", 1, 5), ("in", "k", None, 31)]
    counts = counts_of(build, records, tasks=1)
    for node in ("windowed", "columns"):
        dropped = {name: count for name, count in counts.items() if name.startswith(f"dropped:{node}:")}
        assert dropped == {f"dropped:{node}:null_key": 1, f"dropped:{node}:late": 1}
        assert counts[f"in:{node}"] == 5
    of_the_join = {
        name.rpartition(":")[2]: count for name, count in counts.items() if "JOIN" in name and "dropped" in name
    }
    assert of_the_join == {"null_key": 1, "null_value": 1, "late": 1}


def test_what_a_policy_skips_is_counted_on_the_operator_that_failed():
    def build(builder):
        builder.stream("in").map_values(lambda value: 1 // value, named="inverse").to("out")

    counts = counts_of(build, [("in", "a", 0, 1), ("in", "a", 1, 2)], processing="skip")
    assert (counts["in:inverse"], counts["out:inverse"], counts["dropped:inverse:processing"]) == (2, 1, 1)
    assert counts["skipped:processing"] == 1


BURNT_NS = 5_000_000


def test_the_cpu_time_of_operators_is_that_of_their_thread():
    def burn(value):
        end = time.thread_time_ns() + BURNT_NS
        while time.thread_time_ns() < end:
            pass
        return value

    def build(builder):
        stream = builder.stream("in", Consumed(name="source")).map_values(burn, named="in-reader")
        newest = stream.group_by_key().reduce(lambda old, new: new, named="newest")
        newest.to_stream(named="updates").map_values(burn, named="in-task").to("out", Produced(name="sink"))

    records = [("in", "a", "x", 1), ("in", "b", "y", 2)]
    assert not [name for name in counts_of(build, records) if name.startswith(CPU_NS)]
    counts = counts_of(build, records, times_operators=True, tasks=1)
    spent = {name.removeprefix(CPU_NS): ns for name, ns in counts.items() if name.startswith(CPU_NS)}
    assert spent["source"] >= len(records) * BURNT_NS
    assert spent["in-task"] >= len(records) * BURNT_NS
    # Operators of the head run within their source.
    assert spent.keys() == {"source", "newest", "updates", "in-task", "sink"}
