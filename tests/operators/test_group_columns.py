"""Groups over all time and in tumbling and hopping windows: over columns the same, to the last byte, as record by record."""

from hypothesis import given
from hypothesis import strategies as st

from streams import Materialized, TimeWindows, agg, col
from tests.operators.both_ways import HUGE, KINDS, check, examples, steps

modes = st.sampled_from(["strict", "compat"])
shapes = st.sampled_from([None, TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), TimeWindows(20, 5, 30)])


def grouped(stream, windows):
    found = stream.group_by_key()
    return found if windows is None else found.windowed_by(windows)


def many(windows):
    def build(stream):
        wanted = {f"{kind}_{field[0]}": getattr(agg, kind)(field) for kind in KINDS for field in ("x", "o.z")}
        wanted |= {"n": agg.count(), "twice": agg.sum(col("x") * 2)}
        grouped(stream, windows).aggregate(**wanted, materialized=Materialized(name="s")).to_stream().to("out")

    return build


def counted(windows):
    def build(stream):
        counts = grouped(stream, windows).count(materialized=Materialized(name="s"))
        # A function that changes what it is given, and another reader of the same results.
        counts.to_stream().map_values(lambda n: [n]).peek(lambda key, value: value.append(0)).to("out")
        counts.to_stream().to("counts")
        by_count = counts.group_by(lambda key, n: (str(n), n))
        by_count.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("sums")

    return build


@examples
@given(shapes, steps(), modes)
def test_built_in_aggregates(windows, found, mode):
    check(many(windows), found, mode=mode)


@examples
@given(shapes, steps(numbers=HUGE))
def test_numbers_that_arrays_cannot_add(windows, found):
    check(many(windows), found, at_once=False)


@examples
@given(shapes, steps(), modes)
def test_counts_with_old_values_and_several_readers(windows, found, mode):
    check(counted(windows), found, mode=mode)
