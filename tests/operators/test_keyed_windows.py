"""Sessions and sliding windows aggregated by functions of the user are the same for a step's records together as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    EmitStrategy,
    JsonSerde,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StringSerde,
    Topology,
)
from streams.dsl.grouped import KGroupedStream
from streams.operators.aggregate.keyed_windows import KeyedAggregation
from tests.both_ways import any_fed, check_both_ways, counted
from tests.operators.test_aggregates_together import collected, merged, unwritable
from tests.operators.test_tables_together import feed
from tests.properties.runs import examples

Program = Callable[[KGroupedStream[Any, Any]], object]
CLOSE = EmitStrategy.on_window_close()


def both(key: Any, left: list[Any], right: list[Any]) -> list[Any]:
    """Changes the first aggregate."""
    left += right
    return left


SESSIONS = SessionWindows.of_inactivity_gap_and_grace(3, 4)
SLIDING = SlidingWindows.of_time_difference_and_grace(4, 5)


def sessions(group: KGroupedStream[Any, Any], add: Any = collected, emit: Any = None, **how: Any) -> Any:
    """The table of sessions."""
    windowed = group.windowed_by(SESSIONS)
    windowed = windowed if emit is None else windowed.emit_strategy(emit)
    return windowed.aggregate(list, add, both, materialized=Materialized(**how))


def sliding(group: KGroupedStream[Any, Any], add: Any = collected, emit: Any = None, **how: Any) -> Any:
    """The table of sliding windows."""
    windowed = group.windowed_by(SLIDING)
    windowed = windowed if emit is None else windowed.emit_strategy(emit)
    return windowed.aggregate(list, add, materialized=Materialized(**how))


AGAIN: dict[int, KGroupedStream[Any, Any]] = {}
"""By the id of a grouped stream, another one of the same records: a cogroup takes no stream twice."""


def cogrouped(group: KGroupedStream[Any, Any], windows: Any, *merger: Any, **how: Any) -> Any:
    """The table of a cogroup, to which each record is added twice."""
    again = AGAIN[id(group)]
    both_times = group.cogroup(collected).cogroup(again, lambda key, value, aggregate: [*aggregate, 0])
    return both_times.windowed_by(windows).aggregate(list, *merger, materialized=Materialized(**how))


def programs(of: Callable[..., Any]) -> dict[str, Program]:
    """The programs of a kind of windows."""
    return {
        "an aggregation": lambda group: of(group).to_stream().to("out"),
        "results that cannot be written": lambda group: of(group, unwritable).to_stream().to("out"),
        "old values and updates": lambda group: [
            (table := of(group)).filter(lambda key, value: len(value) > 2).to_stream().to("long"),
            table.to_stream(lambda key, value: key.key).to("out"),
        ],
        "records that are dropped": lambda group: [
            (table := of(group)).to_stream().to("out"),
            table.dropped().to("dropped"),
        ],
        "on close": lambda group: of(group, emit=CLOSE).to_stream().to("out"),
    }


PROGRAMS: dict[str, Program] = {
    f"{kind}: {name}": shape
    for kind, of, windows in (("sessions", sessions, SESSIONS), ("sliding", sliding, SLIDING))
    for name, shape in {
        **programs(of),
        "every update": lambda group, of=of: of(group, caching=False).to_stream().to("out"),
        "a reduction": lambda group, windows=windows: group.windowed_by(windows).reduce(merged).to_stream().to("out"),
    }.items()
}
PROGRAMS |= {
    "sessions: a cogroup": lambda group: cogrouped(group, SESSIONS, both).to_stream().to("out"),
    "sessions: every update of a cogroup": lambda group: (
        cogrouped(group, SESSIONS, both, caching=False).to_stream().to("out")
    ),
    "sliding: a cogroup": lambda group: cogrouped(group, SLIDING, caching=False).to_stream().to("out"),
}


def program(shape: Program) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(StringSerde(), JsonSerde()))
    group = stream.group_by_key()
    AGAIN[id(group)] = stream.filter(lambda key, value: True).group_by_key()
    shape(group)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", PROGRAMS)
def test_windows_of_a_step(shape: str, seed: int) -> None:
    with counted(KeyedAggregation) as answers:
        found = check_both_ways(
            program(PROGRAMS[shape]),
            feed(seed, ["in"], poison=seed == 1),
            restarts=[1, 2],
            partitions={"in": 2},
            rocksdb=seed == 0 and "every" in shape,
            mode=["strict", "compat"][seed % 2],
            processing="skip",
            deserialization="skip",
        )
    assert answers[0] == "together"
    assert found.topics[("out", 0)]
    assert not found.fallbacks


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("shape", PROGRAMS)
def test_functions_are_called_in_parts(shape: str, mode: str) -> None:
    """As for steps of more than 10,000 records."""
    with mock.patch("streams.operators.aggregate.keyed_windows._MOST_TOGETHER", 3):
        check_both_ways(program(PROGRAMS[shape]), feed(5, ["in"]), partitions={"in": 2}, processing="skip", mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dlq", "fail"])
@pytest.mark.parametrize("shape", [name for name in PROGRAMS if "close" not in name and "dropped" not in name])
def test_records_at_fault(shape: str, policy: str) -> None:
    """In what order dead letters come, and which record stops the application."""
    found = check_both_ways(
        program(PROGRAMS[shape]),
        feed(4, ["in"], poison=True),
        partitions={"in": 2},
        deserialization=policy,
        processing=policy,
        **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
    )
    assert (found.failed is not None) == (policy == "fail")


records = any_fed((None, b"1", b"2", b"3", b'"text"'), (b"a", b"b", None))


@examples
@given(
    shape=st.sampled_from(sorted(PROGRAMS)),
    fed=st.lists(st.lists(records, max_size=20), min_size=1, max_size=4),
    restarts=st.lists(st.integers(0, 3), max_size=2),
    mode=st.sampled_from(("strict", "compat")),
)
def test_any_records(shape, fed, restarts, mode):
    check_both_ways(
        program(PROGRAMS[shape]), fed, restarts=restarts, partitions={"in": 2}, processing="skip", mode=mode
    )
