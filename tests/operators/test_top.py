"""`top`: the best n of each group; of tables exact while rows change and leave."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import Materialized, StreamsBuilder, TimeWindows, TopologyError
from streams.operators.table.table_aggregate import ordered
from streams.testing import TopologyTestDriver

scores = st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3, allow_nan=False))


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_scores_sort_as_bytes(one, two):
    assert (one < two) == (ordered(one, False) < ordered(two, False)) == (ordered(one, True) > ordered(two, True))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.one_of(st.none(), st.tuples(st.sampled_from("gh"), scores)), st.booleans()),
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_of_a_table(rows, largest, caching):
    builder = StreamsBuilder()
    how = Materialized(caching=caching)
    grouped = builder.table("in", materialized=how).group_by(lambda k, v: (v[0], v))
    grouped.top(2, lambda v: v[1], largest, materialized=Materialized(name="best", caching=caching)).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build(), partitions={"in": 2}, tasks=2) as driver:
        topic, table = driver.create_input_topic("in"), {}
        for key, value, restart in rows:
            topic.pipe_input(str(key), value, 0)
            table[key] = value
            if restart:
                driver.restart()
        found = driver.create_output_topic("out").read_key_values_to_map()
    ranked = [value for value in table.values() if value is not None and value[1] is not None]
    expected = {}
    for group in "gh":
        members = sorted((v[1] for v in ranked if v[0] == group), reverse=largest)[:2]
        if members:
            expected[group] = members
    assert {group: [v[1] for v in best] for group, best in found.items() if best is not None} == expected


def test_of_a_stream_and_of_its_windows():
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.top(2, lambda v: v["n"], largest=False).to_stream().to("out")
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(3))
    windowed.top(1, lambda v: v["n"], materialized=Materialized(name="w")).to_stream().to("of-windows")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for at, n in enumerate((5, 3, None, 9, 3)):
            topic.pipe_input("k", {"n": n, "at": at}, at)
        best = driver.create_output_topic("out").read_values_to_list()[-1]
        assert best == [{"n": 3, "at": 1}, {"n": 3, "at": 4}]
        of_windows = driver.create_output_topic("of-windows").read_key_values_to_map()
        assert {key.window.start: value[0]["at"] for key, value in of_windows.items()} == {0: 0, 3: 3}
    with pytest.raises(TopologyError, match="at least 1"):
        grouped.top(0, lambda v: v)
