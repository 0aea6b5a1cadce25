"""Vectors measured on Kafka Streams 4.3.1 with the cache off (letters as in the collection they come from)."""

import pytest

from streams import JoinWindows, Materialized, StreamsBuilder, TimeWindows
from streams.testing import TopologyTestDriver

NO_CACHE = Materialized(name="store", caching=False)


def outputs(builder, records, mode="strict"):
    """Rows of topic "out" per record: (key or (key, start), value, timestamp)."""
    with TopologyTestDriver(builder.build(), mode=mode) as driver:
        topics = {name: driver.create_input_topic(name) for name in {record[0] for record in records}}
        out = driver.create_output_topic("out")
        rows = []
        for topic, key, value, timestamp in records:
            topics[topic].pipe_input(key, value, timestamp)
            rows.append(
                [
                    ((r.key.key, r.key.window.start) if hasattr(r.key, "window") else r.key, r.value, r.timestamp)
                    for r in out.read_records_to_list()
                ]
            )
        return rows, driver.dropped()


def windowed_count(size, advance=None, grace=0):
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(size, grace).advance_by(advance or size)
    builder.stream("in").group_by_key().windowed_by(windows).count(materialized=NO_CACHE).to_stream().to("out")
    return builder


def test_a_null_value_is_not_counted_without_windows():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized=NO_CACHE).to_stream().to("out")
    rows, dropped = outputs(builder, [("in", "k", None, 1), ("in", "k", "v", 2)])
    assert rows == [[], [("k", 1, 2)]]
    assert dropped == 1


def test_a_null_value_is_counted_in_windows():
    rows, _ = outputs(windowed_count(10), [("in", "k", None, 1), ("in", "k", "v", 2)])
    assert rows == [[(("k", 0), 1, 1)], [(("k", 0), 2, 2)]]


def test_a_record_is_late_once_stream_time_reaches_the_end_of_its_window():
    rows, dropped = outputs(windowed_count(10), [("in", "a", 1, 9), ("in", "b", 1, 10), ("in", "a", 1, 9)])
    assert rows == [[(("a", 0), 1, 9)], [(("b", 10), 1, 10)], []]
    assert dropped == 1


def test_lateness_is_decided_per_window():
    rows, dropped = outputs(windowed_count(10, 5), [("in", "a", 1, 7), ("in", "b", 1, 12), ("in", "a", 1, 8)])
    assert rows == [
        [(("a", 0), 1, 7), (("a", 5), 1, 7)],
        [(("b", 5), 1, 12), (("b", 10), 1, 12)],
        [(("a", 5), 2, 8)],
    ]
    assert dropped == 1


def join(before, after, grace):
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda a, b: f"{a}+{b}", JoinWindows(before, after, grace)).to("out")
    return builder


@pytest.mark.parametrize(("mode", "at_4"), [("compat", [("k", "l0+r4", 4)]), ("strict", [])])
def test_a_join_with_a_negative_bound_joins_before_it_in_compat_mode_only(mode, at_4):
    """Kafka Streams clamps both bounds of the probe at 0, which joins at 4; strict mode does not."""
    records = [("left", "k", "l0", 0)] + [("right", "k", f"r{t}", t) for t in (4, 5, 10, 11)]
    rows, _ = outputs(join(-5, 10, 0), records, mode)
    assert rows == [[], at_4, [("k", "l0+r5", 5)], [("k", "l0+r10", 10)], []]


@pytest.mark.parametrize("mode", ["compat", "strict"])
def test_a_late_record_joins_in_compat_mode_only(mode):
    """Kafka Streams joins a late record with what the other store still shows; strict mode drops it."""
    records = [
        ("left", "k", "l0", 0),
        ("right", "z", "rz", 1000),
        ("right", "k", "r5", 5),
        ("left", "z", "lz", 1000),
        ("right", "k", "r6", 6),
    ]
    rows, dropped = outputs(join(10, 10, 0), records, mode)
    late = [("k", "l0+r5", 5)] if mode == "compat" else []
    assert rows == [[], [], late, [("z", "lz+rz", 1000)], []]
    assert dropped == (0 if mode == "compat" else 2)


def test_a_left_join_with_a_table_takes_the_present_row():
    builder = StreamsBuilder()
    table = builder.table("table", materialized=NO_CACHE)
    builder.stream("in").left_join(table, lambda k, a, b: f"{a}+{b}").to("out")
    rows, dropped = outputs(
        builder,
        [
            ("in", "k", "v", 1),
            ("table", "k", "t1", 100),
            ("table", "k", "t0", 50),
            ("in", "k", "v", 10),
            ("in", None, "v", 11),
            ("in", "k", None, 12),
        ],
    )
    assert rows == [[("k", "v+None", 1)], [], [], [("k", "v+t0", 10)], [(None, "v+None", 11)], []]
    assert dropped == 1


def test_a_reduced_value_has_the_largest_timestamp():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().reduce(lambda a, v: a + v, materialized=NO_CACHE).to_stream().to("out")
    rows, _ = outputs(builder, [("in", "k", "1", 10), ("in", "k", "2", 5)])
    assert rows == [[("k", "1", 10)], [("k", "12", 10)]]


def test_an_aggregate_that_became_null_is_deleted_and_starts_anew():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        lambda: 0, lambda v, agg: None if v < 0 else agg + v, materialized=NO_CACHE
    ).to_stream().to("out")
    rows, _ = outputs(builder, [("in", "k", 5, 9), ("in", "k", -1, 3), ("in", "k", 2, 1)])
    assert rows == [[("k", 5, 9)], [("k", None, 9)], [("k", 2, 1)]]


def test_the_cache_emits_the_last_value_of_a_step_once_and_shows_it_to_readers_at_once():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    table = stream.group_by_key().count(materialized=Materialized(name="c"))
    table.to_stream().to("out")
    builder.stream("probe").join(table, lambda k, a, b: b).to("seen")
    with TopologyTestDriver(builder.build()) as driver:
        topic, probe = driver.create_input_topic("in"), driver.create_input_topic("probe")
        with driver.batch():
            for t in range(3):
                topic.pipe_input("k", "v", t)
            probe.pipe_input("k", "?", 1)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("k", 3)]
        # Merged by time: "in" comes before "probe" at the same time.
        assert driver.create_output_topic("seen").read_values_to_list() == [2]
