"""Left and outer joins of streams in strict mode against a plain model: whatever the order of arrival, steps, restarts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import JoinWindows, StreamJoined, StreamsBuilder
from streams.testing import TopologyTestDriver

END = 10_000
SHAPES = [(10, 10, 0), (0, 0, 0), (5, 20, 3), (-5, 10, 0), (10, -3, 7), (0, 5, 60)]
rows_of = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.integers(0, 9), st.none()),
        st.integers(0, 60),
        st.sampled_from(["", "", "step", "restart"]),
    ),
    max_size=30,
)


def expected(rows, shape, left_outer, right_outer):
    """The rows of a strict join, from its definition: openness, pairs, those without one. Sorted."""
    before, after, grace = shape
    wait = {"left": max(0, after) + grace, "right": max(0, before) + grace}
    outer = {"left": left_outer, "right": right_outer}
    time, late, found, kept = -1, 0, [], []
    for side, key, value, at in rows:
        time = max(time, at)
        if value is None:
            continue
        row = {"side": side, "key": key, "value": value, "at": at, "joined": False}
        if key is None:
            if outer[side]:
                found.append(alone(row))
            continue
        if at + wait[side] < time:
            late += 1
            continue
        for other in kept:
            if other["side"] == side or other["key"] != key or other["at"] + wait[other["side"]] < time:
                continue
            left, right = (row, other) if side == "left" else (other, row)
            if left["at"] - before <= right["at"] <= left["at"] + after:
                row["joined"] = other["joined"] = True
                found.append((str(key), left["value"], right["value"], max(at, other["at"])))
        kept.append(row)
    found += [alone(row) for row in kept if outer[row["side"]] and not row["joined"]]
    return sorted(found, key=repr), late


def alone(row):
    values = (row["value"], None) if row["side"] == "left" else (None, row["value"])
    return (str(row["key"]), *values, row["at"])


def run(topology, rows, one_topic=False):
    with TopologyTestDriver(topology) as driver:
        topics = {name: driver.create_input_topic(name) for name in (["in"] if one_topic else ["left", "right"])}
        step = driver.batch()
        step.__enter__()
        for side, key, value, at, mark in rows:
            topics["in" if one_topic else side].pipe_input(key, value, at)
            if mark:
                step.__exit__(None, None, None)
                if mark == "restart":
                    driver.restart()
                step = driver.batch()
                step.__enter__()
        step.__exit__(None, None, None)
        # Everything ceases to be open.
        for topic in topics.values():
            topic.pipe_input("z", None, END)
        out = driver.create_output_topic("out").read_records_to_list()
        late = driver.dropped("late")
        left_over = [len(list(driver.get_store(name).all())) for name in topology.stores if "shared-join" in name]
    assert left_over in ([], [0])
    return sorted(((str(r.key), *r.value, r.timestamp) for r in out), key=repr), late


@settings(max_examples=40, deadline=None)
@given(rows_of, st.sampled_from(SHAPES), st.sampled_from(["left_join", "outer_join"]))
def test_one_by_one(rows, shape, method):
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    getattr(left, method)(right, lambda a, b: [a, b], JoinWindows(*shape)).to("out")
    # Each record is a step of its own, so that the model knows the order.
    found = run(builder.build(), [(*row[:4], row[4] or "step") for row in rows])
    assert found == expected([row[:4] for row in rows], shape, True, method == "outer_join")


@settings(max_examples=40, deadline=None)
@given(rows_of, st.sampled_from([(10, 10), (5, 20), (-5, 10), (0, 0)]), st.randoms(use_true_random=False))
def test_within_grace_the_order_of_arrival_does_not_matter(rows, bounds, random):
    shape = (*bounds, 60)
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.outer_join(right, lambda a, b: [a, b], JoinWindows(*shape)).to("out")
    topology = builder.build()
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert run(topology, rows) == run(topology, shuffled)


@settings(max_examples=40, deadline=None)
@given(rows_of, st.sampled_from(SHAPES), st.sampled_from(["join", "left_join", "outer_join"]))
def test_a_self_join_over_one_store_gives_what_one_over_two_gives(rows, shape, method):
    results = []
    for optimize in (False, True):
        builder = StreamsBuilder(optimize=optimize)
        stream = builder.stream("in")
        getattr(stream, method)(stream, lambda a, b: [a, b], JoinWindows(*shape)).to("out")
        topology = builder.build()
        assert sum("this-join-store" in name or "other-join-store" in name for name in topology.stores) == 2 - optimize
        results.append(run(topology, rows, one_topic=True))
    assert results[0] == results[1]


def test_rows_without_a_partner_keep_their_own_headers_and_time():
    builder = StreamsBuilder()
    builder.stream("left").left_join(
        builder.stream("right"), lambda a, b: [a, b], JoinWindows(5, 5, 2), StreamJoined(name="j")
    ).to("out")
    with TopologyTestDriver(builder.build(), partitions={"left": 2, "right": 3}, tasks=1) as driver:
        left, right = driver.create_input_topic("left"), driver.create_input_topic("right")
        left.pipe_input("a", 1, 10, headers=(("h", b"own"),))
        left.pipe_input("a", 2, 10)
        driver.restart()
        right.pipe_input("b", 3, 17, headers=(("h", b"trigger"),))
        assert driver.create_output_topic("out").queue_size == 0
        right.pipe_input("b", 4, 18, headers=(("h", b"trigger"),))
        found = driver.create_output_topic("out").read_records_to_list()
        assert [(r.key, r.value, r.timestamp, r.headers) for r in found] == [
            ("a", [1, None], 10, (("h", b"own"),)),
            ("a", [2, None], 10, ()),
        ]


@pytest.mark.parametrize("interval", [0, 1000])
def test_compat_looks_for_rows_without_a_partner_by_the_wall_clock(interval):
    builder = StreamsBuilder()
    builder.stream("left").left_join(builder.stream("right"), lambda a, b: [a, b], JoinWindows(5, 5, 0)).to("out")
    with TopologyTestDriver(builder.build(), mode="compat", emit_interval_ms=interval) as driver:
        left = driver.create_input_topic("left")
        for at in (0, 10, 20):
            left.pipe_input("a", at, at)
        out = driver.create_output_topic("out")
        # The first record has made the look that begins the interval.
        assert out.read_values_to_list() == ([] if interval else [[0, None], [10, None]])
        driver.advance_wall_clock_time(1000)
        left.pipe_input("a", 30, 30)
        assert out.read_values_to_list() == ([[0, None], [10, None], [20, None]] if interval else [[20, None]])
