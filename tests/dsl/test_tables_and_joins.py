"""Tables and when they get a store; joins, their stores, and the check that both sides lie in the same tasks."""

import pytest

from state.stores.spec import StoreKind
from streams import (
    Consumed,
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
from streams.model.waiting import LEFT, RIGHT
from streams.operators.join.options import JoinSide

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
    with pytest.raises(TopologyError, match="is no stream or table"):
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
    builder, kept = StreamsBuilder(), Materialized("s", StringSerde(), Int64Serde())
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
