"""Sessions over columns: the same results, changelogs, counters and state as record by record."""

from hypothesis import example, given
from hypothesis import strategies as st

from streams import Materialized, SessionWindows, agg
from streams.model.aggregates import Aggregate
from tests.operators.both_ways import Step, everything, examples, steps

KINDS = ["count", "sum", "min", "max", "mean", "first", "last"]
modes = st.sampled_from(["strict", "compat"])
windows = st.builds(SessionWindows, st.integers(0, 12), st.sampled_from([0, 3, 15, 60]))
long_windows = st.builds(SessionWindows, st.integers(0, 80_000), st.sampled_from([0, 90_000, 500_000]))


class Spread(Aggregate):
    """The smallest and the largest number seen; fails on text."""

    def initial(self):
        return []

    def add(self, accumulator, value):
        return [min([value, *accumulator]), max([value, *accumulator])]

    def merge(self, earlier, later):
        return [min([*earlier, *later]), max([*earlier, *later])] if earlier or later else []


def many(windows, retention):
    def build(stream):
        wanted = {f"{kind}_{field[0]}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
        how = Materialized(name="s", retention=retention)
        table = stream.group_by_key().windowed_by(windows).aggregate(n=agg.count(), **wanted, materialized=how)
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


def spread(windows):
    def build(stream):
        stream.group_by_key().windowed_by(windows).aggregate(x=Spread("x")).to_stream().to("out")

    return build


def check(build, found, **settings):
    assert everything(build, True, found, **settings) == everything(build, False, found, **settings)


@examples
@given(windows, steps(60), modes, st.sampled_from([None, 10_000]))
def test_built_in_aggregates(windows, found, mode, retention):
    check(many(windows, retention), found, mode=mode)


@examples
@given(windows, steps(60), modes)
def test_counts_with_old_values(windows, found, mode):
    check(counted(windows), found, mode=mode)


@examples
@given(windows, steps(60))
@example(SessionWindows(0, 0), [Step([("a", {"x": {"z": 0}}, 0), ("a", 0, 0)], True)])
def test_an_aggregate_of_ones_own_that_fails_for_some_records(windows, found):
    check(spread(windows), found)


@examples
@given(long_windows, steps(400_000))
def test_sessions_in_several_segments_of_the_store(windows, found):
    check(counted(windows), found)
