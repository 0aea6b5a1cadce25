"""`suppress` gives the same results for a step's updates together as one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    JsonSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
)
from streams.dsl.suppressed import BufferConfig
from streams.operators.table.suppress import Suppress
from streams.topology.plan import plan_alone
from streams.topology.ways import ways
from tests.both_ways import Fed, any_fed, check_both_ways, counted
from tests.operators.both_ways import examples
from tests.operators.test_tables_together import feed

UNBOUNDED = BufferConfig.unbounded()
CONSUMED = Consumed(StringSerde(), JsonSerde())
SHAPES = ["a time limit", "closed windows", "a bounded buffer", "old values below"]


def program(shape: str) -> Topology:
    builder = StreamsBuilder()
    if shape == "closed windows":
        windows = TimeWindows.of_size_and_grace(5, 4)
        table = builder.stream("in", CONSUMED).group_by_key().windowed_by(windows).aggregate(list, collected)
        suppressed = table.suppress(Suppressed.until_window_closes(UNBOUNDED))
    else:
        rows = builder.table("in", CONSUMED, Materialized(name="rows"))
        bounds = BufferConfig.of_max_records(2) if shape == "a bounded buffer" else UNBOUNDED
        suppressed = rows.suppress(Suppressed.until_time_limit(6, bounds))
    suppressed.to_stream().to("out")
    if shape == "old values below":
        suppressed.group_by(lambda key, value: (str(value), 1)).count().to_stream().to("counts")
    return builder.build()


def collected(key: Any, value: Any, aggregate: list[Any]) -> list[Any] | None:
    aggregate.append([key, value])
    return None if value == "text" else aggregate


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("shape", SHAPES)
def test_updates_of_several_steps(shape: str, mode: str) -> None:
    for seed in range(2):
        check_both_ways(
            program(shape),
            feed(seed, ["in"]),
            restarts=[1, 2],
            partitions={"in": 2},
            rocksdb=seed == 1 and shape == "a time limit",
            mode=mode,
            processing="skip",
        )


def test_an_idle_task_emits_what_is_due() -> None:
    """Idle time makes updates due that were buffered together."""
    check_both_ways(
        program("a time limit"), feed(1, ["in"]), partitions={"in": 2}, processing="skip", idle_timeout_ms=1
    )


records = st.lists(any_fed([b'{"a": 1}', b"3", b'"text"', b"null", None]), max_size=12)


@pytest.mark.slow
@examples
@given(st.sampled_from(SHAPES), st.lists(records, min_size=1, max_size=5), st.sets(st.integers(0, 3)))
def test_any_updates_in_any_steps(shape: str, steps: list[list[Fed]], restarts: set[int]) -> None:
    check_both_ways(program(shape), steps, sorted(restarts), partitions={"in": 2}, processing="skip")


@pytest.mark.parametrize("shape", SHAPES)
def test_no_update_goes_one_by_one(shape: str) -> None:
    found = [one for sub in plan_alone(program(shape)).sub_topologies for one in ways(sub) if "SUPPRESS" in one.node]
    assert {one.remark for one in found} == {""}
    with counted(Suppress) as answers:
        check_both_ways(program(shape), feed(1, ["in"]), partitions={"in": 2}, processing="skip")
    assert set(answers) == {"together"}
