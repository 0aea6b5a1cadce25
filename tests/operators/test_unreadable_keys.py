"""A key that cannot be read, among the columns of a step, fails with its records alone."""

import pytest

from streams import BytesSerde, SessionWindows, SlidingWindows, StreamsBuilder, StringSerde
from streams.testing import TopologyTestDriver


@pytest.mark.parametrize("windows", [SessionWindows(5, 0), SlidingWindows(5, 0)])
def test_the_results_of_other_keys_are_emitted(windows):
    builder = StreamsBuilder(default_key_serde=StringSerde())
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), deserialization="skip") as driver:
        topic = driver.create_input_topic("in", key_serde=BytesSerde())
        with driver.batch():
            for key in (b"a", b"\xff", None, b"b", b"\xff"):
                topic.pipe_input(key, {"x": 1}, 20)
        found = driver.create_output_topic("out").read_key_values_to_list()
        assert [(key.key, value) for key, value in found] == [("a", 1), ("b", 1)]
        assert driver.dropped("null_key") == 1
        assert sum(one.skipped for one in driver.metrics().values()) == 2
