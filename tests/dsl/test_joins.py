"""Tables and when they get a store; joins, their stores, and the check that both sides are in the same tasks; `join_all`."""

import json

import pytest

from state.stores.spec import StoreKind
from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    agg,
)
from streams.model.record import LEFT, RIGHT
from streams.operators.join.join_all import StreamJoinAll
from streams.operators.join.joins import JoinSide
from streams.topology.diff import StateEffect, compare, worst
from streams.topology.manifest import manifest_json
from streams.topology.plan import build_plan

TEN = JoinWindows.of_time_difference_with_no_grace(10)


def test_join_of_streams():
    builder = StreamsBuilder()
    left, right = builder.stream("l"), builder.stream("r", Consumed(value_serde=StringSerde()))
    windows = JoinWindows.of_time_difference_and_grace(10, 5).before(3)
    left.join(right, lambda a, b: (a, b), windows, StreamJoined(name="j", store_name="s")).to("out")
    topology = builder.build()
    this, other = topology.stores["s-this-join-store"], topology.stores["s-other-join-store"]
    assert (this.spec.kind, this.spec.retain_duplicates, this.spec.retention_ms) == (StoreKind.WINDOW, True, 18)
    assert (this.value_serde, other.value_serde) == (JsonSerde(), StringSerde())
    one, two = topology.nodes["j-this-join"].processor(), topology.nodes["j-other-join"].processor()
    assert one.side == JoinSide(LEFT, this.name, other.name, "j-merge")
    assert two.side == JoinSide(RIGHT, other.name, this.name, "j-merge")
    assert one.join.joined(LEFT, "k", 1, 2) == two.join.joined(RIGHT, "k", 2, 1) == (1, 2)
    assert topology.nodes["j-merge"].parents == ("j-this-join", "j-other-join")


def test_a_join_reads_built_in_aggregates_as_results():
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().aggregate(m=agg.mean("f"), materialized=Materialized(name="means"))
    builder.stream("other").left_join(table, lambda left, right: (left, right), Joined(name="j"))
    view = builder.build().nodes["j"].processor().table
    assert view.stores == ("means",)
    assert view.from_stored([[6, 2]]) == {"m": 3.0}


def test_joins_check_their_sides():
    builder = StreamsBuilder()
    strings, longs = builder.stream("s"), builder.stream("l", Consumed(key_serde=Int64Serde()))
    with pytest.raises(TopologyError, match=r"keyed by StringSerde\(\) and .* by Int64Serde\(\)"):
        strings.join(longs, lambda a, b: a, TEN)
    with pytest.raises(TopologyError, match=r"keyed by StringSerde\(\) and .* by Int64Serde\(\)"):
        strings.left_join(builder.table("t", Consumed(key_serde=Int64Serde())), lambda a, b: a)
    # A re-keyed side takes the serde of the other one.
    strings.select_key(len).join(longs, lambda a, b: a, TEN, StreamJoined(name="j"))
    assert builder.build().nodes["j-this-join"].input_key_serde == Int64Serde()


def test_join_misuse():
    builder = StreamsBuilder()
    stream, table = builder.stream("s"), builder.table("t")
    with pytest.raises(TopologyError, match="needs JoinWindows"):
        stream.join(builder.stream("r"), lambda a, b: a)
    with pytest.raises(TopologyError, match="takes no windows"):
        stream.join(table, lambda a, b: a, TEN)
    with pytest.raises(TopologyError, match=r"takes Joined\(...\) here, not StreamJoined"):
        stream.join(table, lambda a, b: a, joined=StreamJoined())
    with pytest.raises(TopologyError, match="another StreamsBuilder"):
        stream.join(StreamsBuilder().stream("r"), lambda a, b: a, TEN)
    with pytest.raises(TopologyError, match="is not a stream or table"):
        stream.merge("r")
    windowed = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    with pytest.raises(TopologyError, match="cannot look up the windowed table"):
        stream.join(windowed, lambda a, b: a)


def test_a_table_has_a_store_when_it_is_needed():
    builder = StreamsBuilder()
    plain, looked_up, named = (
        builder.table("a"),
        builder.table("b"),
        builder.table("c", None, Materialized(name="c-store")),
    )
    plain.to_stream().to("out")
    assert (plain.store_name, looked_up.store_name, named.store_name) == (None, None, "c-store")
    builder.stream("in").join(looked_up, lambda left, right: left, joined=Joined(name="one"))
    builder.stream("in").left_join(looked_up, lambda left, right: left, Joined(name="two"))
    topology = builder.build()
    assert looked_up.store_name == "b-STATE-STORE"
    assert list(topology.stores) == ["c-store", "b-STATE-STORE"]
    assert topology.nodes["KTABLE-SOURCE-a"].processor().store_name is None
    assert topology.nodes["KTABLE-SOURCE-b"].processor().store_name == "b-STATE-STORE"
    assert topology.nodes["KTABLE-SOURCE-b"].stores == ("b-STATE-STORE",)
    assert topology.nodes["one"].stores == ("b-STATE-STORE",)
    assert [topology.nodes[name].processor().left for name in ("one", "two")] == [False, True]


def test_to_table():
    builder = StreamsBuilder()
    table = builder.stream("in").map_values(lambda v: v).to_table(Materialized(name="latest"), named="table")
    table.to_stream().to("out")
    topology = builder.build()
    assert topology.nodes["table"].stores == ("latest",)
    assert topology.stores["latest"].spec.kind is StoreKind.TIMESTAMPED_KEY_VALUE


def test_a_table_without_serdes_of_its_own_is_read_with_those_of_its_store():
    builder, kept = StreamsBuilder(), Materialized("s", key_serde=StringSerde(), value_serde=Int64Serde())
    builder.table("in", kept)
    builder.table("as-read", Consumed(value_serde=JsonSerde()), Materialized("t", value_serde=Int64Serde()))
    builder.global_table("everywhere", Materialized("g", value_serde=Int64Serde()))
    topology = builder.build()
    read = {source.topics[0]: source.value_serde for source in topology.sources()}
    assert read == {"in": Int64Serde(), "as-read": JsonSerde()}
    assert topology.stores["t"].value_serde == Int64Serde()
    assert topology.global_tables["g"].source.value_serde == Int64Serde()


@pytest.mark.parametrize(
    "make",
    [
        lambda table, how: table.map_values(lambda value: value + 1, how),
        lambda table, how: table.filter(lambda value: value > 0, how),
        lambda table, how: table.join(table, lambda one, other: one + other, materialized=how),
    ],
    ids=["map_values", "filter", "join"],
)
def test_a_table_without_a_store_has_the_value_serde_that_was_named(make):
    builder = StreamsBuilder()
    make(builder.table("in"), Materialized(value_serde=Int64Serde())).to_stream().to("out")
    (sink,) = builder.build().sinks()
    assert sink.value_serde == Int64Serde()


# --- `join_all`: its stores and names, what the other parts of a topology know of it, and what it refuses.


TEN_JOIN_ALL = JoinWindows.of_time_difference_and_grace(10, 5)


def values(joined):
    return list(joined.values())


def build(
    windows=TEN_JOIN_ALL, names=("payment", "shipment"), topics=("p", "s"), joined=None, this="order", **consumed
):
    builder = StreamsBuilder()
    stream = builder.stream("o", Consumed(**consumed))
    others = {name: builder.stream(topic) for name, topic in zip(names, topics, strict=True)}
    stream.join_all(others, values, windows, joined, this=this).to("out")
    return builder.build()


def test_stores_and_nodes():
    how = StreamJoined(name="j", store_name="s", persistent=False, changelog_config={"segment.ms": "9"})
    topology = build(joined=how, value_serde=StringSerde())
    assert list(topology.stores) == ["s-order-join-store", "s-payment-join-store", "s-shipment-join-store"]
    for store in topology.stores.values():
        spec = store.spec
        assert (spec.kind, spec.retain_duplicates, spec.retention_ms) == (StoreKind.WINDOW, True, 25)
        assert (spec.persistent, spec.logged, spec.changelog_config) == (False, True, {"segment.ms": "9"})
    serdes = [store.value_serde for store in topology.stores.values()]
    assert serdes == [StringSerde(), JsonSerde(), JsonSerde()]
    assert topology.nodes["j-merge"].parents == ("j-order-join", "j-payment-join", "j-shipment-join")
    operator = topology.nodes["j-payment-join"].processor()
    assert isinstance(operator, StreamJoinAll)
    assert (operator.name, operator.difference_ms, operator.grace_ms) == ("payment", 10, 5)
    assert operator.join.joiner("k", {"a": 1}) == [1]


def test_describe_shows_every_side_with_all_stores():
    text = build(joined=StreamJoined(name="j")).describe()
    stores = "[j-order-join-store, j-payment-join-store, j-shipment-join-store]"
    for name, topic in (("order", "o"), ("payment", "p"), ("shipment", "s")):
        side = f"    Processor: j-{name}-join (stores: {stores})\n      --> j-merge\n      <-- KSTREAM-SOURCE-{topic}\n"
        assert side in text
    assert text.count("Sub-topology:") == 1


def test_generated_names_are_pinned_and_know_what_they_name():
    names = list(build().stores)
    # Whoever changes these loses the state of every running application.
    assert names == [f"KSTREAM-JOINALL-o-p-s-0132f9b9-{name}-join-store" for name in ("order", "payment", "shipment")]
    assert list(build(names=("shipment", "payment"), topics=("s", "p")).stores) == [names[0], names[2], names[1]]
    others = [
        build(windows=JoinWindows.of_time_difference_and_grace(10, 6)),
        build(windows=JoinWindows.of_time_difference_and_grace(11, 5)),
        build(names=("shipment", "payment")),
        build(this="this"),
    ]
    assert len({*names}.union(*(other.stores for other in others))) == 15


def test_two_equal_joins_ask_for_a_name():
    builder = StreamsBuilder()
    stream, others = builder.stream("o"), {"p": builder.stream("p"), "s": builder.stream("s")}
    stream.join_all(others, values, TEN_JOIN_ALL)
    with pytest.raises(TopologyError, match=r"Two stores are called .*StreamJoined\(store_name=...\)"):
        stream.filter(lambda v: v).join_all(others, values, TEN_JOIN_ALL)
    stream.join_all(others, values, TEN_JOIN_ALL, StreamJoined(name="again"))


@pytest.mark.parametrize("name", ["payment", "Payment_2", "p.1"])
def test_explicit_naming(name):
    def program(joined):
        builder = StreamsBuilder(ensure_explicit_naming=True)
        streams = [builder.stream(topic) for topic in "ops"]
        streams[0].join_all({name: streams[1], "shipment": streams[2]}, values, TEN_JOIN_ALL, joined)
        return builder.build()

    with pytest.raises(TopologyError, match=rf"-{name}-join-store'.*name them with .*StreamJoined\(name=...\)"):
        program(None)
    assert f"j-{name}-join-store" in program(StreamJoined(name="j")).stores


DIFFERENT = {
    "nothing": ({}, StateEffect.SAFE, None),
    "another order": ({"names": ("shipment", "payment"), "topics": ("s", "p")}, StateEffect.SAFE, None),
    "another window": (
        {"windows": JoinWindows.of_time_difference_and_grace(12, 5)},
        StateEffect.NEEDS_MIGRATION,
        "difference_ms 10 -> 12",
    ),
    "a further stream": (
        {"names": ("payment", "shipment", "more"), "topics": ("p", "s", "m")},
        StateEffect.NEEDS_MIGRATION,
        "j-more-join",
    ),
    "another name": ({"names": ("paid", "shipment")}, StateEffect.LOSES_STATE, "j-payment-join-store"),
    "another topic": ({"topics": ("p2", "s")}, StateEffect.NEEDS_MIGRATION, "p2"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_diff(what):
    changed, severity, said = DIFFERENT[what]
    how = StreamJoined(name="j")
    old, new = build(joined=how), build(**{"joined": how, **changed})
    changes = compare(json.loads(manifest_json(old)), new)
    assert worst(changes) is severity
    assert said is None or any(said in str(change) for change in changes)
    hashes = [build_plan(topology, "app").sub_topologies[0].topology_hash for topology in (old, new)]
    assert (hashes[0] == hashes[1]) is (severity is StateEffect.SAFE)


def test_repartition_topics_are_named_after_the_join():
    def program(joined, times=1):
        builder = StreamsBuilder()
        counts = builder.stream("o").group_by_key(Grouped(name="g")).count(materialized=Materialized(name="c"))
        rekeyed = counts.to_stream().select_key(lambda key, value: key)
        others = {"p": builder.stream("p"), "s": rekeyed if times == 2 else builder.stream("s")}
        rekeyed.join_all(others, values, TEN_JOIN_ALL, joined)
        return sorted(str(topic) for source in builder.build().sources() for topic in source.topics)

    assert program(StreamJoined(name="j")) == ["j-this-repartition", "o", "p", "s"]
    assert program(StreamJoined(name="j"), times=2) == ["j-s-repartition", "j-this-repartition", "o", "p"]
    (topic, *rest) = program(None, times=2)
    assert topic.startswith("KSTREAM-REPARTITION-o-")
    assert rest == ["o", "p"]


def test_sides_must_have_one_key_serde():
    builder = StreamsBuilder()
    strings, more, longs = builder.stream("s"), builder.stream("m"), builder.stream("l", Consumed(Int64Serde()))
    with pytest.raises(TopologyError, match=r"keyed by StringSerde\(\) and .* by Int64Serde\(\)"):
        strings.join_all({"more": more, "longs": longs}, values, TEN_JOIN_ALL)
    # Re-keyed ones take the serde of the one that is not.
    others = {"more": more.select_key(len), "longs": longs}
    strings.select_key(len).join_all(others, values, TEN_JOIN_ALL, StreamJoined(name="j"))
    topology = builder.build()
    assert {store.key_serde for store in topology.stores.values()} == {Int64Serde()}
    assert topology.nodes["j-this-join"].input_key_serde == Int64Serde()


def test_value_serdes_by_name():
    builder = StreamsBuilder()
    one, two, three = (builder.stream(topic).map_values(str) for topic in "abc")
    how = StreamJoined(name="j")
    one.join_all({"two": two, "three": three}, values, TEN_JOIN_ALL, how, value_serdes={"two": StringSerde()})
    stores = builder.build().stores.values()
    assert [store.value_serde for store in stores] == [JsonSerde(), StringSerde(), JsonSerde()]


def test_misuse():
    builder = StreamsBuilder()
    stream, a, b, table = builder.stream("o"), builder.stream("a"), builder.stream("b"), builder.table("t")
    two = {"a": a, "b": b}
    for windows in (TEN_JOIN_ALL.before(0), TEN_JOIN_ALL.after(11)):
        with pytest.raises(TopologyError, match=r"needs symmetric JoinWindows: .*'before' .*'after' .*must be equal"):
            stream.join_all(two, values, windows)
    with pytest.raises(TopologyError, match="needs JoinWindows, not 10"):
        stream.join_all(two, values, 10)
    for others in ({}, {"a": a}, {f"n{number}": a for number in range(9)}, [a, b], a):
        with pytest.raises(TopologyError, match=r"takes 2 to 8 other streams by name, .*join\(\.\.\.\)"):
            stream.join_all(others, values, TEN_JOIN_ALL)
    with pytest.raises(TopologyError, match=r"Two streams of join_all are called 'a'.*this='...'"):
        stream.join_all(two, values, TEN_JOIN_ALL, this="a")
    for name in ("no spaces", 7):
        with pytest.raises(TopologyError, match="cannot be the name"):
            stream.join_all({"a": a, name: b}, values, TEN_JOIN_ALL)
    for joined in (table, builder.global_table("g")):
        with pytest.raises(TopologyError, match=r"'b' is a \w*KTable: join the result with it"):
            stream.join_all({"a": a, "b": joined}, values, TEN_JOIN_ALL)
    with pytest.raises(TopologyError, match="another StreamsBuilder"):
        stream.join_all({"a": a, "b": StreamsBuilder().stream("b")}, values, TEN_JOIN_ALL)
    with pytest.raises(TopologyError, match=r"joiner .*must take \(values\) or \(key, values\)"):
        stream.join_all(two, lambda x, y, z: x, TEN_JOIN_ALL)
    with pytest.raises(TopologyError, match=r"value_serdes=.*not in StreamJoined"):
        stream.join_all(two, values, TEN_JOIN_ALL, StreamJoined(other_value_serde=StringSerde()))
    with pytest.raises(TopologyError, match="names 'c', but the streams are called 'this', 'a', 'b'"):
        stream.join_all(two, values, TEN_JOIN_ALL, value_serdes={"c": StringSerde()})
    with pytest.raises(TopologyError, match=r"takes StreamJoined\(...\) here, not Joined"):
        stream.join_all(two, values, TEN_JOIN_ALL, Joined(name="name"))
    # What was refused has left nothing behind.
    stream.join_all(two, values, TEN_JOIN_ALL)
    assert len(builder.build().stores) == 3


@pytest.mark.parametrize(
    ("kind", "stores"),
    [
        ("join", {"s-this-join-store", "s-other-join-store"}),
        ("left_join", {"s-this-join-store", "s-outer-other-join-store", "s-left-shared-join-store"}),
        ("outer_join", {"s-outer-this-join-store", "s-outer-other-join-store", "s-outer-shared-join-store"}),
    ],
)
def test_stores_of_joins_have_kafka_streams_names(kind, stores):
    """`KStreamImplJoin` of Kafka Streams 4.3.1."""
    builder = StreamsBuilder()
    join = getattr(builder.stream("l"), kind)
    join(builder.stream("r"), lambda a, b: (a, b), TEN, StreamJoined(name="j", store_name="s")).to("out")
    assert set(builder.build().stores) == stores
