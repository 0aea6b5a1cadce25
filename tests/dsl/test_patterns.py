"""Sources that read a pattern: which topics they get, and that nothing lasting depends on them."""

import re
from datetime import timedelta

import pytest

from streams import Consumed, Grouped, Int64Serde, JsonSerde, Materialized, StreamsBuilder, StringSerde, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.manifest import manifest
from streams.topology.plan import build_plan
from streams.topology.rewrite import with_matching_topics

ORDERS = re.compile("orders-.*")


def built(pattern=ORDERS, **consumed):
    builder = StreamsBuilder()
    stream = builder.stream(pattern, Consumed(**consumed))
    stream.group_by_key().count(materialized=Materialized(name="counts", caching=False)).to_stream().to("out")
    return builder.build()


def test_all_matching_topics_are_one_stream_and_new_ones_come_with_the_next_start():
    with TopologyTestDriver(built(), partitions={"orders-eu": 2, "orders-us": 1, "my-orders-eu": 1}) as driver:
        out = driver.create_output_topic("out")
        for topic in ("orders-eu", "orders-us", "my-orders-eu", "orders-asia"):
            driver.create_input_topic(topic).pipe_input("k", 1, 5)
        assert out.read_values_to_list() == [1, 2]
        driver.restart()
        driver.create_input_topic("orders-eu").pipe_input("k", 1, 5)
        assert out.read_values_to_list()[-1] == 4
        assert driver.get_store("counts").get("k").value == 4


def test_the_order_is_that_of_all_topics_by_time():
    with TopologyTestDriver(built(), partitions={"orders-a": 1, "orders-b": 1}) as driver:
        with driver.batch():
            driver.create_input_topic("orders-a").pipe_input("late", 1, 9)
            driver.create_input_topic("orders-b").pipe_input("early", 1, 3)
        assert [key for key, _ in driver.create_output_topic("out").read_key_values_to_list()] == ["early", "late"]


def test_names_hashes_and_descriptions_do_not_depend_on_the_topics():
    topology = built()
    few, many = (with_matching_topics(topology, known) for known in (["orders-a"], ["orders-a", "orders-b", "__x"]))
    plans = [build_plan(one, "app").sub_topologies for one in (topology, few, many)]
    assert {subs[0].name for subs in plans} == {"orders-pattern"}
    assert len({subs[0].topology_hash for subs in plans}) == 1
    assert [subs[0].topics for subs in plans] == [(), ("orders-a",), ("orders-a", "orders-b")]
    assert compare(manifest(few), many) == []
    assert "Source: KSTREAM-SOURCE-orders-pattern (topics: orders-.*)" in topology.describe()
    assert "/orders-.*/" in topology.mermaid()
    other = built(re.compile("orders-.+"))
    assert worst(compare(manifest(topology), other)).value == "needs migration"


def test_one_source_for_one_pattern_and_flags_count():
    builder = StreamsBuilder()
    builder.stream(ORDERS).to("out")
    builder.stream(re.compile("orders-.*")).to("more")
    builder.stream(re.compile("[.]*", re.IGNORECASE)).to("third")
    topology = builder.build()
    assert [source.subscription for source in topology.sources()] == [("/orders-.*/",), ("/[.]*/2",)]
    assert [source.lasting_topics for source in topology.sources()] == [("orders-pattern",), ("pattern",)]


def test_misuse():
    with pytest.raises(TopologyError, match="No topic matches /orders-"):
        TopologyTestDriver(built(), partitions={"others": 1})
    builder = StreamsBuilder()
    builder.stream(ORDERS)
    builder.stream("orders-eu")
    with pytest.raises(TopologyError, match=r"'orders-eu', read by .* matches /orders-"):
        builder.build()
    both = StreamsBuilder()
    both.stream(ORDERS)
    with pytest.raises(TopologyError, match="read twice in different ways"):
        both.stream(ORDERS, Consumed(offset_reset="latest"))
    with pytest.raises(TopologyError, match="must be of text"):
        StreamsBuilder().stream(re.compile(b"x"))
    overlapping = StreamsBuilder()
    overlapping.stream(ORDERS)
    overlapping.stream(re.compile(".*-eu"))
    with pytest.raises(TopologyError, match="'orders-eu' is read by"):
        TopologyTestDriver(overlapping.build(), partitions={"orders-eu": 1, "orders-us": 1})


def test_where_a_source_begins():
    for given, policy in (
        ("latest", "latest"),
        (timedelta(hours=1), "duration:3600000"),
        (5, "duration:5"),
        (None, None),
    ):
        (source,) = built(offset_reset=given).sources()
        assert source.offset_reset == policy
    with pytest.raises(TopologyError, match="earliest, latest, none or a duration"):
        Consumed(offset_reset="soon")
    with pytest.raises(TopologyError, match="must not be negative"):
        Consumed(offset_reset=timedelta(seconds=-1))


def test_topics_of_the_application_itself_never_match_in_the_driver_either():
    builder = StreamsBuilder()
    moved = builder.stream(re.compile("t.*")).group_by(lambda value: value).count().to_stream()
    again = Grouped(name="again", key_serde=StringSerde(), value_serde=JsonSerde())
    moved.select_key(lambda key, value: "all").group_by_key(again).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), application_id="test", partitions={"ta": 1}) as driver:
        for timestamp in (1, 2):
            driver.create_input_topic("ta").pipe_input("k", "v", timestamp)
            driver.restart()
        assert driver.create_output_topic("out").read_key_values_to_list() == [("all", 1), ("all", 2)]


def test_a_topic_to_come_is_written_with_the_serdes_of_its_pattern():
    builder = StreamsBuilder()
    builder.stream(ORDERS, Consumed(value_serde=Int64Serde())).to("out")
    with TopologyTestDriver(builder.build(), partitions={"orders-eu": 1}) as driver:
        driver.create_input_topic("orders-asia").pipe_input("k", 7, 5)
        driver.restart()
        driver.create_input_topic("orders-eu").pipe_input("k", 8, 6)
        assert driver.create_output_topic("out").read_values_to_list() == [7, 8]
