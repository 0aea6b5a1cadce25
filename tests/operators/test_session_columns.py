"""Sessions over columns: the same results, changelogs, counters and state as record by record."""

from hypothesis import given
from hypothesis import strategies as st

from streams import Materialized, SessionWindows, agg, col
from tests.operators.both_ways import HUGE, KINDS, check, examples, steps

modes = st.sampled_from(["strict", "compat"])
windows = st.builds(SessionWindows, st.sampled_from([0, 4, 6, 8]), st.sampled_from([0, 10, 40, 60]))
long_windows = st.builds(
    SessionWindows, st.sampled_from([28_000, 42_000, 56_000]), st.sampled_from([0, 90_000, 500_000])
)


def many(windows, retention):
    def build(stream):
        wanted = {f"{kind}_{field[0]}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
        how = Materialized(name="s", retention=retention)
        table = (
            stream.group_by_key()
            .windowed_by(windows)
            .aggregate(n=agg.count(), twice=agg.sum(col("x") * 2), **wanted, materialized=how)
        )
        table.to_stream().to("out")

    return build


def counted(windows):
    def build(stream):
        counts = stream.group_by_key().windowed_by(windows).count(materialized=Materialized(name="s"))
        counts.to_stream().to("out")
        # Needs old values.
        by_length = counts.group_by(lambda key, n: (key.window.end - key.window.start, n))
        by_length.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("lengths")

    return build


@examples
@given(windows, steps(), modes, st.sampled_from([None, 10_000]))
def test_built_in_aggregates(windows, found, mode, retention):
    check(many(windows, retention), found, mode=mode)


@examples
@given(windows, steps(numbers=HUGE))
def test_numbers_that_arrays_cannot_add(windows, found):
    check(many(windows, None), found, at_once=False)


@examples
@given(windows, steps(), modes)
def test_counts_with_old_values(windows, found, mode):
    check(counted(windows), found, mode=mode)


@examples
@given(long_windows, steps(apart=7_000))
def test_sessions_in_several_segments_of_the_store(windows, found):
    check(counted(windows), found)
