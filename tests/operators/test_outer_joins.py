"""Left and outer joins of streams: what records without a partner give, and when."""

import pytest

from streams import JoinWindows, JsonSerde, StreamJoined, StreamsBuilder
from streams.testing import TopologyTestDriver


def test_rows_without_a_partner_keep_their_own_headers_and_time():
    builder = StreamsBuilder()
    builder.stream("left").left_join(
        builder.stream("right"), lambda a, b: [a, b], JoinWindows(5, 5, 2), StreamJoined(name="j")
    ).to("out")
    topology = builder.build()
    with TopologyTestDriver(topology, partitions={"left": 2, "right": 3}, tasks=1) as driver:
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
        (waiting,) = (name for name in topology.stores if "shared-join" in name)
        assert list(driver.get_store(waiting).all()) == []


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


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_row_that_fails_is_the_dead_letter_and_not_the_record_that_makes_it_due(mode):
    def joiner(left, right):
        return 1 // 0 if right is None and left == "bad" else [left, right]

    builder = StreamsBuilder()
    builder.stream("left").left_join(builder.stream("right"), joiner, JoinWindows(5, 5, 0)).to("out")
    settings = {"processing": "dlq", "dead_letter_topic": "dead", "emit_interval_ms": 0}
    with TopologyTestDriver(builder.build(), mode=mode, **settings) as driver:
        left = driver.create_input_topic("left")
        for at, value in enumerate(["bad", "good", "new", "newer"]):
            left.pipe_input(f"k{at}", value, 10 * at, headers=(("h", value.encode()),))
        assert driver.create_output_topic("out").read_values_to_list()[:2] == [["good", None], ["new", None]]
        (dead,) = driver.create_output_topic("dead").read_records_to_list()
        assert (dead.key, dead.value, dead.timestamp, dead.headers[0]) == (b"k0", b'"bad"', 0, ("h", b"bad"))


class TextIsNull(JsonSerde):
    def serialize(self, topic, value, headers=None):
        return None if value == "text" else super().serialize(topic, value, headers)


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_value_that_is_written_as_null_neither_waits_nor_meets_a_later_partner(mode):
    builder = StreamsBuilder()
    how = StreamJoined(value_serde=TextIsNull(), other_value_serde=TextIsNull())
    builder.stream("left").outer_join(builder.stream("right"), lambda a, b: [a, b], JoinWindows(5, 5, 0), how).to("out")
    with TopologyTestDriver(builder.build(), mode=mode, emit_interval_ms=0) as driver:
        left, right = driver.create_input_topic("left"), driver.create_input_topic("right")
        left.pipe_input("a", "text", 1)
        right.pipe_input("a", "late", 2)
        right.pipe_input("b", "end", 100)
        right.pipe_input("b", "end", 200)
        assert driver.create_output_topic("out").read_values_to_list()[0] == [None, "late"]
        assert "skipped:processing" not in driver.counters
