"""What Kafka Streams lacks: deduplicate, as-of joins of streams, tables whose rows expire."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams import Joined, Materialized, StreamJoined, StreamsBuilder, TopologyError
from streams.testing import TopologyTestDriver
from tests.budget import up_to

marks = st.sampled_from(["", "", "step", "restart"])
keys = st.sampled_from(["a", "b", None])


def piped(topology, rows, end=None):
    """(topic, key, value, time, mark) through the driver; what comes out, and the driver's counts of what was dropped."""
    with TopologyTestDriver(topology) as driver:
        topics = {source.topics[0]: driver.create_input_topic(source.topics[0]) for source in topology.sources()}
        for topic, key, value, at, mark in rows:
            topics[topic].pipe_input(key, value, at)
            if mark == "restart":
                driver.restart()
        if end is not None:
            for topic in topics.values():
                topic.pipe_input("end", None, end)
        found = driver.create_output_topic("out").read_records_to_list()
        dropped = {reason: driver.dropped(reason) for reason in ("late", "duplicate")}
        return [(r.key, r.value, r.timestamp) for r in found], dropped


@up_to(40)
@given(
    st.lists(st.tuples(st.just("in"), keys, st.integers(0, 3), st.integers(0, 40), marks), max_size=30),
    st.integers(0, 50),
    st.booleans(),
)
def test_deduplicate(rows, grace, by_value):
    builder = StreamsBuilder()
    builder.stream("in").deduplicate(10, (lambda v: v) if by_value else None, grace).to("out")
    time, late, passed = -1, 0, []
    for _, key, value, at, _ in rows:
        time = max(time, at)
        if key is None:
            continue
        if at < time - grace:
            late += 1
        elif not any(k == key and (v == value or not by_value) and abs(t - at) < 10 for k, v, t in passed):
            passed.append((key, value, at))
    duplicates = sum(row[1] is not None for row in rows) - late - len(passed)
    assert piped(builder.build(), rows) == (passed, {"late": late, "duplicate": duplicates})


@pytest.mark.slow
@up_to(40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["l", "r"]), keys, st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 40), marks
        ),
        max_size=30,
    ),
    st.integers(0, 50),
    st.booleans(),
)
def test_as_of_join(rows, grace, left_join):
    builder = StreamsBuilder()
    builder.stream("l").as_of_join(builder.stream("r"), lambda a, b: [a, b], 15, grace, left=left_join).to("out")
    time, late, taken, expected = -1, 0, {"l": [], "r": []}, []
    for topic, key, value, at, _ in rows:
        time = max(time, at)
        if value is None:
            continue
        if key is None:
            if topic == "l" and left_join:
                expected.append((None, [value, None], at))
        elif at + grace < time:
            late += 1
        else:
            taken[topic].append((key, value, at))
    for key, value, at in taken["l"]:
        # Of equal times the last to come: max() gives the first of equals, so from the end.
        partners = [(t, v) for k, v, t in reversed(taken["r"]) if k == key and at - 15 <= t <= at]
        if partners or left_join:
            expected.append((key, [value, max(partners, key=lambda p: p[0])[1] if partners else None], at))
    found, dropped = piped(builder.build(), rows, end=1000)
    assert (sorted(found, key=repr), dropped["late"]) == (sorted(expected, key=repr), late)


@pytest.mark.slow
@up_to(40)
@given(
    st.lists(
        st.tuples(st.just("in"), keys, st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 80), marks), max_size=30
    )
)
@example([("in", "a", 0, 1, ""), ("in", "a", 0, 0, ""), ("in", "a", None, 10, "")])
@example([("in", "a", 0, 5, ""), ("in", "a", 1, 9, ""), ("in", "a", 2, 6, ""), ("in", "b", 3, 16, "")])
def test_rows_expire(rows):
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized(name="t", ttl=10, caching=False)).to_stream().to("out")
    time, late, table, expected = -1, 0, {}, []
    for _, key, value, at, _ in rows:
        time = max(time, at)
        due = sorted((t + 10, k) for k, (_, t) in table.items() if t + 10 <= time)
        for deadline, name in due:
            del table[name]
            expected.append((name, None, deadline))
        if key is None:
            continue
        if at + 10 <= time:
            late += 1
            continue
        expected.append((key, value, at))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = (value, at)
    found, dropped = piped(builder.build(), rows)
    assert (found, dropped["late"]) == (expected, late)


def test_an_expired_row_is_gone_for_those_who_look():
    builder = StreamsBuilder()
    table = builder.stream("in").to_table(Materialized(name="t", ttl=10))
    builder.stream("probe").left_join(table, lambda a, b: [a, b], Joined(name="j")).to("out")
    topology = builder.build()
    assert sorted(topology.stores) == ["t", "t-deadlines"]
    with TopologyTestDriver(topology, rocksdb=True) as driver:
        stream, probe = driver.create_input_topic("in"), driver.create_input_topic("probe")
        stream.pipe_input("a", 1, 0)
        stream.pipe_input("b", 2, 5)
        driver.restart()
        stream.pipe_input("a", 3, 6)
        stream.pipe_input("c", 4, 15)
        for key in "abc":
            probe.pipe_input(key, "?", 15)
        assert driver.create_output_topic("out").read_values_to_list() == [["?", 3], ["?", None], ["?", 4]]
        assert len(list(driver.get_store("t-deadlines").all())) == 2


def test_misuse():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    with pytest.raises(TopologyError, match="larger than zero"):
        stream.deduplicate(0)
    with pytest.raises(TopologyError, match="must not be negative"):
        stream.as_of_join(builder.stream("r"), lambda a, b: a, -1, joined=StreamJoined(name="x"))
    with pytest.raises(TopologyError, match="cannot expire"):
        stream.group_by_key().reduce(lambda a, b: a, materialized=Materialized(ttl=5))
    with pytest.raises(TopologyError, match="ttl above zero and no history_retention"):
        builder.table("t", materialized=Materialized(ttl=5, history_retention=5))


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_stream_is_merged_with_a_part_of_itself_but_not_with_itself(mode):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    with pytest.raises(TopologyError, match=r"is given the stream of '.*' and itself"):
        stream.merge(stream)
    stream.merge(stream.filter(lambda value: value > 1)).to("out")
    with TopologyTestDriver(builder.build(), mode=mode, rocksdb=False) as driver:
        for value in (1, 2):
            driver.create_input_topic("in").pipe_input("a", value, 1)
        assert driver.create_output_topic("out").read_values_to_list() == [1, 2, 2]
