"""Joins of streams process a step's records together, and leave exactly what they leave one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.restore import task_stores
from streams import Consumed, JoinWindows, JsonSerde, Produced, StreamJoined, StreamsBuilder, StringSerde
from streams.operators.join.columns.as_of import AsOfJoinTogether
from streams.operators.join.columns.join_all import StreamJoinAllTogether
from streams.operators.join.columns.self_join import StreamSelfJoinTogether
from streams.operators.join.columns.stream_join import StreamJoinTogether
from tests.both_ways import Fed, check_both_ways, counted

KEYS = (b"a", b"b", b"ab", b"a", None)
VALUES = (b'{"v":1}', b'{"v": 2}', b'"text"', b"[]", b"3.0", b"null", None)
PARTITIONS = {"left": 2, "right": 2, "out": 2}
KINDS = ("inner", "left", "outer")


def both(key: Any, left: Any, right: Any) -> Any:
    return [key, left, right]


def in_another_form(value: Any) -> Any:
    """A tuple, which the store gives back as a list."""
    return value if value is None else (value, 1)


def program(
    kind: str,
    windows: JoinWindows,
    joiner: Callable[..., Any] = both,
    mapped: Callable[[Any], Any] | None = None,
    how: StreamJoined | None = None,
) -> Any:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    if mapped is not None:
        left = left.map_values(mapped)
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    join(right, joiner, windows, how).to("out")
    return builder.build()


def feed(
    seed: int, sizes: tuple[int, ...] = (40, 1, 50, 12), late: int = 30, values: tuple[Any, ...] = VALUES
) -> list[list[Fed]]:
    """Steps of records of few keys, with equal times, times out of order, null keys and null values."""
    rng, now = random.Random(seed), 0

    def record() -> Fed:
        nonlocal now
        now += rng.choice((0, 0, 1, 3))
        return Fed(
            rng.choice(("left", "right")),
            rng.choice(KEYS),
            rng.choice(values),
            max(0, now - rng.choice((0, 0, 1, 4, late))),
            rng.choice(((), (), (("h", b"1"),), (("h", None), ("g", b"")))),
            rng.randrange(2),
        )

    return [[record() for _ in range(size)] for size in sizes]


def check(topology: Any, steps: list[list[Fed]], restarts: tuple[int, ...] = (), **more: Any) -> Any:
    """`check_both_ways`, and that no step fell back."""
    with counted(StreamJoinTogether) as answers:
        seen = check_both_ways(topology, steps, restarts, partitions=PARTITIONS, **more)
    assert set(answers) == {"together"}
    return seen


@st.composite
def windows(draw: Any) -> JoinWindows:
    before = draw(st.integers(-6, 20))
    return JoinWindows(before, draw(st.integers(max(-6, -before), 20)), draw(st.sampled_from((0, 3, 60))))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    windows(),
    st.integers(0, 10**6),
    st.sampled_from((1, 2)),
    st.sets(st.integers(0, 3)),
    st.booleans(),
)
def test_strict_joins(kind, windows, seed, tasks, restarts, far) -> None:
    """Also where segments expire, and where single records come long after all others of their time."""
    steps = feed(seed, late=200_000 if far else 30)
    if far:
        steps = [[replace(one, timestamp=one.timestamp * 20_000) for one in step] for step in steps]
    check(program(kind, windows), steps, tuple(restarts), tasks=tasks)


@settings(max_examples=80, deadline=None)
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
    stream = builder.stream("left").map_values(in_another_form)
    join = {"inner": stream.join, "left": stream.left_join, "outer": stream.outer_join}[kind]
    join(stream, lambda left, right: [str(left), str(right)], windows).to("out")
    with counted(StreamSelfJoinTogether) as answers:
        check_both_ways(builder.build(), steps, tuple(restarts), partitions=PARTITIONS, mode=mode)
    assert set(answers) == {"together"}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(KINDS),
    windows(),
    st.integers(0, 10**6),
    st.sets(st.integers(0, 3)),
    st.booleans(),
    st.sampled_from((0, 0, 1000)),
)
def test_joins_in_compat_mode(kind, windows, seed, restarts, far, interval) -> None:
    """Also where segments expire, and where the wall clock allows one scan for waiting records a step, or none."""
    steps = feed(seed, late=100_000 if far else 30)
    if far:
        steps = [[replace(one, timestamp=one.timestamp * 10_000) for one in step] for step in steps]
    check(program(kind, windows), steps, tuple(restarts), mode="compat", emit_interval_ms=interval, apart_ms=600)


@pytest.mark.parametrize("kind", KINDS)
def test_stores_on_disk_that_spill(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(task_stores.open_task_store, spill_bytes=3000)
    monkeypatch.setattr(
        task_stores, "open_task_store", lambda folder, specs, _bytes, *more: small(folder, specs, 3000, *more)
    )
    check(program(kind, JoinWindows(9, 9, 5)), feed(2), (1,), rocksdb=True)


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("kind", KINDS)
def test_records_that_cannot_be_read(kind: str, policy: str) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    steps = feed(3, values=(*VALUES, b"{", b"\xff"))
    topology = program(kind, JoinWindows(9, 9, 5))
    seen = check_both_ways(topology, steps, partitions=PARTITIONS, deserialization=policy, **more)
    assert (seen.failed is not None) == (policy == "fail")


def refuses(key: Any, left: Any, right: Any) -> Any:
    if left == "text" and right in (3.0, None):
        raise ValueError("this pair is refused")
    return [key, left, right]


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_joiner_that_raises(kind: str, policy: str) -> None:
    """The other pairs of the step have their results, and the record at fault meets its policy."""
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    with counted(StreamJoinTogether) as answers:
        seen = check_both_ways(
            program(kind, JoinWindows(9, 9, 5), refuses), feed(4), partitions=PARTITIONS, processing=policy, **more
        )
    assert "ValueError" in answers
    # A step that fails counts nothing.
    assert {name.split(":")[2] for name in seen.fallbacks} == ({"ValueError"} if policy != "fail" else set())
    assert (seen.failed is not None) == (policy == "fail")


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_results_that_cannot_be_written(policy: str) -> None:
    topology = program("left", JoinWindows(9, 9, 5), lambda left, right: {1, 2} if right == 3.0 else [left, right])
    seen = check_both_ways(topology, feed(5), partitions=PARTITIONS, production=policy)
    assert (seen.failed is not None) == (policy == "fail")


def test_results_that_a_topic_refuses_name_the_waiting_record() -> None:
    """A result of a record that has waited is dead-lettered as that record."""
    topology = program("outer", JoinWindows(2, 2, 0), lambda left, right: "x" * (9000 if right is None else 1))
    seen = check_both_ways(
        topology,
        feed(6),
        partitions=PARTITIONS,
        production="dlq",
        dead_letter_topic="dead",
        max_record_bytes=8000,
    )
    assert any(topic == "dead" for topic, _ in seen.topics)


@pytest.mark.parametrize("kind", KINDS)
def test_partners_are_what_the_store_would_have(kind: str) -> None:
    """A tuple comes back as a list, as it does from the store."""
    kinds = lambda left, right: [type(left).__name__, left, type(right).__name__, right]  # noqa: E731
    check(program(kind, JoinWindows(9, 9, 5), kinds, mapped=lambda value: (value, [])), feed(7))


@pytest.mark.parametrize("kind", KINDS)
def test_a_joiner_that_changes_its_arguments(kind: str) -> None:
    """Each result is what the joiner has returned, and the store has the changed value: so it is without columns."""

    def merging(left: Any, right: Any) -> Any:
        if isinstance(left, dict) and isinstance(right, dict):
            left["n"] = left.get("n", 0) + 1
            right.update(left)
        return left

    with counted(StreamJoinTogether) as answers:
        seen = check_both_ways(program(kind, JoinWindows(9, 9, 5), merging), feed(7), partitions=PARTITIONS)
    assert "OneByOne" in answers
    assert {name.split(":")[2] for name in seen.fallbacks} == {"the joiner changes its arguments"}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_whose_bytes_have_several_forms(kind: str) -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, Consumed(JsonSerde(), JsonSerde())) for topic in ("left", "right"))
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    join(right, both, JoinWindows(9, 9, 5)).to("out", Produced(JsonSerde(), JsonSerde()))
    forms = {b"a": b"[1, 2]", b"b": b"[1,2]", b"ab": b"null", None: None}
    steps = [[replace(one, key=forms[one.key]) for one in step] for step in feed(8)]
    check(builder.build(), steps)


def test_dropped_records_keep_their_order() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, Consumed(StringSerde(), JsonSerde())) for topic in ("left", "right"))
    joined = left.join(right, both, JoinWindows(5, 5, 0))
    joined.to("out")
    joined.dropped().map_values(lambda value: str(value)).to("dropped")
    seen = check(builder.build(), feed(9))
    assert any(topic == "dropped" for topic, _ in seen.topics)


def test_one_topic_on_both_sides() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left")
    stream.outer_join(stream.filter(lambda key, value: value != 3.0), both, JoinWindows(5, 5, 3)).to("out")
    check(builder.build(), feed(10))


def test_functions_behind_a_join_take_its_results_in_order() -> None:
    builder = StreamsBuilder()
    joined = builder.stream("left").left_join(builder.stream("right"), both, JoinWindows(5, 5, 3))
    kept: Iterator[Any] = joined.filter(lambda key, value: value[2] != "text").map_values(str)
    kept.to("out")
    check(builder.build(), feed(11))


def merge_of_all(values: Any) -> Any:
    return [str(value) for value in values.values()]


@settings(max_examples=60, deadline=None)
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
    this, *others = (builder.stream(topic).map_values(in_another_form) for topic in topics)
    windows = JoinWindows.of_time_difference_and_grace(difference, grace)
    this.join_all({f"s{at}": other for at, other in enumerate(others)}, merge_of_all, windows, this="this").to("out")
    with counted(StreamJoinAllTogether) as answers:
        check_both_ways(
            builder.build(), steps, tuple(restarts), partitions={**PARTITIONS, "third": 2}, mode=mode, tasks=2
        )
    assert set(answers) == {"together"}


def test_a_joiner_of_all_that_changes_its_arguments() -> None:
    """The store has the changed value: so it is without columns."""

    def changing(values: Any) -> Any:
        for value in values.values():
            if isinstance(value, dict):
                value["n"] = value.get("n", 0) + 1
        return list(values.values())

    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(9)
    left, right = builder.stream("left"), builder.stream("right")
    left.join_all({"r": right, "again": right}, changing, windows, this="l").to("out")
    with counted(StreamJoinAllTogether) as answers:
        check_both_ways(builder.build(), feed(7), partitions=PARTITIONS)
    assert "OneByOne" in answers


@settings(max_examples=80, deadline=None)
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
    right = builder.stream("right").map_values(in_another_form)
    this = builder.stream("left").map_values(in_another_form)
    this.as_of_join(right, both, within * unit, grace=grace * unit, left=left).to("out")
    with counted(AsOfJoinTogether) as answers:
        check_both_ways(builder.build(), steps, tuple(restarts), partitions=PARTITIONS, tasks=2)
    assert set(answers) == {"together"}


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
def test_a_joiner_of_an_as_of_join_that_raises(policy: str) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    builder = StreamsBuilder()
    builder.stream("left").as_of_join(builder.stream("right"), refuses, 20, grace=5, left=True).to("out")
    seen = check_both_ways(builder.build(), feed(4), partitions=PARTITIONS, processing=policy, **more)
    assert (seen.failed is not None) == (policy == "fail")
