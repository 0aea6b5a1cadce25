"""Inner, left and outer joins of streams process a step's records together, and leave exactly what they leave one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.restore import task_stores
from streams import Consumed, JoinWindows, JsonSerde, Produced, StreamJoined, StreamsBuilder, StringSerde
from streams.model.ownership import only_reads
from streams.operators.join.stream_join import StreamStreamJoin
from tests.both_ways import Fed, check_both_ways, counted
from tests.budget import up_to
from tests.operators.join_inputs import KINDS, PARTITIONS, VALUES, both, feed, refuses, windows


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


def check(topology: Any, steps: list[list[Fed]], restarts: tuple[int, ...] = (), **more: Any) -> Any:
    """`check_both_ways`, and that no step fell back."""
    with counted(StreamStreamJoin) as answers:
        seen = check_both_ways(topology, steps, restarts, partitions=PARTITIONS, **more)
    assert set(answers) == {"together"}
    return seen


@pytest.mark.slow
@up_to(15)
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


@pytest.mark.slow
@up_to(12)
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_stores_on_disk_that_spill(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(task_stores.open_task_store, spill_bytes=3000)
    monkeypatch.setattr(
        task_stores, "open_task_store", lambda folder, specs, _bytes, *more: small(folder, specs, 3000, *more)
    )
    check(program(kind, JoinWindows(9, 9, 5)), feed(2), (1,), rocksdb=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("kind", KINDS)
def test_records_that_cannot_be_read(kind: str, policy: str) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    steps = feed(3, values=(*VALUES, b"{", b"\xff"))
    topology = program(kind, JoinWindows(9, 9, 5))
    seen = check_both_ways(topology, steps, partitions=PARTITIONS, deserialization=policy, **more)
    assert (seen.failed is not None) == (policy == "fail")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_joiner_that_raises(kind: str, policy: str) -> None:
    """The other pairs of the step have their results, and the record at fault meets its policy."""
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    with counted(StreamStreamJoin) as answers:
        seen = check_both_ways(
            program(kind, JoinWindows(9, 9, 5), refuses), feed(4), partitions=PARTITIONS, processing=policy, **more
        )
    # A record alone meets its policy at once.
    assert "ValueError" in answers or (policy == "fail" and "RecordFailedError" in answers)
    # A step that fails counts nothing.
    assert {name.split(":")[2] for name in seen.fallbacks} == ({"ValueError"} if policy != "fail" else set())
    assert (seen.failed is not None) == (policy == "fail")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_partners_are_what_the_store_would_have(kind: str) -> None:
    """A tuple comes back as a list, as it does from the store."""
    kinds = lambda left, right: [type(left).__name__, left, type(right).__name__, right]  # noqa: E731
    check(program(kind, JoinWindows(9, 9, 5), kinds, mapped=lambda value: (value, [])), feed(7))


CHANGED: list[Any] = []


def changes(left: Any, right: Any) -> Any:
    CHANGED.append(left)
    left += right
    return left


def calls_another(left: Any, right: Any) -> Any:
    return changes(left, right)


def calls_a_value(left: Any, right: Any) -> Any:
    return left["function"](right)


def sets_a_field(left: Any, right: Any) -> Any:
    left["right"] = right
    return left


def test_a_joiner_that_only_reads_its_arguments_is_known_by_its_instructions() -> None:
    """So they need not be copied. What is not certain is copied."""
    nothing = changes
    for joiner in (
        lambda left, right: {**left, **right},
        lambda left, right: [left, right],
        lambda left, right: {"total": left["a"] + right.get("b", 0) if right else None},
        lambda left, right: f"{left['a']} {right!s} {left['b'] <= 1}",
        both,
    ):
        assert only_reads(joiner)
    for joiner in (
        changes,
        calls_another,
        calls_a_value,
        sets_a_field,
        lambda left, right: left.update(right) or left,
        lambda left, right: nothing(left, right),
        lambda left, right: [one.pop() for one in left],
        lambda left, right: max(left, key=CHANGED.append),
        dict.update,
    ):
        assert not only_reads(joiner)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_joiner_that_changes_its_arguments(kind: str) -> None:
    """Each call has its own values, so that the next one, the stores and other nodes have what came in."""

    def merging(left: Any, right: Any) -> Any:
        for value in (left, right):
            if isinstance(value, dict):
                value["calls"] = [*value.get("calls", []), 1]
        return [left, right]

    for mapped in (None, lambda value: value):
        seen = check(program(kind, JoinWindows(9, 9, 5), merging, mapped), feed(7))
        changed = [one for value in seen.values("out") for one in orjson.loads(value) if isinstance(one, dict)]
        assert changed
        assert all(one["calls"] == [1] for one in changed)
        stored = seen.values("-changelog")
        assert stored
        assert not any(b"calls" in value for value in stored if value is not None)


@pytest.mark.slow
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
    kept.to("out")  # type: ignore[attr-defined]
    check(builder.build(), feed(11))


def test_a_side_whose_records_come_at_the_end_of_the_step() -> None:
    """The sides never have records in one pass, and are one group all the same."""
    builder = StreamsBuilder()
    left = builder.stream("left", Consumed(StringSerde(), JsonSerde())).group_by_key().count().to_stream()
    right = builder.stream("right", Consumed(StringSerde(), JsonSerde()))
    left.join(right, both, JoinWindows(9, 9, 5)).to("out", Produced(StringSerde(), JsonSerde()))
    with counted(StreamStreamJoin) as answers:
        seen = check_both_ways(builder.build(), feed(7), partitions=PARTITIONS)
    assert set(answers) == {"together"}
    assert not seen.fallbacks
