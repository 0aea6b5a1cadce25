"""`ensure_explicit_naming` (KIP-1111): no store and no repartition topic under a generated name."""

from __future__ import annotations

import pytest

from streams import (
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
)
from streams.topology.plan import check_explicit_names

TEN = JoinWindows.of_time_difference_with_no_grace(10)
WINDOWS = TimeWindows.of_size_with_no_grace(10)


def add(a, b):
    return a


def counted(stream):
    return stream.group_by_key().count(materialized=Materialized(name="counts")).to_stream()


# What makes each kind of store or topic, without a name and with one.
UNNAMED = {
    "aggregate": lambda b, s: s.group_by_key().count(),
    "windows": lambda b, s: s.group_by_key().windowed_by(WINDOWS).reduce(add),
    "sessions": lambda b, s: s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(),
    "table": lambda b, s: s.join(b.table("t"), add),
    "global table": lambda b, s: b.global_table("t"),
    "to_table": lambda b, s: s.join(b.stream("t").to_table(), add),
    "join": lambda b, s: s.join(b.stream("other"), add, TEN),
    "outer join": lambda b, s: s.outer_join(b.stream("other"), add, TEN),
    "join of several": lambda b, s: s.join_all({"b": b.stream("other"), "C.1": s}, add, TEN),
    "deduplicate": lambda b, s: s.deduplicate(10),
    "suppress": lambda b, s: (
        s.group_by_key()
        .windowed_by(WINDOWS)
        .count(materialized=Materialized(name="w"))
        .suppress(Suppressed.until_window_closes())
    ),
    "repartition": lambda b, s: s.repartition(),
    "grouping": lambda b, s: counted(s).group_by(lambda v: v).reduce(add, materialized=Materialized(name="again")),
    "grace": lambda b, s: s.join(
        b.table("t", materialized=Materialized(name="t", history_retention=100)), add, joined=Joined(grace=5)
    ),
    "foreign key": lambda b, s: b.table("l", materialized=Materialized(name="l")).join(
        b.table("r", materialized=Materialized(name="r")), add, foreign_key=lambda k, v: v
    ),
    "table grouping": lambda b, s: (
        b.table("l", materialized=Materialized(name="l"))
        .group_by(lambda k, v: (v, v))
        .count(materialized=Materialized(name="c"))
    ),
}
NAMED = {
    "aggregate": lambda b, s: s.group_by_key().count(materialized=Materialized(name="n")),
    "node": lambda b, s: s.group_by_key().count(named="n"),
    "windows": lambda b, s: s.group_by_key().windowed_by(WINDOWS).reduce(add, materialized=Materialized(name="n")),
    "table": lambda b, s: b.table("t", materialized=Materialized(name="n")),
    "global table": lambda b, s: b.global_table("t", materialized=Materialized(name="n")),
    "to_table": lambda b, s: s.to_table(Materialized(name="n")),
    "join": lambda b, s: s.outer_join(b.stream("other"), add, TEN, StreamJoined(name="n")),
    "join of several": lambda b, s: s.join_all({"b": b.stream("other"), "c": s}, add, TEN, StreamJoined(name="n")),
    "deduplicate": lambda b, s: s.deduplicate(10, named="n"),
    "suppress": lambda b, s: (
        s.group_by_key()
        .windowed_by(WINDOWS)
        .count(materialized=Materialized(name="w"))
        .suppress(Suppressed.until_window_closes(), "n")
    ),
    "repartition": lambda b, s: s.repartition(Repartitioned(name="n")),
    "grouping": lambda b, s: (
        counted(s).group_by(lambda v: v, Grouped(name="n")).reduce(add, materialized=Materialized(name="again"))
    ),
    "grace": lambda b, s: s.join(
        b.table("t", materialized=Materialized(name="t", history_retention=100)), add, joined=Joined(name="n", grace=5)
    ),
    "foreign key": lambda b, s: b.table("l", materialized=Materialized(name="l")).join(
        b.table("r", materialized=Materialized(name="r")), add, foreign_key=lambda k, v: v, named="n"
    ),
    "stateless": lambda b, s: s.filter(lambda v: v).map_values(lambda v: v).to("out"),
}


def build(program, **settings):
    builder = StreamsBuilder(**settings)
    program(builder, builder.stream("in"))
    return builder.build()


@pytest.mark.parametrize("what", UNNAMED)
def test_generated_names_are_refused(what):
    topology = build(UNNAMED[what])
    for attempt in (
        lambda: build(UNNAMED[what], ensure_explicit_naming=True),
        lambda: check_explicit_names(topology),
    ):
        with pytest.raises(TopologyError, match=r"ensure_explicit_naming is on, but names were generated\. .*name="):
            attempt()


@pytest.mark.parametrize("what", NAMED)
def test_given_names_pass(what):
    assert build(NAMED[what], ensure_explicit_naming=True)


def test_all_are_named_at_once():
    with pytest.raises(TopologyError) as error:
        build(lambda b, s: (UNNAMED["aggregate"](b, s), UNNAMED["repartition"](b, s)), ensure_explicit_naming=True)
    assert "stores: 'KSTREAM-AGGREGATE-STATE-STORE-in-" in str(error.value)
    assert "repartition topics: 'KSTREAM-REPARTITION-in-" in str(error.value)
