"""Sliding windows over columns: the same results, changelogs, counters and state as record by record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Materialized, SlidingWindows, agg, col
from tests.operators.both_ways import HUGE, KINDS, Step, check, examples, steps

modes = st.sampled_from(["strict", "compat"])
windows = st.builds(SlidingWindows, st.integers(1, 12), st.sampled_from([0, 10, 40, 60]))
long_windows = st.builds(SlidingWindows, st.integers(1, 80_000), st.sampled_from([0, 90_000, 500_000]))


def many(windows):
    def build(stream):
        wanted = {f"{kind}_{field[0]}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
        table = stream.group_by_key().windowed_by(windows)
        table = table.aggregate(
            n=agg.count(), twice=agg.sum(col("x") * 2), **wanted, materialized=Materialized(name="s")
        )
        table.to_stream().to("out")

    return build


def counted(windows):
    def build(stream):
        counts = stream.group_by_key().windowed_by(windows).count(materialized=Materialized(name="s"))
        counts.to_stream().to("out")
        # Needs old values.
        by_start = counts.group_by(lambda key, n: (key.window.start % 3, n))
        by_start.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("starts")

    return build


@examples
@given(windows, steps(), modes)
def test_built_in_aggregates(windows, found, mode):
    check(many(windows), found, mode=mode)


@examples
@given(windows, steps(), modes)
def test_counts_with_old_values(windows, found, mode):
    check(counted(windows), found, mode=mode)


@examples
@given(long_windows, steps(), modes)
def test_the_first_windows_of_all(windows, found, mode):
    check(many(windows), found, mode=mode)


@examples
@given(windows, steps(numbers=HUGE))
def test_numbers_that_arrays_cannot_add(windows, found):
    check(many(windows), found, at_once=False)


@examples
@given(long_windows, steps(apart=7_000))
def test_windows_in_several_segments_of_the_store(windows, found):
    check(counted(windows), found)


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_windows_of_length_zero(mode):
    """Every record fails in compat mode."""
    found = [Step([("a", {"x": 1}, 3), ("a", {"x": 2}, 3), ("a", {}, 4)], False)]
    check(counted(SlidingWindows(0, 5)), found, at_once=mode == "strict", mode=mode)
