"""Operators of tables: old values, versions, and what survives steps and restarts."""

import pytest

from streams import Joined, Materialized, StreamsBuilder, Suppressed, TopologyError
from streams.operators.processor import Processor
from streams.testing import TopologyTestDriver

EVERY = Materialized(caching=False)


def outputs(builder, records, **options):
    """What each record gives, as (key, value, time)."""
    with TopologyTestDriver(builder.build(), mode="compat", **options) as driver:
        out, rows = driver.create_output_topic("out"), []
        for topic, key, value, at in records:
            driver.create_input_topic(topic).pipe_input(key, value, at)
            rows.append([(r.key, r.value, r.timestamp) for r in out.read_records_to_list()])
        return rows


def test_records_that_wait_survive_a_restart_with_their_headers():
    builder = StreamsBuilder()
    table = builder.table("t", materialized=Materialized(history_retention=100))
    builder.stream("in").left_join(table, lambda a, b: [a, b], Joined(name="j", grace=10)).to("out")
    with TopologyTestDriver(builder.build(), rocksdb=True) as driver:
        stream, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        stream.pipe_input("k", 1, 20, headers=(("h", b"1"),))
        driver.restart()
        driver.create_input_topic("t").pipe_input("k", "t", 15)
        driver.restart()
        stream.pipe_input(None, 2, 30)
        assert [(r.key, r.value, r.timestamp, r.headers) for r in out.read_records_to_list()] == [
            (None, [2, None], 30, ()),
            ("k", [1, "t"], 20, (("h", b"1"),)),
        ]


def test_a_versioned_table_is_seen_as_of_the_record_also_through_a_filter():
    builder = StreamsBuilder()
    table = builder.table("t", materialized=Materialized(history_retention=50))
    seen = table.filter(lambda v: v != "hidden").map_values(lambda v: v.upper())
    builder.stream("in").left_join(seen, lambda a, b: [a, b]).to("out")
    records = [
        ("t", "k", "old", 0),
        ("t", "k", "hidden", 10),
        ("t", "k", "new", 20),
        ("in", "k", 1, 5),
        ("in", "k", 2, 10),
        ("in", "k", 3, 99),
    ]
    assert [row[0][1] for row in outputs(builder, records)[3:]] == [[1, "OLD"], [2, None], [3, "NEW"]]
    # What is older than the history is dropped.
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("t")
        topic.pipe_input("k", "v", 100)
        topic.pipe_input("k", "older", 49)
        assert driver.dropped("late") == 1
        driver.restart()
        topic.pipe_input("k", "older", 50)
        assert driver.dropped("late") == 1
        assert driver.get_store("t-STATE-STORE").get("k").value == "v"
        assert driver.get_store("t-STATE-STORE").get("k", as_of=99).value == "older"


def test_a_join_with_grace_needs_a_table_that_remembers():
    builder = StreamsBuilder()
    plain, short = builder.table("p"), builder.table("s", materialized=Materialized(history_retention=5))
    for table, why in ((plain, "it is not versioned"), (short, "its history_retention is 5 ms")):
        with pytest.raises(TopologyError, match=why):
            builder.stream("in").join(table, lambda a, b: a, joined=Joined(grace=10))


def test_a_versioned_table_is_neither_suppressed_nor_global():
    builder = StreamsBuilder()
    versioned = builder.table("t", materialized=Materialized(name="v", history_retention=10))
    with pytest.raises(TopologyError, match="versioned table, which cannot be suppressed"):
        versioned.suppress(Suppressed.until_time_limit(5))
    with pytest.raises(TopologyError, match="cannot have a versioned store"):
        builder.global_table("g", materialized=Materialized(history_retention=10))


def test_needless_deletions_are_left_out_where_old_values_are_known():
    def shape(named, grouped):
        builder = StreamsBuilder()
        table = builder.table("in", materialized=Materialized(name="s" if named else None, caching=False))
        if grouped:
            table.group_by(lambda k, v: (k, v)).count()
        table.filter(lambda v: v > 0).to_stream().to("out")
        return outputs(builder, [("in", "k", -1, 0), ("in", "k", 1, 1), ("in", "k", -2, 2)])

    all_of_them = [[("k", None, 0)], [("k", 1, 1)], [("k", None, 2)]]
    assert shape(False, False) == all_of_them
    assert shape(True, False) == shape(False, True) == [[], *all_of_them[1:]]


def test_a_cached_table_emits_once_per_step_and_nothing_for_what_came_and_went():
    builder = StreamsBuilder()
    table = builder.table("in", materialized=Materialized(name="t"))
    table.map_values(lambda v: v * 2, materialized=Materialized(name="m")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for key, value in (("a", 1), ("b", 5), ("a", 2), ("b", None)):
                topic.pipe_input(key, value, 0)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 4)]
        assert driver.get_store("m").get("a").value == 4


def test_derived_tables_are_computed_at_each_look_up():
    builder = StreamsBuilder()
    one, two = builder.table("one"), builder.table("two")
    both = one.join(two, lambda a, b: a + b).filter(lambda v: v > 10)
    builder.stream("in").join(both, lambda a, b: [a, b]).to("out")
    topology = builder.build()
    assert sorted(topology.stores) == ["one-STATE-STORE", "two-STATE-STORE"]
    with TopologyTestDriver(topology) as driver:
        for topic, value in (("one", 1), ("two", 2), ("in", "a"), ("two", 20), ("in", "b")):
            driver.create_input_topic(topic).pipe_input("k", value, 0)
        assert driver.create_output_topic("out").read_values_to_list() == [["b", 21]]


class LookUp(Processor):
    """Puts what a read-only store holds behind each value."""

    def process(self, record):
        found = self.ctx.store("prices").get(record.key)
        self.ctx.forward(record.with_value([record.value, found and found.value]))


def test_a_processor_looks_up_a_read_only_store():
    builder = StreamsBuilder()
    builder.add_read_only_state_store("prices", "price-topic")
    builder.stream("in").process(LookUp, ["prices"], "look-up").to("out")
    topology = builder.build()
    assert topology.describe().count("Sub-topology") == 1
    with TopologyTestDriver(topology, partitions={"in": 2, "price-topic": 3}) as driver:
        prices, stream = driver.create_input_topic("price-topic"), driver.create_input_topic("in")
        prices.pipe_input("a", 5, 0)
        driver.restart()
        stream.pipe_input("a", 1, 0)
        stream.pipe_input("b", 2, 0)
        assert sorted(driver.create_output_topic("out").read_values_to_list()) == [[1, 5], [2, None]]


def test_names_do_not_move_when_operators_come_in_between():
    def names(more):
        builder = StreamsBuilder()
        left, right = more(builder.table("l")), builder.table("r")
        left.join(right, lambda a, b: a, materialized=Materialized(name="joined"))
        left.left_join(right, lambda a, b: a)
        left.join(right, lambda a, b: a, foreign_key=lambda v: v, materialized=Materialized(name="by-foreign-key"))
        left.group_by(lambda k, v: (v, v)).reduce(lambda a, b: a, lambda a, b: a)
        topology = builder.build()
        topics = {str(topic) for source in topology.sources() for topic in source.topics}
        return set(topology.stores), topics

    assert names(lambda table: table) == names(lambda table: table.filter(lambda v: True).map_values(lambda v: v))
