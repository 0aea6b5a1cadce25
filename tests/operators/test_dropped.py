"""The side stream of dropped records: which, why, and as they came."""

import pytest

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    agg,
)
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan


def side(driver, topic="side"):
    found = driver.create_output_topic(topic).read_records_to_list()
    return [(r.key, r.value, r.timestamp, dict(r.headers)["__streams.dropped.reason"].decode()) for r in found]


def test_of_a_join_of_streams():
    builder = StreamsBuilder()
    joined = builder.stream("l").left_join(builder.stream("r"), lambda a, b: [a, b], JoinWindows(5, 5, 0))
    joined.to("out")
    joined.dropped().filter(lambda v: v is not None).to("side")
    with TopologyTestDriver(builder.build()) as driver:
        left, right = driver.create_input_topic("l"), driver.create_input_topic("r")
        left.pipe_input("a", 1, 100)
        right.pipe_input("a", 2, 50, headers=(("h", b"x"),))
        right.pipe_input(None, 3, 100)
        right.pipe_input("a", None, 100)
        left.pipe_input("a", 4, 101)
        found = driver.create_output_topic("side").read_records_to_list()
        assert [(r.key, r.value, r.timestamp) for r in found] == [("a", 2, 50), (None, 3, 100)]
        assert found[0].headers[:2] == (("h", b"x"), ("__streams.dropped.reason", b"late"))
        assert driver.create_output_topic("out").queue_size == 0
        assert driver.dropped("late") == 1


@pytest.mark.parametrize("built_in", [False, True])
def test_of_an_aggregation_of_fields_too(built_in):
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    table = windowed.aggregate(total=agg.sum("v")) if built_in else windowed.reduce(lambda a, b: b)
    table.to_stream().to("out")
    table.dropped().to("side")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for key, value, at in (("a", 1, 5), ("a", 2, 15), ("a", 3, 6), (None, 4, 15)):
                topic.pipe_input(key, {"v": value}, at)
        assert side(driver) == [("a", {"v": 3}, 6, "late"), (None, {"v": 4}, 15, "null_key")]
        assert driver.create_output_topic("out").queue_size == 2


def test_of_deduplicate_and_of_a_table():
    builder = StreamsBuilder()
    unique = builder.stream("in").deduplicate(10)
    unique.to("out")
    unique.dropped().to("side")
    table = builder.table("t")
    table.to_stream().to("out2")
    table.dropped().to("side2")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, 0)
        topic.pipe_input("a", 2, 5)
        driver.create_input_topic("t").pipe_input(None, "no key", 7)
        assert side(driver) == [("a", 2, 5, "duplicate")]
        assert side(driver, "side2") == [(None, "no key", 7, "null_key")]


def test_only_of_what_drops():
    with pytest.raises(TopologyError, match="drops nothing"):
        StreamsBuilder().stream("in").map_values(lambda v: v).dropped()


class ByValue(Processor):
    def process(self, record):
        self.ctx.forward(record.with_key(record.value))


class DropsAll(Processor):
    def process(self, record):
        self.ctx.drop(record, "unwanted")


@pytest.mark.parametrize("values_only", [False, True])
def test_records_of_other_tasks_cross_a_topic_before_grouping(values_only):
    builder = StreamsBuilder()
    moved = builder.stream("in").process(ByValue)
    dropping = moved.process_values(DropsAll) if values_only else moved.process(DropsAll)
    grouped = Grouped(name="by-value", key_serde=StringSerde(), value_serde=JsonSerde())
    counts = dropping.dropped().group_by_key(grouped).count(materialized=Materialized(name="c", caching=False))
    counts.to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions={"in": 4}) as driver:
        records = driver.create_input_topic("in")
        for number in range(8):
            records.pipe_input(f"k{number}", "same", number)
        counted = driver.create_output_topic("out").read_key_values_to_list()
    assert counted == [("same", number) for number in range(1, 9)]


def test_records_of_the_right_task_need_no_topic():
    builder = StreamsBuilder()
    builder.stream("in").process(DropsAll).dropped().group_by_key().count(materialized=Materialized(name="c"))
    assert not build_plan(builder.build(), "app").repartition_topics


def test_of_a_cogroup_and_of_a_foreign_key_join():
    """Of all streams of the one; of the other the left rows without a foreign key."""
    builder = StreamsBuilder()
    one, two = builder.stream("one").group_by_key(), builder.stream("two").group_by_key()
    windowed = one.cogroup(lambda v, n: n + v).cogroup(two, lambda v, n: n + v)
    windowed.windowed_by(TimeWindows.of_size_with_no_grace(10)).aggregate(lambda: 0).dropped().to("side")
    left = builder.table("left", Consumed(key_serde=Int64Serde()))
    joined = left.join(builder.table("right"), lambda a, b: [a, b], foreign_key=lambda v: v["fk"])
    joined.dropped().to("homeless")
    with TopologyTestDriver(builder.build()) as driver:
        for topic in ("one", "two"):
            driver.create_input_topic(topic).pipe_input("a", 1, 50)
            driver.create_input_topic(topic).pipe_input("a", 2, 5)
        driver.create_input_topic("left").pipe_input(7, {"fk": None}, 1)
        assert side(driver) == [("a", 2, 5, "late"), ("a", 2, 5, "late")]
        assert side(driver, "homeless") == [(7, {"fk": None}, 1, "null_foreign_key")]
