"""Rows of a step's records made together are those made one by one, and so are the records that do not fit."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde, Topology
from tests.both_ways import Fed, check_both_ways
from tests.operators.both_ways import examples

VALUES = [{"n": 1, "note": "a"}, {"n": 2}, {"n": "many"}, {"note": "b"}, 5, None]

records = st.lists(
    st.builds(
        lambda key, value, time: Fed("in", key, None if value is None else orjson.dumps(value), time, (("h", b"1"),)),
        st.sampled_from([b"a", b"b", None]),
        st.sampled_from(VALUES),
        st.integers(0, 20),
    ),
    max_size=8,
)


def program(mode: str) -> Topology:
    builder = StreamsBuilder()
    once = builder.stream("in", Consumed(StringSerde(), JsonSerde())).deduplicate(3)
    schema = {"n": int, "note": str | None}
    once.to_delta("/lake/rows", "append" if mode == "append" else "upsert", schema=schema)
    return builder.build()


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
@examples
@given(steps=st.lists(records, min_size=1, max_size=3))
def test_rows_and_errors_are_the_same_both_ways(mode: str, policy: str, steps: list[list[Fed]]) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    check_both_ways(program(mode), steps, restarts=[0], processing=policy, **more)
