"""`join_all`: its stores and names, what the other parts of a topology know of it, and what it refuses."""

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
    TopologyError,
)
from streams.operators.join.stream_join_all import StreamJoinAll
from streams.topology.diff import Severity, compare, worst
from streams.topology.manifest import manifest_json
from streams.topology.plan import build_plan

TEN = JoinWindows.of_time_difference_and_grace(10, 5)


def values(joined):
    return list(joined.values())


def build(windows=TEN, names=("payment", "shipment"), topics=("p", "s"), joined=None, this="order", **consumed):
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
    stream.join_all(others, values, TEN)
    with pytest.raises(TopologyError, match=r"Two stores are called .*StreamJoined\(store_name=...\)"):
        stream.filter(lambda v: v).join_all(others, values, TEN)
    stream.join_all(others, values, TEN, StreamJoined(name="again"))


@pytest.mark.parametrize("name", ["payment", "Payment_2", "p.1"])
def test_explicit_naming(name):
    def program(joined):
        builder = StreamsBuilder(ensure_explicit_naming=True)
        streams = [builder.stream(topic) for topic in "ops"]
        streams[0].join_all({name: streams[1], "shipment": streams[2]}, values, TEN, joined)
        return builder.build()

    with pytest.raises(TopologyError, match=rf"-{name}-join-store'.*name them with .*StreamJoined\(name=...\)"):
        program(None)
    assert f"j-{name}-join-store" in program(StreamJoined(name="j")).stores


DIFFERENT = {
    "nothing": ({}, Severity.SAFE, None),
    "another order": ({"names": ("shipment", "payment"), "topics": ("s", "p")}, Severity.SAFE, None),
    "another window": (
        {"windows": JoinWindows.of_time_difference_and_grace(12, 5)},
        Severity.NEEDS_MIGRATION,
        "difference_ms 10 -> 12",
    ),
    "a further stream": (
        {"names": ("payment", "shipment", "more"), "topics": ("p", "s", "m")},
        Severity.NEEDS_MIGRATION,
        "j-more-join",
    ),
    "another name": ({"names": ("paid", "shipment")}, Severity.LOSES_STATE, "j-payment-join-store"),
    "another topic": ({"topics": ("p2", "s")}, Severity.NEEDS_MIGRATION, "p2"),
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
    assert (hashes[0] == hashes[1]) is (severity is Severity.SAFE)


def test_repartition_topics_are_named_after_the_join():
    def program(joined, times=1):
        builder = StreamsBuilder()
        counts = builder.stream("o").group_by_key(Grouped(name="g")).count(materialized=Materialized(name="c"))
        rekeyed = counts.to_stream().select_key(lambda key, value: key)
        others = {"p": builder.stream("p"), "s": rekeyed if times == 2 else builder.stream("s")}
        rekeyed.join_all(others, values, TEN, joined)
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
        strings.join_all({"more": more, "longs": longs}, values, TEN)
    # Re-keyed ones take the serde of the one that is not.
    others = {"more": more.select_key(len), "longs": longs}
    strings.select_key(len).join_all(others, values, TEN, StreamJoined(name="j"))
    topology = builder.build()
    assert {store.key_serde for store in topology.stores.values()} == {Int64Serde()}
    assert topology.nodes["j-this-join"].input_key_serde == Int64Serde()


def test_value_serdes_by_name():
    builder = StreamsBuilder()
    one, two, three = (builder.stream(topic).map_values(str) for topic in "abc")
    how = StreamJoined(name="j")
    one.join_all({"two": two, "three": three}, values, TEN, how, value_serdes={"two": StringSerde()})
    stores = builder.build().stores.values()
    assert [store.value_serde for store in stores] == [JsonSerde(), StringSerde(), JsonSerde()]


def test_misuse():
    builder = StreamsBuilder()
    stream, a, b, table = builder.stream("o"), builder.stream("a"), builder.stream("b"), builder.table("t")
    two = {"a": a, "b": b}
    for windows in (TEN.before(0), TEN.after(11)):
        with pytest.raises(TopologyError, match=r"needs symmetric JoinWindows: .*'before' .*'after' .*must be equal"):
            stream.join_all(two, values, windows)
    with pytest.raises(TopologyError, match="needs JoinWindows, not 10"):
        stream.join_all(two, values, 10)
    for others in ({}, {"a": a}, {f"n{number}": a for number in range(9)}, [a, b], a):
        with pytest.raises(TopologyError, match=r"takes 2 to 8 other streams by name, .*join\(\.\.\.\)"):
            stream.join_all(others, values, TEN)
    with pytest.raises(TopologyError, match=r"Two streams of join_all are called 'a'.*this='...'"):
        stream.join_all(two, values, TEN, this="a")
    for name in ("no spaces", 7):
        with pytest.raises(TopologyError, match="cannot be the name"):
            stream.join_all({"a": a, name: b}, values, TEN)
    for joined in (table, builder.global_table("g")):
        with pytest.raises(TopologyError, match=r"'b' is a \w*KTable: join the result with it"):
            stream.join_all({"a": a, "b": joined}, values, TEN)
    with pytest.raises(TopologyError, match="another StreamsBuilder"):
        stream.join_all({"a": a, "b": StreamsBuilder().stream("b")}, values, TEN)
    with pytest.raises(TopologyError, match=r"joiner .*must take \(values\) or \(key, values\)"):
        stream.join_all(two, lambda x, y, z: x, TEN)
    with pytest.raises(TopologyError, match=r"value_serdes=.*not in StreamJoined"):
        stream.join_all(two, values, TEN, StreamJoined(other_value_serde=StringSerde()))
    with pytest.raises(TopologyError, match="names 'c', but the streams are called 'this', 'a', 'b'"):
        stream.join_all(two, values, TEN, value_serdes={"c": StringSerde()})
    with pytest.raises(TopologyError, match=r"takes StreamJoined\(...\) here, not Joined"):
        stream.join_all(two, values, TEN, Joined(name="name"))
    # What was refused has left nothing behind.
    stream.join_all(two, values, TEN)
    assert len(builder.build().stores) == 3
