"""Self joins, `join_all` and as-of joins process a step's records together, and leave exactly what they leave one by one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import JoinWindows, StreamsBuilder
from streams.operators.join.as_of import AsOfJoin
from streams.operators.join.join_all import StreamJoinAll
from streams.operators.join.stream_join import StreamSelfJoin
from streams.testing import TopologyTestDriver
from tests.both_ways import check_both_ways, counted
from tests.budget import up_to
from tests.operators.join_inputs import KINDS, PARTITIONS, both, feed, in_a_list, refuses, windows


@pytest.mark.slow
@up_to(15)
@given(
    st.sampled_from(KINDS),
    windows(),
    st.integers(0, 10**6),
    st.sets(st.integers(0, 3)),
    st.booleans(),
    st.sampled_from(("strict", "compat")),
)
def test_joins_of_a_stream_with_itself_over_one_store(kind, windows, seed, restarts, far, mode) -> None:
    """Also with values that the store gives back in another form: a record meets itself as it is."""
    steps = feed(seed, late=200_000 if far else 30)
    unit = 10_000 if far else 1
    steps = [[replace(one, topic="left", timestamp=one.timestamp * unit) for one in step] for step in steps]
    builder = StreamsBuilder(optimize=True)
    stream = builder.stream("left").map_values(in_a_list)
    join = {"inner": stream.join, "left": stream.left_join, "outer": stream.outer_join}[kind]
    join(stream, lambda left, right: [str(left), str(right)], windows).to("out")
    with counted(StreamSelfJoin) as answers:
        check_both_ways(builder.build(), steps, tuple(restarts), partitions=PARTITIONS, mode=mode)
    assert set(answers) == {"together"}


@pytest.mark.parametrize(("kind", "key"), [("outer_join", "a"), ("left_join", None)])
def test_a_record_of_a_self_join_that_fails_gives_nothing_else(kind: str, key: str | None) -> None:
    """On neither side: it does not wait for a partner, and is not counted as dropped."""

    def refuses_text(left: Any, right: Any) -> Any:
        if left == "text":
            raise ValueError("this pair is refused")
        return [left, right]

    builder = StreamsBuilder(optimize=True)
    stream = builder.stream("left")
    getattr(stream, kind)(stream, refuses_text, JoinWindows.of_time_difference_with_no_grace(5)).to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        left = driver.create_input_topic("left")
        left.pipe_input(key, "first", 0)
        left.pipe_input(key, "text", 1)
        left.pipe_input("b", "later", 100)
        first = [["first", "first"]] if key else [["first", None]]
        assert driver.create_output_topic("out").read_values_to_list() == [*first, ["later", "later"]]
        assert driver.counters["skipped:processing"] == 1
        dropped = {name.split(":")[2]: count for name, count in driver.counters.items() if name.startswith("dropped:")}
        # Without a key, the right side of the first record gives nothing.
        assert dropped == {"processing": 1} | ({} if key else {"null_key": 1})


def merge_of_all(values: Any) -> Any:
    return [str(value) for value in values.values()]


@pytest.mark.slow
@up_to(12)
@given(
    st.integers(0, 20),
    st.sampled_from((0, 3, 60)),
    st.integers(0, 10**6),
    st.sets(st.integers(0, 3)),
    st.booleans(),
    st.sampled_from(("strict", "compat")),
    st.sampled_from((("right", "third", "left"), ("left", "right", "left"), ("left", "right", "third", "right"))),
)
def test_joins_of_several_streams(difference, grace, seed, restarts, far, mode, topics) -> None:
    rng = random.Random(seed)
    steps = feed(seed, (30, 1, 30, 12), late=200_000 if far else 30)
    unit = 10_000 if far else 1
    steps = [[replace(one, topic=rng.choice(topics), timestamp=one.timestamp * unit) for one in step] for step in steps]
    builder = StreamsBuilder()
    this, *others = (builder.stream(topic).map_values(in_a_list) for topic in topics)
    windows = JoinWindows.of_time_difference_and_grace(difference, grace)
    this.join_all({f"s{at}": other for at, other in enumerate(others)}, merge_of_all, windows, this="this").to("out")
    with counted(StreamJoinAll) as answers:
        check_both_ways(
            builder.build(), steps, tuple(restarts), partitions={**PARTITIONS, "third": 2}, mode=mode, tasks=2
        )
    assert set(answers) == {"together"}


def test_a_joiner_of_all_that_changes_its_arguments() -> None:
    """Each call has its own values."""

    def changing(values: Any) -> Any:
        for value in values.values():
            if isinstance(value, dict):
                value["n"] = value.get("n", 0) + 1
        return list(values.values())

    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(9)
    left, right = builder.stream("left"), builder.stream("right")
    left.join_all({"r": right, "again": right}, changing, windows, this="l").to("out")
    with counted(StreamJoinAll) as answers:
        seen = check_both_ways(builder.build(), feed(7), partitions=PARTITIONS)
    assert set(answers) == {"together"}
    assert {value["n"] for one in seen.values("out") for value in orjson.loads(one) if isinstance(value, dict)} == {1}


@pytest.mark.slow
@up_to(10)
@given(
    st.booleans(),
    st.integers(0, 60),
    st.integers(0, 20),
    st.integers(0, 10**6),
    st.sets(st.integers(0, 3)),
    st.booleans(),
)
def test_as_of_joins(left, within, grace, seed, restarts, far) -> None:
    """Also with several right records of one time, of which the last counts, and where segments expire."""
    steps = feed(seed, late=200_000 if far else 12)
    unit = 10_000 if far else 1
    steps = [[replace(one, timestamp=one.timestamp * unit) for one in step] for step in steps]
    builder = StreamsBuilder()
    right = builder.stream("right").map_values(in_a_list)
    this = builder.stream("left").map_values(in_a_list)
    this.as_of_join(right, both, within * unit, grace=grace * unit, left=left).to("out")
    with counted(AsOfJoin) as answers:
        check_both_ways(builder.build(), steps, tuple(restarts), partitions=PARTITIONS, tasks=2)
    assert set(answers) == {"together"}


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
def test_a_joiner_of_an_as_of_join_that_raises(policy: str) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    builder = StreamsBuilder()
    builder.stream("left").as_of_join(builder.stream("right"), refuses, 20, grace=5, left=True).to("out")
    seen = check_both_ways(builder.build(), feed(4), partitions=PARTITIONS, processing=policy, **more)
    assert (seen.failed is not None) == (policy == "fail")
