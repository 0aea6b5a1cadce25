"""Aggregations by functions of the user give the same results for a step's records together as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    EmitStrategy,
    Grouped,
    JsonSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    Topology,
    agg,
)
from streams.dsl.grouped import KGroupedStream
from streams.errors import SerdeError
from streams.model.windows import Windows
from streams.operators.aggregate.aggregates import WindowAggregate
from streams.topology.plan import plan_alone
from streams.topology.ways import Way, ways
from tests.both_ways import Fed, any_fed, check_both_ways, counted, played
from tests.operators.both_ways import examples
from tests.operators.test_tables_together import feed

Program = Callable[[KGroupedStream[Any, Any]], object]


def collected(key: Any, value: Any, aggregate: list[Any]) -> list[Any] | None:
    """Changes the aggregate; fails for some values, after the change, and deletes some groups."""
    aggregate.append([key, value])
    if value == 3:
        raise ValueError("three")
    return None if value == "text" else aggregate


def merged(left: Any, right: Any) -> Any:
    """A reducer that changes its first argument, which may be a record's value, and deletes some groups."""
    if isinstance(left, dict):
        left["n"] = left.get("n", 0) + 1
        if left["n"] == 3:
            raise ValueError("the third")
        return left
    return None if left == right else right


def unwritable(key: Any, value: Any, aggregate: Any) -> Any:
    """Gives a result that JSON cannot hold for some keys."""
    return {1, 2} if key == "b" else value


@dataclass(frozen=True)
class Uneven(Windows):
    """Windows of a user's own class: of 3 and 7 ms in turns; some timestamps have none, and one makes it fail."""

    grace_ms: int = 4
    size_ms: int = 7

    def starts(self, timestamp: int) -> Iterable[int]:
        if timestamp == 29:
            raise ValueError("no window")
        return [] if timestamp % 11 == 5 else [timestamp // 10 * 10 + (3 if timestamp % 10 >= 3 else 0)]

    def end_of(self, start: int) -> int:
        return start + (7 if start % 10 else 3)


TUMBLING = TimeWindows.of_size_and_grace(5, 4)
HOPPING = TimeWindows.of_size_and_grace(9, 3).advance_by(4)
CLOSE = EmitStrategy.on_window_close()
COLLECT = (list, collected)
EVERY = Materialized(caching=False)

PROGRAMS: dict[str, Program] = {
    "an aggregation": lambda group: group.aggregate(*COLLECT).to_stream().to("out"),
    "a reduction": lambda group: group.reduce(merged).to_stream().to("out"),
    "tumbling windows": lambda group: group.windowed_by(TUMBLING).aggregate(*COLLECT).to_stream().to("out"),
    "hopping windows": lambda group: group.windowed_by(HOPPING).aggregate(*COLLECT).to_stream().to("out"),
    "a reduction in hopping windows": lambda group: group.windowed_by(HOPPING).reduce(merged).to_stream().to("out"),
    "windows of a class of one's own": lambda group: (
        group.windowed_by(Uneven()).aggregate(*COLLECT).to_stream().to("out")
    ),
    "results that cannot be written": lambda group: (
        group.windowed_by(HOPPING).aggregate(lambda: 0, unwritable).to_stream().to("out")
    ),
    "old values below": lambda group: [
        (table := group.aggregate(*COLLECT)).to_stream().to("out"),
        table.group_by(lambda key, value: (str(len(value)), key)).count().to_stream().to("counts"),
        table.filter(lambda key, value: len(value) > 2).to_stream().to("long"),
    ],
    "the windowed table below": lambda group: [
        (table := group.windowed_by(HOPPING).aggregate(*COLLECT)).map_values(len).to_stream().to("out"),
        table.filter(lambda key, value: len(value) > 1).to_stream().to("long"),
        table.to_stream(lambda key, value: key.key).to("by-key"),
    ],
    "records that are dropped": lambda group: [
        (table := group.windowed_by(HOPPING).aggregate(*COLLECT)).to_stream().to("out"),
        table.dropped().to("dropped"),
    ],
    "windows on close": lambda group: (
        group.windowed_by(TUMBLING).emit_strategy(CLOSE).aggregate(*COLLECT).to_stream().to("out")
    ),
    "hopping windows on close, and what is late": lambda group: [
        (table := group.windowed_by(HOPPING).emit_strategy(CLOSE).aggregate(*COLLECT)).to_stream().to("out"),
        table.filter(lambda key, value: len(value) > 1).to_stream().to("long"),
        table.dropped().to("dropped"),
    ],
    "built-in aggregates on close": lambda group: (
        group.windowed_by(TUMBLING).emit_strategy(CLOSE).count().to_stream().to("out")
    ),
    "every update, and old values below": lambda group: [
        (table := group.aggregate(*COLLECT, EVERY)).to_stream().to("out"),
        table.group_by(lambda key, value: (str(len(value)), key)).count(EVERY).to_stream().to("counts"),
        table.filter(lambda key, value: len(value) > 2).to_stream().to("long"),
    ],
    "every update of a reduction": lambda group: group.reduce(merged, EVERY).to_stream().to("out"),
    "every update of hopping windows": lambda group: [
        (table := group.windowed_by(HOPPING).aggregate(*COLLECT, EVERY)).to_stream().to("out"),
        table.filter(lambda key, value: len(value) > 1).to_stream().to("long"),
        table.dropped().to("dropped"),
    ],
    "every update of windows of a class of one's own": lambda group: (
        group.windowed_by(Uneven()).aggregate(*COLLECT, EVERY).to_stream().to("out")
    ),
    "every update of built-in aggregates": lambda group: (
        group.windowed_by(HOPPING).aggregate(n=agg.count(), s=agg.sum("n"), materialized=EVERY).to_stream().to("out")
    ),
    "every update that cannot be written": lambda group: (
        group.windowed_by(HOPPING).aggregate(lambda: 0, unwritable, EVERY).to_stream().to("out")
    ),
    "windows on close without a cache": lambda group: (
        group.windowed_by(HOPPING).emit_strategy(CLOSE).aggregate(*COLLECT, EVERY).to_stream().to("out")
    ),
    "two aggregations": lambda group: [
        group.windowed_by(TUMBLING).aggregate(*COLLECT).to_stream().to("out"),
        group.reduce(merged).to_stream().to("reduced"),
    ],
}


def program(shape: Program, serde: JsonSerde | None = None) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream("in", Consumed(StringSerde(), serde or JsonSerde())).group_by_key())
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", PROGRAMS)
def test_functions_called_for_a_step_at_once(shape: str, seed: int) -> None:
    found = check_both_ways(
        program(PROGRAMS[shape]),
        feed(seed, ["in"]),
        restarts=[1, 2],
        partitions={"in": 2},
        rocksdb=seed == 0 and "hopping" in shape,
        mode=["strict", "compat"][seed % 2],
        processing="skip",
    )
    assert any(topic.endswith("-changelog") for topic, _ in found.topics)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("shape", ["an aggregation", "hopping windows", "records that are dropped"])
def test_records_at_fault(shape: str, policy: str) -> None:
    """Those that cannot be read, and those for which a function fails."""
    for seed in range(2):
        found = check_both_ways(
            program(PROGRAMS[shape]),
            feed(seed, ["in"], poison=True),
            partitions={"in": 2},
            deserialization=policy,
            processing=policy,
            **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
        )
        assert (found.failed is not None) == (policy == "fail")


@pytest.mark.slow
def test_the_streams_of_a_cogroup_in_turns() -> None:
    """They share aggregates, so their records are aggregated in the order of the step."""
    for windows, caching in product((None, HOPPING), (True, False)):
        builder = StreamsBuilder()
        consumed = Consumed(StringSerde(), JsonSerde())
        groups = [builder.stream(topic, consumed).group_by_key() for topic in ("in", "other")]
        group = groups[0].cogroup(collected).cogroup(groups[1], lambda key, value, all: [*all, key])
        windowed = group if windows is None else group.windowed_by(windows)
        windowed.aggregate(list, Materialized(caching=caching)).to_stream().to("out")
        topology = builder.build()
        for seed in range(2):
            partitions = {"in": 2, "other": 2}
            check_both_ways(
                topology, feed(seed, ["in", "other"]), restarts=[1], partitions=partitions, processing="skip"
            )


def test_a_key_that_cannot_be_written() -> None:
    """Its records fail, and the others are aggregated."""

    class Short(StringSerde):
        def serialize(self, topic: str, data: Any, headers: Any = ()) -> bytes | None:
            if "changelog" in topic and data == "b":
                raise SerdeError("the key is b")
            return super().serialize(topic, data, headers)

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(StringSerde(), JsonSerde()))
    group = stream.group_by_key().windowed_by(HOPPING)
    group.aggregate(*COLLECT, Materialized(name="lists", key_serde=Short())).to_stream().to("out")
    with counted(WindowAggregate) as answers:
        check_both_ways(builder.build(), feed(3, ["in"]), partitions={"in": 2}, processing="skip")
    assert "SerdeError" in answers


def test_no_step_goes_one_by_one_because_a_function_fails() -> None:
    with counted(WindowAggregate) as answers:
        played(program(PROGRAMS["hopping windows"]), feed(1, ["in"]), partitions={"in": 2}, processing="skip")
    assert set(answers) == {"together", "ChangedInPlace"}  # the step at fault runs again, together as well


records = st.lists(any_fed([b'{"a": 1}', b'{"a":1}', b"3", b"4", b'"text"', b"null", None, b"[1,2]"]), max_size=12)


@pytest.mark.slow
@examples
@given(st.sampled_from(sorted(PROGRAMS)), st.lists(records, min_size=1, max_size=4), st.sets(st.integers(0, 2)))
def test_any_records_in_any_steps(shape: str, steps: list[list[Fed]], restarts: set[int]) -> None:
    check_both_ways(program(PROGRAMS[shape]), steps, restarts=sorted(restarts), partitions={"in": 2}, processing="skip")


def test_who_is_told_which_way() -> None:
    """Aggregations with functions go together, also if they emit every update."""

    def way(**how: Any) -> Way:
        builder = StreamsBuilder()
        group = builder.stream("in", Consumed(StringSerde(), JsonSerde())).group_by_key(Grouped(name="group"))
        group.aggregate(*COLLECT, Materialized(name="lists", **how)).to_stream().to("out")
        topology = builder.build()
        (sub,) = plan_alone(topology).sub_topologies
        return next(one.way for one in ways(sub) if "AGGREGATE" in one.node)

    assert way() is Way.TOGETHER
    assert way(caching=False) is Way.TOGETHER
