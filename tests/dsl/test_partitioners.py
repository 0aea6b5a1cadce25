"""Custom partitioners: one partition, several (multicast, KIP-837), none (dropped), or Kafka's own choice."""

from __future__ import annotations

import pytest

from state.kafka.partitioner import partition_for_key
from streams import Produced, Repartitioned, StreamsBuilder, TimeWindows
from streams.errors import RecordFailedError
from streams.runtime.outputs import Outputs, UnlimitedTopics
from streams.runtime.settings import TaskSettings
from streams.testing import TopologyTestDriver


def written(partitioner, *values, **settings):
    """Partition and value of what is written to four partitions, and how many records were dropped."""
    builder = StreamsBuilder()
    builder.stream("in").to("out", Produced(partitioner=partitioner))
    with TopologyTestDriver(builder.build(), partitions={"out": 4}, **settings) as driver:
        for at, value in enumerate(values):
            driver.create_input_topic("in").pipe_input("k", value, at, headers=(("h", b"1"),))
        records = driver.create_output_topic("out").read_records_to_list()
        assert all((r.key, r.headers) == ("k", (("h", b"1"),)) for r in records)
        return [(r.partition, r.value) for r in records], driver.dropped("no_partition")


def test_one_partition():
    assert written(lambda topic, k, v, n: (v + n) % n, 1, 6) == ([(1, 1), (2, 6)], 0)


def test_none_is_kafkas_own_choice():
    assert written(lambda topic, k, v, n: None, 5) == ([(partition_for_key(b"k", 4), 5)], 0)


@pytest.mark.parametrize("several", [{3, 0}, [3, 0, 3], (0, 3), frozenset({0, 3})])
def test_several_partitions_get_the_record_once_each(several):
    assert written(lambda *_: several, 5, 6) == ([(0, 5), (0, 6), (3, 5), (3, 6)], 0)


def test_all_partitions():
    assert written(lambda topic, k, v, n: range(n), 5) == ([(p, 5) for p in range(4)], 0)


def test_no_partition_drops_and_counts():
    assert written(lambda topic, k, v, n: [] if v % 2 else [1], 1, 2, 3) == ([(1, 2)], 2)


@pytest.mark.parametrize("wrong", [4, -1, [0, 4]])
def test_a_partition_that_does_not_exist(wrong):
    with pytest.raises(RecordFailedError, match=r"topic 'out', which has 0\.\.3"):
        written(lambda *_: wrong, 5)
    # All or nothing: the partitions before the wrong one get nothing either.
    assert written(lambda *_: wrong, 5, production="skip")[0] == []


def test_a_topic_that_a_record_chooses_has_a_partitioner_too():
    builder = StreamsBuilder()
    builder.stream("in").to(lambda k, v, context: v, Produced(partitioner=lambda topic, k, v, count: count - 1))
    with TopologyTestDriver(builder.build(), partitions={"three": 3, "five": 5}) as driver:
        for value in ("three", "five"):
            driver.create_input_topic("in").pipe_input("k", value, 0)
            assert driver.create_output_topic(value).read_record().partition == {"three": 2, "five": 4}[value]


def test_a_topic_whose_partitions_are_not_known():
    target = Outputs(UnlimitedTopics(), TaskSettings("app", partition_counts={"known": 2})).target
    assert (target("known").partitions, target("unknown").partitions) == (2, 0)


def test_windowed_keys_are_handed_over_whole():
    builder = StreamsBuilder()
    seen = []
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    counts.to_stream().to("out", Produced(partitioner=lambda topic, k, v, n: seen.append(k) or [0, 2]))
    with TopologyTestDriver(builder.build(), partitions={"out": 4}) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 5)
        assert [r.partition for r in driver.create_output_topic("out").read_records_to_list()] == [0, 2]
    assert [key.key for key in seen] == ["k"]


def test_a_repartition_topic_may_multicast():
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(name="all", partitions=3, partitioner=lambda *_: {0, 2})).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [1, 1]
