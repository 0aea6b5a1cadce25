"""Joins of tables leave the same behind for a step's records together as one by one: for any input, steps, caches and restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde
from tests.both_ways import Fed, check_both_ways
from tests.budget import up_to
from tests.properties.runs import examples

SIDES = ("left", "right")
POISON = (b"{", b"\xff")

records = st.builds(
    Fed,
    st.sampled_from(SIDES),
    st.sampled_from((b"a", b"b", b"c", None)),
    st.sampled_from((None, b"null", b"1", b'{"k": "a"}', b'{"k":"b"}', b'{"k":"c","n":1}', *POISON)),
    st.integers(0, 20),
    st.sampled_from(((), (("h", b"1"),))),
    st.integers(0, 1),
)
steps = st.lists(st.lists(records, max_size=12), min_size=1, max_size=4)


def pair(left: Any, right: Any) -> Any:
    """No row for two equal values."""
    return None if left == right else [left, right]


def foreign(value: Any) -> Any:
    """The key that a value names, or None; fails for numbers."""
    return value["k"]


def sources(builder: StreamsBuilder, caching: tuple[bool, bool]) -> Any:
    consumed = Consumed(StringSerde(), JsonSerde())
    return (
        builder.table(topic, consumed, Materialized(name=f"{topic}s", caching=cached))
        for topic, cached in zip(SIDES, caching, strict=True)
    )


def check(builder: StreamsBuilder, fed: list[list[Fed]], restarts: list[int], policy: str, mode: str) -> None:
    dead = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    how = {"partitions": {"left": 2, "right": 2}, "deserialization": policy, "processing": policy, "mode": mode}
    check_both_ways(builder.build(), fed, restarts=restarts, **how, **dead)


POLICIES = st.sampled_from(("skip", "dlq", "fail"))
MODES = st.sampled_from(("strict", "compat"))


@pytest.mark.slow
@up_to(40)
@given(
    kind=st.sampled_from(("join", "left_join", "outer_join")),
    caching=st.tuples(st.booleans(), st.booleans()),
    stored=st.sampled_from((None, True, False)),
    fed=steps,
    restarts=st.lists(st.integers(0, 3), max_size=2),
    policy=POLICIES,
    mode=MODES,
)
def test_joined_by_key(kind, caching, stored, fed, restarts, policy, mode):
    """`stored`: whether the joined table has no store, one with a cache, or one without."""
    builder = StreamsBuilder()
    left, right = sources(builder, caching)
    how = {} if stored is None else {"materialized": Materialized(name="joined", caching=stored)}
    joined = getattr(left, kind)(right, pair, **how)
    joined.to_stream().to("out")
    joined.group_by(lambda key, value: (str(value), value)).count().to_stream().to("counts")
    check(builder, fed, restarts, policy, mode)


@examples
@given(
    kind=st.sampled_from(("join", "left_join")),
    stored=st.sampled_from((None, True, False)),
    fed=steps,
    restarts=st.lists(st.integers(0, 3), max_size=2),
    policy=POLICIES,
    mode=MODES,
)
def test_joined_by_a_foreign_key(kind, stored, fed, restarts, policy, mode):
    """`stored`: see `test_joined_by_key`."""
    builder = StreamsBuilder()
    left, right = sources(builder, (True, True))
    how = {} if stored is None else {"materialized": Materialized(name="joined", caching=stored)}
    getattr(left, kind)(right, pair, foreign_key=foreign, **how).to_stream().to("out")
    check(builder, fed, restarts, policy, mode)
