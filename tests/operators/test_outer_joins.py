"""Left and outer joins of streams: what records without a partner give, and when."""

import pytest

from streams import JoinWindows, StreamJoined, StreamsBuilder
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
