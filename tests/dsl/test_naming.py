"""Generated names stay when operators come and go; where two would be equal, the user is asked."""

import pytest

from streams import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    agg,
)
from streams.topology.graph import InternalTopic, ProcessorNode
from streams.topology.plan import build_plan

TEN = JoinWindows.of_time_difference_with_no_grace(10)


def program(more):
    """A topology with every kind of state; `more` puts stateless operators in between."""
    builder = StreamsBuilder()
    views, clicks = more(builder.stream("views")), more(builder.stream("clicks"))
    users = builder.table("users")
    joined = more(more(views).join(more(clicks), lambda a, b: a, TEN))
    seen = more(joined.select_key(lambda v: v).left_join(users, lambda a, b: a))
    counts = more(seen).group_by(lambda v: v).count()
    more(counts.to_stream()).to("counts")
    more(clicks).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).aggregate(n=agg.count())
    more(clicks).to_table().to_stream()
    return builder.build()


def lasting(topology):
    """Names under which something is kept: stores, stateful nodes, repartition topics."""
    stateful = [node.name for node in topology.nodes.values() if isinstance(node, ProcessorNode) and not node.stateless]
    topics = [str(t) for source in topology.sources() for t in source.topics if isinstance(t, InternalTopic)]
    return sorted(stateful), sorted(topology.stores), sorted(topics)


def state_hashes(topology):
    return {sub.name: sub.topology_hash for sub in build_plan(topology, "app").sub_topologies}


@pytest.mark.parametrize(
    "more",
    [
        lambda stream: stream.filter(lambda v: v),
        lambda stream: stream.peek(lambda v: None).map_values(lambda v: v).filter_not(lambda v: v),
        lambda stream: stream.split().branch(lambda v: v, Branched("all")).no_default_branch()["all"],
        lambda stream: stream.merge(stream.filter(lambda v: v)),
    ],
)
def test_inserted_operators_rename_nothing_that_lasts(more):
    plain, changed = program(lambda stream: stream), program(more)
    assert len(changed.nodes) > len(plain.nodes)
    assert lasting(changed) == lasting(plain)
    assert state_hashes(changed) == state_hashes(plain)


def test_an_added_stateful_operator_renames_no_other():
    def build(extra):
        builder = StreamsBuilder()
        stream = builder.stream("in")
        if extra:
            stream.group_by_key().reduce(lambda a, b: a)
        stream.group_by_key().count()
        return set(builder.build().stores)

    assert build(False) < build(True)


def test_generated_names_are_pinned():
    builder = StreamsBuilder()
    stream = builder.stream("flights")
    stream.group_by_key().count()
    stream.group_by(lambda v: v).windowed_by(TimeWindows.of_size_with_no_grace(60_000)).count()
    # Whoever changes these loses the state of every running application.
    assert list(builder.build().stores) == [
        "KSTREAM-AGGREGATE-STATE-STORE-flights-47f398e3",
        "KSTREAM-AGGREGATE-STATE-STORE-flights-5f6dd072",
    ]


def test_windows_and_aggregates_are_part_of_a_name():
    def name(size, **built_in):
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_with_no_grace(size)
        return builder.stream("in").group_by_key().windowed_by(windows).aggregate(**built_in).store_name

    names = [name(10, n=agg.count()), name(20, n=agg.count()), name(10, m=agg.count()), name(10, n=agg.sum("f"))]
    assert len(set(names)) == 4
    assert name(10, n=agg.count()) == names[0]


def test_equal_generated_names_ask_for_one():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.filter(lambda v: v > 1).group_by_key().count()
    with pytest.raises(TopologyError, match=r"Two stores are called .*Materialized\(name=...\)"):
        stream.filter(lambda v: v > 2).group_by_key().count()
    stream.filter(lambda v: v > 2).group_by_key().count(materialized=Materialized(name="over-two"))


def test_equal_explicit_names_are_refused():
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(name="source"))
    stream.group_by_key().count(materialized=Materialized(name="counts"))
    with pytest.raises(TopologyError, match="Two stores are called 'counts'"):
        stream.group_by_key().count(materialized=Materialized(name="counts"))
    with pytest.raises(TopologyError, match="Two nodes are called 'source'"):
        stream.filter(lambda v: v, "source")


def rekeyed(builder):
    """A stream re-keyed behind a stateful operator: whoever needs its key needs a repartition topic."""
    return builder.stream("in").group_by_key().count().to_stream().select_key(str)


def internal(builder):
    return [str(t) for source in builder.build().sources() for t in source.topics if isinstance(t, InternalTopic)]


def test_a_repartition_topic_is_shared():
    builder = StreamsBuilder()
    stream = rekeyed(builder)
    groups = stream.group_by_key()
    groups.reduce(lambda a, b: a)
    groups.windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    stream.join(builder.table("t"), lambda a, b: a)
    assert len(internal(builder)) == 1


def test_repartition_topics_are_named_by_whoever_needs_them():
    builder = StreamsBuilder()
    stream = rekeyed(builder)
    stream.group_by_key(Grouped(name="g")).reduce(lambda a, b: a)
    stream.join(builder.table("t"), lambda a, b: a, joined=Joined(name="j"))
    stream.join(stream, lambda a, b: a, TEN, StreamJoined(name="s"))
    stream.to_table(named="latest")
    assert internal(builder) == [
        "g-repartition",
        "j-repartition",
        "s-left-repartition",
        "s-right-repartition",
        "latest-repartition",
    ]


def test_two_repartition_topics_of_one_name_are_refused():
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count().to_stream()
    counts.group_by(lambda v: v + 1).reduce(lambda a, b: a)
    with pytest.raises(TopologyError, match=r"Two repartition topics are called .*Grouped\(name=...\)"):
        counts.group_by(lambda v: v + 2).reduce(lambda a, b: a)


def test_the_lineage_in_a_name_is_bounded():
    builder = StreamsBuilder()
    topics = [f"a-topic-with-a-long-name-{number:03}" for number in range(30)]
    name = builder.stream(topics).group_by_key().count().store_name
    assert len(name) < 110
