"""What streams, tables and groups show of themselves: where they come from, and the methods since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams import Branched, JoinWindows, StreamsBuilder, Suppressed, TimeWindows

FIVE = TimeWindows.of_size_with_no_grace(5)


def left(one: object, other: object) -> object:
    return one


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda b: b.stream("in"), "KStream('in')"),
        (lambda b: b.stream("in").filter(bool).map_values(len), "KStream('in' → filter → map_values)"),
        (lambda b: b.stream("in").filter(bool, "mine").select_key(len), "KStream('in' → filter → select_key)"),
        (lambda b: b.stream("in").merge(b.stream("more")), "KStream('in', 'more' → merge)"),
        (lambda b: b.stream("in").left_join(b.table("t"), left), "KStream('in' → left_join)"),
        (
            lambda b: b.stream("a").join(b.stream("b"), left, JoinWindows.of_time_difference_with_no_grace(5)),
            "KStream('a', 'b' → join → merge)",
        ),
        (lambda b: b.stream("in").repartition().peek(print), "KStream('in' → repartition → peek)"),
        (
            lambda b: b.stream("in").group_by_key().count().to_stream().select_key(len).group_by_key().count(),
            "KTable('in' → aggregate → to_stream → select_key → aggregate)",
        ),
        (
            lambda b: b.stream("in").peek(id).peek(id).map(left).filter(id).map_values(id).map(left).filter(id).peek(id),
            "KStream('in' → … → map → filter → map_values → map → filter → peek)",
        ),
        (lambda b: b.table("t"), "KTable('t')"),
        (lambda b: b.table("t").join(b.table("u"), left, foreign_key=len), "KTable('t', 'u' → join)"),
        (lambda b: b.global_table("g"), "GlobalKTable('g')"),
        (lambda b: b.stream("in").group_by(len), "KGroupedStream('in' → select_key)"),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(FIVE),
            "TimeWindowedKStream('in', TimeWindows(size_ms=5, advance_ms=5, grace_ms=0))",
        ),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(FIVE).count().suppress(Suppressed.until_window_closes()),
            "KTable('in' → aggregate → suppress)",
        ),
        (lambda b: b.table("t").group_by(left), "KGroupedTable('t' → group_by)"),
        (
            lambda b: b.stream("a").group_by_key().cogroup(left).cogroup(b.stream("b").group_by_key(), left),
            "CogroupedKStream('a'; 'b')",
        ),
        (lambda b: b.stream("in").split(), "BranchedKStream('in')"),
        (
            lambda b: b.stream("in").split().branch(bool, Branched("true")).no_default_branch()["true"],
            "KStream('in' → split → branch)",
        ),
    ],
)  # fmt: skip
def test_each_shows_its_way(make: Callable[[StreamsBuilder], object], shown: str) -> None:
    assert repr(make(StreamsBuilder())) == shown
