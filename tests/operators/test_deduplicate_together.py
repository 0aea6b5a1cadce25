"""`deduplicate` gives the same results for a step's records together as one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde, Topology
from streams.operators.aggregate.deduplicate import Deduplicate
from tests.both_ways import Fed, any_fed, check_both_ways, counted, played
from tests.operators.both_ways import examples
from tests.operators.test_tables_together import feed


def id_of(key: str, value: Any) -> Any:
    """An id of some kind; changes a value, has none for a key, fails for a value."""
    if value == 3:
        raise ValueError("three")
    if isinstance(value, dict):
        value["seen"] = True
        return value["seen"]
    return None if key == "d" else value


def program(by_id: bool, grace: int, within: int = 6) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(StringSerde(), JsonSerde()))
    once = stream.deduplicate(within, id_of if by_id else None, grace)
    once.to("out")
    once.map_values(lambda key, value: [key, value]).to("mapped")
    once.dropped().to("dropped")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("by_id", [True, False])
def test_records_of_several_steps(by_id: bool, policy: str) -> None:
    for seed in range(3):
        found = check_both_ways(
            program(by_id, grace=[0, 9, 30][seed]),
            feed(seed, ["in"], poison=seed == 2),
            restarts=[1, 2],
            partitions={"in": 2},
            rocksdb=seed == 1 and policy == "skip",
            deserialization="skip",
            processing=policy,
            **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
        )
        assert (found.failed is not None) == (policy == "fail" and by_id)


def test_an_id_that_cannot_be_written() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(StringSerde(), JsonSerde()))
    stream.deduplicate(5, lambda key, value: {1} if key == "b" else value).to("out")
    found = check_both_ways(builder.build(), feed(1, ["in"]), partitions={"in": 2}, processing="skip")
    assert any(name.endswith(":processing") for name in found.counters)


records = st.lists(any_fed([b'{"a": 1}', b"3", b"4", b'"text"', b"null", None], [b"a", b"b", b"d", None]), max_size=15)


@pytest.mark.slow
@examples
@given(
    st.booleans(),
    st.integers(0, 20),
    st.integers(1, 12),
    st.lists(records, min_size=1, max_size=4),
    st.sets(st.integers(0, 2)),
)
def test_any_records_in_any_steps(
    by_id: bool, grace: int, within: int, steps: list[list[Fed]], restarts: set[int]
) -> None:
    topology = program(by_id, grace, within)
    check_both_ways(topology, steps, sorted(restarts), partitions={"in": 2}, processing="skip")


def test_no_step_goes_one_by_one_because_an_id_fails() -> None:
    with counted(Deduplicate) as answers:
        played(program(True, grace=9), feed(1, ["in"]), partitions={"in": 2}, processing="skip")
    assert set(answers) == {"together"}
