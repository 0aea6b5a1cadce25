"""What the DSL builds: nodes, parents, serdes, stores; and what it refuses."""

import pickle

import pytest
from pyspark import cloudpickle

from state.stores.spec import StoreKind
from streams import (
    Branched,
    Consumed,
    Grouped,
    Int32Serde,
    Int64Serde,
    Joined,
    JsonSerde,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    agg,
)
from streams.operators.aggregate.columns.column_aggregate import ColumnAggregate
from streams.topology.graph import InternalTopic, ProcessorNode
from streams.topology.topology import Topology


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
    assert [table.store_name for table in tables] == list(stores)
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
    assert [(name, one.identity, one.field) for name, one in operator.aggregates.items()] == [
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
            r"count\(\) takes the operator's name or Materialized\(...\) here, not Consumed",
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
