"""Aggregates that count by a number: the keys of a dict come back from the store as they were, without a type or a serde."""

from functools import partial

import pytest

from streams import JsonSerde, Materialized, SessionWindows, StreamsBuilder, StringSerde, TimeWindows
from streams.dsl.nodes.computed_keys import makes_keys
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver


def in_place(value, counts):
    counts[value] = counts.get(value, 0) + 1
    return counts


def together(one, other):
    return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}


def more(value, counts):
    return {**counts, value: counts.get(value, 0) + 1}


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (more, True),
        (in_place, True),
        (partial(in_place, 5), True),
        (lambda v, a: a | {v: 1}, True),
        (lambda v, a: {"n": {v: 1}, "of": a}, True),
        (lambda v, a: {key: a.get(key) for key in v}, True),
        (lambda v, a: {"n": a["n"] + 1, "last": v}, False),
        (lambda v, a: {**a, "last": v}, False),
        (lambda v, a: [*a, v][-3:], False),
        (lambda v, a: a + v, False),
        (max, False),
    ],
)
def test_which_functions_make_keys(function, found):
    assert makes_keys(function) is found


def grouped(builder):
    return builder.stream("in").group_by_key()


PROGRAMS = {
    "new dicts": lambda b: grouped(b).aggregate(dict, more).to_stream(),
    "in place": lambda b: (
        grouped(b).aggregate(dict, in_place, materialized=Materialized("s", caching=False)).to_stream()
    ),
    "nested": lambda b: (
        grouped(b)
        .aggregate(lambda: {"by": {}}, lambda v, a: {"by": more(v, a["by"])} | {k: a[k] for k in a if k != "by"})
        .to_stream()
        .map_values(lambda v: v["by"])
    ),
    "windows": lambda b: (
        grouped(b)
        .windowed_by(TimeWindows.of_size_with_no_grace(1_000))
        .aggregate(dict, more)
        .to_stream()
        .map(lambda k, v: (k.key, v))
    ),
    "sessions": lambda b: (
        grouped(b)
        .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(1_000))
        .aggregate(dict, more, together)
        .to_stream()
        .map(lambda k, v: (k.key, v))
    ),
    "a table grouped anew": lambda b: (
        b.table("in").group_by(lambda k, v: ("a", v)).aggregate(dict, more, lambda v, a: {**a, v: a[v] - 1}).to_stream()
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", [int, bool])
def test_a_histogram_counts_whatever_the_steps(name, kind):
    values = [kind(number) for number in (404, 0, 404, 404, 0)]
    found = []
    for in_one_step in (True, False):
        builder = StreamsBuilder()
        PROGRAMS[name](builder).to("out", value_serde=JsonSerde())
        with TopologyTestDriver(builder.build(), mode="strict") as driver:
            topic = driver.create_input_topic("in")
            keys = [f"k{number}" for number in range(5)] if "table" in name else ["a"] * 5
            if in_one_step:
                with driver.batch():
                    for at, (key, value) in enumerate(zip(keys, values, strict=True)):
                        topic.pipe_input(key, value, at)
            else:
                for at, (key, value) in enumerate(zip(keys, values, strict=True)):
                    topic.pipe_input(key, value, at)
                    driver.restart()
            found.append(driver.create_output_topic("out").read_values_to_list()[-1])
    text = {int: ("404", "0"), bool: ("true", "false")}[kind]
    assert found == [dict(zip(text, (3, 2), strict=True))] * 2


def test_functions_below_see_the_keys_as_they_are():
    builder = StreamsBuilder()
    table = grouped(builder).aggregate(dict, more, materialized=Materialized("s"))
    table.map_values(lambda counts: counts[404], materialized=Materialized("x")).to_stream().to("out")
    behind_a_topic = table.group_by(lambda k, v: ("all", v)).reduce(
        together, lambda a, b: {k: a[k] - b.get(k, 0) for k in a}
    )
    behind_a_topic.to_stream().map_values(lambda counts: sorted(counts)).to("sums")
    with TopologyTestDriver(builder.build()) as driver:
        for key in ("a", "b", "a"):
            driver.create_input_topic("in").pipe_input(key, 404)
        assert driver.create_output_topic("out").read_values_to_list() == [1, 1, 2]
        assert driver.create_output_topic("sums").read_values_to_list()[-1] == [404]
        assert driver.get_key_value_store("s").get("a") == {404: 2}


def test_a_serde_that_is_named_decides():
    builder = StreamsBuilder()
    grouped(builder).aggregate(
        dict, more, materialized=Materialized("s", key_serde=StringSerde(), value_serde=JsonSerde())
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(RecordFailedError, match="the key 404 is an int"):
        driver.create_input_topic("in").pipe_input("a", 404)
