"""What the DSL builds: nodes, parents, serdes, stores; and what it refuses."""

import pickle
import re
import subprocess
import sys
import types
from datetime import timedelta

import pytest
from pyspark import cloudpickle

import streams
from state.stores.spec import StoreKind
from streams import (
    Branched,
    Consumed,
    Grouped,
    Int32Serde,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    Named,
    Processor,
    Produced,
    Repartitioned,
    Stores,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    TopologyBuilder,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windowed,
    agg,
    api,
)
from streams.operators.aggregate.column_aggregate import ColumnAggregate
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.graph import InternalTopic, ProcessorNode
from streams.topology.manifest import manifest
from streams.topology.plan import build_plan
from streams.topology.rewrite import with_matching_topics
from streams.topology.topology import Topology
from tests.operators.test_global_stores import ByCode, LookUp


def kinds(topology):
    nodes = topology.nodes.values()
    return [node.kind.value if isinstance(node, ProcessorNode) else type(node).__name__ for node in nodes]


def test_stateless_operators_in_order():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    (
        stream.filter(lambda v: v)
        .filter_not(lambda k, v: v)
        .map(lambda k, v: (k, v))
        .map_values(lambda v: v)
        .flat_map(lambda k, v: [])
        .flat_map_values(lambda v: [])
        .select_key(lambda v: v)
        .peek(lambda v: None)
        .merge(stream)
        .to("out")
    )
    stream.foreach(lambda v: None)
    stream.print()
    topology = builder.build()
    assert kinds(topology) == [
        "SourceNode",
        "KSTREAM-FILTER",
        "KSTREAM-FILTER",
        "KSTREAM-MAP",
        "KSTREAM-MAPVALUES",
        "KSTREAM-FLATMAP",
        "KSTREAM-FLATMAPVALUES",
        "KSTREAM-KEY-SELECT",
        "KSTREAM-PEEK",
        "KSTREAM-MERGE",
        "SinkNode",
        "KSTREAM-FOREACH",
        "KSTREAM-PRINTER",
    ]
    changing = [name for name, node in topology.nodes.items() if getattr(node, "key_changing", False)]
    assert changing == ["KSTREAM-MAP-in", "KSTREAM-FLATMAP-in", "KSTREAM-KEY-SELECT-in"]
    assert topology.nodes["KSTREAM-MERGE-in"].parents == ("KSTREAM-PEEK-in", "KSTREAM-SOURCE-in")


def test_children_run_in_the_order_they_were_added():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("z")
    stream.filter(lambda v: v)
    stream.to("a")
    children = builder.build().children("KSTREAM-SOURCE-in")
    assert children == ("KSTREAM-SINK-z", "KSTREAM-FILTER-in", "KSTREAM-SINK-a")


def test_operators_get_functions_of_fixed_arity_and_travel_pickled():
    builder = StreamsBuilder()
    factor = 3
    builder.stream("in").map_values(lambda v: v * factor).filter(lambda k, v: k == v)
    topology = pickle.loads(cloudpickle.dumps(builder.build()))
    assert topology.nodes["KSTREAM-MAPVALUES-in"].processor().fn("k", 2) == 6
    first, second = (topology.nodes["KSTREAM-FILTER-in"].processor() for _ in range(2))
    assert first is not second
    assert first.predicate("k", "k") is True


def test_serdes_are_followed_along():
    builder = StreamsBuilder(default_key_serde=Int32Serde())
    stream = builder.stream("in", Consumed(key_serde=Int64Serde(), value_serde=StringSerde()))
    stream.filter(lambda v: v).to("kept", Produced(name="kept"))
    stream.map_values(len).to("value-forgotten", Produced(name="value"))
    stream.select_key(len).to("key-forgotten", Produced(name="key"))
    stream.to("given", Produced(key_serde=StringSerde(), name="given"))
    nodes = builder.build().nodes
    assert [(nodes[name].key_serde, nodes[name].value_serde) for name in ("kept", "value", "key", "given")] == [
        (Int64Serde(), StringSerde()),
        (Int64Serde(), JsonSerde()),
        (Int32Serde(), StringSerde()),
        (StringSerde(), StringSerde()),
    ]


def test_split():
    builder = StreamsBuilder()
    seen = []
    branches = (
        builder.stream("in")
        .split(Named("size-"))
        .branch(lambda v: v > 10, Branched("big"))
        .branch(lambda v: v > 5)
        .branch(lambda v: v > 4, Branched("mapped", function=lambda stream: stream.map_values(str)))
        .branch(lambda v: v > 3, Branched("eaten", consumer=seen.append))
        .default_branch()
    )
    assert list(branches) == ["size-big", "size-2", "size-mapped", "size-0"]
    branches["size-mapped"].to("mapped")
    topology = builder.build()
    branch = topology.nodes["size-"].processor()
    assert [child for _, child in branch.branches] == list(topology.children("size-"))
    assert topology.nodes["KSTREAM-SINK-mapped"].parents == ("KSTREAM-MAPVALUES-in",)
    assert len(seen) == 1


def test_split_misuse():
    builder = StreamsBuilder()
    split = builder.stream("in").split()
    with pytest.raises(TopologyError, match="has no branch"):
        split.no_default_branch()
    split.branch(lambda v: v, Branched("a"))
    with pytest.raises(TopologyError, match="has a branch 'a' already"):
        split.branch(lambda v: v, Branched("a"))
    with pytest.raises(TopologyError, match="never ended"):
        builder.build()
    assert list(split.no_default_branch()) == ["a"]
    with pytest.raises(TopologyError, match="ended"):
        split.branch(lambda v: v)
    builder.build()


def test_one_source_for_one_subscription():
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).to("x")
    builder.stream(["a", "b"]).to("y")
    builder.table("c").to_stream().to("z")
    builder.stream("c").to("w")
    assert [source.topics for source in builder.build().sources()] == [("a", "b"), ("c",)]
    with pytest.raises(TopologyError, match="'a' is read twice in different ways"):
        builder.stream("a")
    with pytest.raises(TopologyError, match="'c' is read twice in different ways"):
        builder.stream("c", Consumed(key_serde=Int64Serde()))


def test_aggregations():
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(value_serde=StringSerde()))
    groups = stream.group_by_key()
    tables = [
        groups.count(materialized=Materialized(name="counts", caching=False)),
        groups.reduce(lambda total, value: total + value, materialized=Materialized(name="reduced")),
        groups.aggregate(list, lambda value, all_: [*all_, value], materialized=Materialized(name="lists")),
        groups.windowed_by(TimeWindows.of_size_and_grace(60_000, 5)).count(materialized=Materialized(name="windows")),
    ]
    stores = builder.build().stores
    assert [table.store_name for table in tables] == list(stores)  # type: ignore[attr-defined]
    assert [store.spec.kind for store in stores.values()] == [StoreKind.TIMESTAMPED_KEY_VALUE] * 3 + [
        StoreKind.TIMESTAMPED_WINDOW
    ]
    assert [store.value_serde for store in stores.values()] == [Int64Serde(), StringSerde(), JsonSerde(), Int64Serde()]
    assert stores["windows"].spec.retention_ms == 60_005
    assert stores["windows"].key_serde == StringSerde()
    nodes = builder.build().nodes
    assert nodes["KSTREAM-AGGREGATE-windows"].key_serde == TimeWindowedSerde(StringSerde(), 60_000)
    assert nodes["KSTREAM-AGGREGATE-counts"].processor().caching is False
    reduce = nodes["KSTREAM-REDUCE-reduced"].processor()
    assert reduce.functions.initializer is None
    assert reduce.functions.aggregator("k", "b", "a") == "ab"


def test_built_in_aggregates():
    builder = StreamsBuilder()
    groups = builder.stream("in").group_by_key()
    groups.aggregate(n=agg.count(), total=agg.sum("a.b"), mean=agg.mean("a.b"), materialized=Materialized(name="s"))
    groups.windowed_by(TimeWindows.of_size_with_no_grace(10)).mean("delay", materialized=Materialized(name="w"))
    nodes = builder.build().nodes
    node = nodes["KSTREAM-AGGREGATE-s"]
    assert node.spec.projection == ("a.b",)
    operator = node.processor()
    assert isinstance(operator, ColumnAggregate)
    assert [(name, one.identity, one.field) for name, one in operator.fields.aggregates.items()] == [
        ("n", "count()", None),
        ("total", "sum(a.b)", "a.b"),
        ("mean", "mean(a.b)", "a.b"),
    ]
    windowed = nodes["KSTREAM-AGGREGATE-w"]
    assert windowed.spec.projection == ("delay",)
    assert windowed.processor().windows == TimeWindows.of_size_with_no_grace(10)


def test_aggregate_takes_one_form():
    groups = StreamsBuilder().stream("in").group_by_key()
    for wrong in (
        lambda: groups.aggregate(),
        lambda: groups.aggregate(dict),
        lambda: groups.aggregate(dict, lambda v, a: a, n=agg.count()),
    ):
        with pytest.raises(TopologyError, match="either an initializer and an aggregator, or built-in"):
            wrong()
    with pytest.raises(TopologyError, match=r"aggregate\(n=...\) takes a built-in aggregate"):
        groups.aggregate(n="count")
    with pytest.raises(TopologyError, match="holds JSON"):
        groups.sum("f", materialized=Materialized(value_serde=Int64Serde()))


def test_sinks():
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value: f"out-{key}", Produced(partitioner=lambda t, k, v, n: 0, name="dynamic"))
    sink = builder.build().nodes["dynamic"]
    assert sink.topic is None
    assert sink.topic_extractor("a", 1, None) == "out-a"
    assert sink.partitioner("t", "k", "v", 3) == 0


def test_repartition():
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(name="r", partitions=4, value_serde=StringSerde())).to("out")
    topology = builder.build()
    assert topology.nodes["r-repartition-sink"].topic == InternalTopic("r", 4)
    assert topology.nodes["r-repartition-source"].topics == (InternalTopic("r", 4),)
    assert topology.nodes["KSTREAM-SINK-out"].value_serde == StringSerde()
    assert InternalTopic("r", 4).topic_name("app") == "app-r-repartition"


def test_a_built_topology_stays_as_it_is():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    topology = builder.build()
    stream.to("out")
    assert list(topology.nodes) == ["KSTREAM-SOURCE-in"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.stream("in", Grouped(name="x")), r"stream\(\) takes Consumed\(...\) here, not Grouped"),
        (
            lambda b: b.stream("in", Consumed(key_serde=StringSerde)),
            r"key_serde=...\) takes an object, not the class StringSerde: write StringSerde\(\)",
        ),
        (
            lambda b: b.stream("in").group_by_key().count(materialized=Consumed()),
            r"count\(\) takes Materialized\(...\) here, not Consumed",
        ),
        (lambda b: b.stream("in").merge(b.table("t")), "takes a stream, not a KTable"),
        (
            lambda b: b.stream("in").as_of_join(b.table("t"), lambda one, two: one, within=5),
            "takes a stream, not a KTable",
        ),
        (lambda b: b.table("in").suppress(5), "suppress takes Suppressed"),
        (
            lambda b: (
                b.stream("in")
                .group_by_key()
                .windowed_by(UnlimitedWindows())
                .count()
                .suppress(Suppressed.until_window_closes())
            ),
            "never close",
        ),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(UnlimitedWindows()).emit_strategy("close"),
            "emit_strategy takes EmitStrategy",
        ),
        (lambda b: b.table("in").filter(bool, materialized=Materialized(ttl=5)), "cannot expire"),
        (lambda b: b.table("in").map_values(bool, materialized=Materialized(retention=5)), "has no windows"),
        (lambda b: b.table("in", materialized=Materialized(history_retention=-5)), "must not be negative"),
        (lambda b: Joined(grace=-5), "must not be negative"),
        (lambda b: b.build(), "reads no topic"),
        (lambda b: b.stream([]), "takes one topic or several"),
        (lambda b: b.stream(["a", "a"]), "takes one topic or several"),
        (lambda b: b.stream("a b"), "'a b' cannot be the name of a topic"),
        (lambda b: b.stream("a").to(""), "cannot be the name of a topic"),
        (lambda b: b.stream("a").filter(lambda v: v, "not fit"), "'not fit' cannot be the name"),
        (lambda b: Materialized(name="not fit"), "'not fit' cannot be the name"),
        (lambda b: Repartitioned(partitions=0), "at least one partition"),
        (lambda b: Consumed(offset_reset="now"), "must be earliest, latest, none or a duration"),
        (lambda b: Branched(function=id, consumer=id), "either a function or a consumer"),
        (lambda b: Grouped(name=""), "cannot be the name"),
    ],
)
def test_refused(build, message):
    with pytest.raises(TopologyError, match=message):
        build(StreamsBuilder())


def test_graph_refuses_unknown_parents_and_stores():
    from dataclasses import replace

    builder = StreamsBuilder()
    builder.stream("in").filter(lambda v: v, "f")
    built = builder.build()
    fresh = Topology(StringSerde(), JsonSerde())
    with pytest.raises(TopologyError, match="has the parent 'KSTREAM-SOURCE-in', which is not part"):
        fresh.add(built.nodes["f"])
    with pytest.raises(TopologyError, match=r"uses the store 'nowhere', which does not exist\. Known: none"):
        built.add(replace(built.nodes["f"], name="g", stores=("nowhere",)))


# --- Sources that read a pattern: which topics they get, and that nothing lasting depends on them.


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


# --- `TopologyBuilder`: a graph node by node, as Kafka Streams' `Topology`.


class Count(Processor):
    """Counts keys over both of its parents; counts of even number go to the one child, all to the other."""

    def process(self, record):
        store = self.ctx.store("counts")
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count, record.timestamp)
        self.ctx.forward(record.with_value(count), "all")
        if count % 2 == 0:
            self.ctx.forward(record.with_value(count), "even")


class Pass(Processor):
    def process(self, record):
        self.ctx.forward(record.with_key(f"{record.key}!"))


COUNTS = Stores.key_value_store("counts", StringSerde(), Int64Serde())


def built_topology_builder():
    return (
        TopologyBuilder()
        .add_source("left", "in", Consumed(value_serde=Int64Serde()))
        .add_source("right", ["more", "most"])
        .add_processor("count", Count, ["left", "right"])
        .add_state_store(COUNTS, ["count"])
        .add_processor("pass", Pass, ["left"])
        .add_sink("all", "all-counts", ["count"], Produced(value_serde=Int64Serde()))
        .add_sink("even", lambda key, value, context: f"even-{context.topic}", ["count", "pass"])
        .build()
    )


def test_records_take_the_ways_that_were_declared():
    with TopologyTestDriver(built_topology_builder()) as driver:
        driver.create_input_topic("in").pipe_input("a", 7, 1)
        driver.create_input_topic("most").pipe_input("a", {"x": 1}, 2)
        driver.restart()
        driver.create_input_topic("more").pipe_input("b", {"x": 1}, 3)
        assert driver.create_output_topic("all-counts").read_key_values_to_list() == [("a", 1), ("a", 2), ("b", 1)]
        assert driver.create_output_topic("even-most").read_key_values_to_list() == [("a", 2)]
        # What "pass" makes keeps its source's serde unless another is named: JSON, of an int.
        assert driver.create_output_topic("even-in").read_key_values_to_list() == [("a!", 7)]


def test_it_is_described_planned_and_named_by_the_user():
    topology = built_topology_builder()
    assert (
        "    Processor: count (stores: [counts])\n      --> all, even\n      <-- left, right\n" in topology.describe()
    )
    assert len(build_plan(topology, "app").sub_topologies) == 1
    assert list(topology.stores) == ["counts"]


def test_shared_stores_and_connecting_later():
    builder = TopologyBuilder(ensure_explicit_naming=True).add_source("one", "in").add_source("two", "more")
    builder.add_processor("first", Pass, ["one"]).add_processor("second", Pass, ["two"])
    assert len(build_plan(builder.build(), "app").sub_topologies) == 2
    builder.add_state_store(COUNTS)
    builder.connect_processor_and_state_stores("first", ["counts"])
    builder.connect_processor_and_state_stores("second", ["counts", "counts"])
    assert len(build_plan(builder.build(), "app").sub_topologies) == 1


def test_global_stores_and_patterns():
    builder = TopologyBuilder()
    builder.add_global_store(Stores.key_value_store("by-code", StringSerde(), StringSerde()), "airports", ByCode)
    builder.add_source("in", re.compile("in-.*")).add_processor("look", LookUp, ["in"], ["by-code"])
    builder.add_sink("out", "out", ["look"])
    with TopologyTestDriver(builder.build(), partitions={"in-1": 1}) as driver:
        driver.create_input_topic("airports", value_serde=None).pipe_input("Newark", {"code": "EWR"}, 1)
        driver.create_input_topic("in-1").pipe_input("k", "EWR", 2)
        assert driver.create_output_topic("out").read_values_to_list() == ["Newark"]


MISTAKES = {
    "a source with the name of another node": (lambda b: b.add_source("in", "other"), "Two nodes are called 'in'"),
    "a topic with two sources": (
        lambda b: b.add_source("again", "in"),
        "only one source can read a topic|has one source",
    ),
    "a processor without a parent": (lambda b: b.add_processor("q", Pass, []), "'q' needs a parent"),
    "an unknown parent": (
        lambda b: b.add_processor("q", Pass, ["nobody"]),
        "'nobody', which does not exist. Known: in, p",
    ),
    "a processor instead of its supplier": (lambda b: b.add_processor("q", Pass(), ["in"]), "makes processors"),
    "a processor with an unknown store": (
        lambda b: b.add_processor("q", Pass, ["in"], ["nothing"]),
        "'nothing', which does not exist",
    ),
    "a sink with the name of another node": (lambda b: b.add_sink("p", "out", ["in"]), "Two nodes are called 'p'"),
    "a source with a store": (lambda b: b.connect_processor_and_state_stores("in", ["x"]), "'in' is not a processor"),
    "an unknown store": (lambda b: b.connect_processor_and_state_stores("p", ["x"]), "'x' does not exist"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_declaration_is_refused_with_its_reason(mistake: str) -> None:
    declare, reason = MISTAKES[mistake]
    builder = TopologyBuilder().add_source("in", "in").add_processor("p", Pass, ["in"])
    with pytest.raises(TopologyError, match=reason):
        declare(builder)


# --- What the DSL builds does what it says, run by the driver: re-keys in the head and behind state, joins, aggregates.


FLIGHTS = [("a", 5, "X"), ("a", 20, "X"), ("b", 30, "Y"), ("a", 40, "X")]


@pytest.fixture(scope="module")
def results():
    """All records of each output topic, by topic."""
    builder = StreamsBuilder()
    flights, carriers = builder.stream("flights"), builder.table("carriers")
    late = (
        flights.filter(lambda v: v["d"] > 10).select_key(lambda v: v["c"]).left_join(carriers, lambda v, n: {**v, **n})
    )
    late.map_values(lambda v: v["name"]).to("late")
    late.group_by(lambda v: v["o"]).count().to_stream().to("by-origin")
    windows = TimeWindows.of_size_with_no_grace(100)
    flights.group_by_key().windowed_by(windows).aggregate(n=agg.count(), m=agg.max("d")).to_stream().to("windows")
    carrier = flights.select_key(lambda v: v["c"])
    largest = carrier.group_by_key().max("d", materialized=Materialized(name="largest"))
    carrier.join(largest, lambda v, largest: largest["max"] - v["d"]).to("below-largest")
    branches = flights.split().branch(lambda v: v["d"] > 10, Branched("late")).default_branch(Branched("early"))
    hour = JoinWindows.of_time_difference_with_no_grace(1000)
    branches["late"].join(branches["early"], lambda late, early: [late["d"], early["d"]], hour).to("pairs")

    serdes = {"by-origin": (StringSerde(), Int64Serde()), "windows": (TimeWindowedSerde(StringSerde(), 100), None)}
    with TopologyTestDriver(builder.build(), partitions={"flights": 2}) as driver:
        driver.create_input_topic("carriers").pipe_input("UA", {"name": "United"}, timestamp=1)
        topic = driver.create_input_topic("flights", StringSerde())
        for at, (key, delay, origin) in enumerate(FLIGHTS):
            topic.pipe_input(key, {"d": delay, "c": "UA", "o": origin}, timestamp=10 * at + 10)
        outputs = ("late", "by-origin", "windows", "below-largest", "pairs")
        topics = {name: driver.create_output_topic(name, *serdes.get(name, (StringSerde(), None))) for name in outputs}
        return {name: [(r.key, r.value) for r in topic.read_records_to_list()] for name, topic in topics.items()}


def test_results(results):
    assert results["late"] == [("UA", "United")] * 3
    assert sorted(results["by-origin"]) == [("X", 1), ("X", 2), ("Y", 1)]
    assert dict(results["windows"]) == {
        Windowed("a", Window(0, 100)): {"n": 3, "m": 40},
        Windowed("b", Window(0, 100)): {"n": 1, "m": 30},
    }
    assert results["below-largest"] == [("UA", 0)] * 4
    assert results["pairs"] == [("a", [20, 5]), ("a", [40, 5])]


# --- What `streams` exports is what it says, and nothing else.


def test_all_is_the_public_names():
    public = {
        name
        for name, value in vars(api).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(streams.__all__) == public | {"KafkaStreams"}  # type: ignore[attr-defined]
    assert list(streams.__all__) == sorted(streams.__all__)  # type: ignore[attr-defined]
    assert set(streams.__all__) <= set(dir(streams))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_importing_the_package_imports_nothing_large_before_a_name_is_used():
    program = (
        "import sys, streams, streams.engine.source.offsets\n"
        "large = {'numpy', 'pyarrow', 'numba', 'pandas', 'streams.api'}\n"
        "before = large & set(sys.modules)\n"
        "from streams import *\n"
        "print(before, StreamsBuilder is streams.StreamsBuilder, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set() True True\n"


def test_public_things_are_documented():
    undocumented = [
        name
        for name in streams.__all__  # type: ignore[attr-defined]
        if not (getattr(streams, name).__doc__ or "").strip() and name.isidentifier()
    ]
    assert undocumented == []
