"""Generated names stay when operators come and go; where two would be equal, the user is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from streams import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyError,
    agg,
)
from streams.errors import TopologyMismatchError
from streams.testing import TopologyTestDriver
from streams.topology.graph import InternalTopic, ProcessorNode
from streams.topology.manifest import manifest
from streams.topology.plan import SubTopology, build_plan, check_explicit_names
from streams.topology.planning.sub_topologies import check_one_name
from streams.topology.topology import Topology

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


# --- What lasts of a sub-topology has a name that the order of the program has no part in.


def orders(builder: StreamsBuilder):
    return builder.stream("orders")


def people(builder: StreamsBuilder):
    return builder.table("people", materialized=Materialized(name="people"))


def joined(orders_first: bool) -> Topology:
    builder = StreamsBuilder()
    if orders_first:
        stream, table = orders(builder), people(builder)
    else:
        table, stream = people(builder), orders(builder)
    stream.join(table, lambda order, person: order).group_by_key().count("n", Materialized(name="counts"))
    return builder.build()


def two_tables(left_first: bool) -> Topology:
    """Two tables with caches, whose updates come to one topic: in which order they are flushed shows there."""
    builder, made = StreamsBuilder(), {}
    for topic in ("z", "a") if left_first else ("a", "z"):
        made[topic] = builder.stream(topic).group_by_key(Grouped(name=topic)).count(topic, Materialized(name=topic))
    made["z"].to_stream().merge(made["a"].to_stream()).to("out")
    return builder.build()


def only(topology: Topology, known: Sequence[str] = ()) -> SubTopology:
    (sub,) = build_plan(topology, "app", known).sub_topologies
    return sub


def shape(sub: SubTopology) -> tuple[object, ...]:
    entries = [(entry.index, entry.node, entry.from_node, entry.rows_of, entry.fields) for entry in sub.entries]
    return sub.name, sub.topology_hash, list(sub.nodes), list(sub.stores), sub.topics, entries


def merged(topics: list[str]) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topics, Consumed(name="s")).group_by_key().count("n", Materialized(name="counts"))
    return builder.build()


def columns(first: str) -> Topology:
    """Two entries of columns, which are processed ahead of other rows, in the order of the entries."""
    builder = StreamsBuilder()
    for topic in sorted(("a", "b"), reverse=first == "b"):
        grouped = builder.stream(topic).group_by_key()
        grouped.aggregate(n=agg.sum("x"), materialized=Materialized(name=f"sum-{topic}")).to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize(
    "program", [joined, two_tables, lambda swapped: merged(["b", "a", "c"] if swapped else ["c", "b", "a"])]
)
def test_swapped_declarations_change_nothing(program: Callable[[bool], Topology]) -> None:
    assert shape(only(program(True))) == shape(only(program(False)))
    assert manifest(program(True))["sub_topologies"] == manifest(program(False))["sub_topologies"]


def test_each_sub_topology_keeps_its_name() -> None:
    names = [{sub.name for sub in build_plan(columns(first), "app").sub_topologies} for first in "ab"]
    assert names == [{"a", "b"}, {"a", "b"}]


def test_results_come_in_the_same_order() -> None:
    def results(left_first: bool) -> list[tuple[str, int]]:
        with TopologyTestDriver(two_tables(left_first)) as driver:
            with driver.batch():
                for topic in ("z", "a"):
                    driver.create_input_topic(topic).pipe_input(topic, 1, 5)
            return driver.create_output_topic("out").read_key_values_to_list()

    assert results(True) == results(False)


def test_the_name_is_the_smallest_topic_fit_for_a_topic() -> None:
    assert only(joined(True)).name == "orders"
    assert only(merged(["c", "b"])).name == "b"
    builder = StreamsBuilder()
    builder.stream(re.compile("x (a|b)")).merge(builder.stream("z")).to("out")
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    assert sub.name == "x-a-b-pattern"
    builder = StreamsBuilder()
    counts = builder.stream("z").group_by_key().count("n").to_stream()
    counts.group_by(lambda v: v, Grouped(name="again")).count("m")
    assert [sub.name for sub in build_plan(builder.build(), "app").sub_topologies] == ["z", "again-repartition"]


def test_a_name_that_has_commits_stays() -> None:
    assert only(joined(True), ["unrelated", "people"]).name == "people"
    known = ["people", "orders"]
    assert [only(joined(True), known[::step]).name for step in (1, -1)] == known
    with pytest.raises(TopologyMismatchError, match=r"orders, people.*2 that are called after them"):
        check_one_name(joined(True).sources(), known)
    check_one_name(joined(True).sources(), ["orders", "unrelated"])


@pytest.mark.parametrize("topic", ["app-in-commits", "app-s-changelog"])
@pytest.mark.parametrize("use", [lambda b, topic: b.stream("in").to(topic), lambda b, topic: b.global_table(topic)])
def test_a_program_cannot_use_internal_topics(topic: str, use: Callable[[StreamsBuilder, str], object]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count("n", Materialized(name="s"))
    use(builder, topic)
    with pytest.raises(TopologyError, match=f"the topic '{topic}', the c.* of this application"):
        build_plan(builder.build(), "app")


@pytest.mark.parametrize("name", [".", "..", "..."])
def test_an_application_id_of_dots_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="dots alone mean other folders"):
        build_plan(joined(True), name)


def test_internal_topics_are_recognised_by_name() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count("n", Materialized(name="s")).to_stream()
    counts.group_by(lambda v: v, Grouped(name="again")).count("m", Materialized(name="t", logging=False))
    assert set(build_plan(builder.build(), "app").internal_topics) == {
        "app-in-commits",
        "app-s-changelog",
        "app-again-repartition",
        "app-again-repartition-commits",
    }


# --- `ensure_explicit_naming` (KIP-1111): no store and no repartition topic under a generated name.


WINDOWS = TimeWindows.of_size_with_no_grace(10)


def add(a, b):
    return a


def counted(stream):
    return stream.group_by_key().count(materialized=Materialized(name="counts")).to_stream()


# What makes each kind of store or topic, without a name and with one.
UNNAMED = {
    "aggregate": lambda b, s: s.group_by_key().count(),
    "windows": lambda b, s: s.group_by_key().windowed_by(WINDOWS).reduce(add),
    "sessions": lambda b, s: s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(),
    "table": lambda b, s: s.join(b.table("t"), add),
    "global table": lambda b, s: b.global_table("t"),
    "to_table": lambda b, s: s.join(b.stream("t").to_table(), add),
    "join": lambda b, s: s.join(b.stream("other"), add, TEN),
    "outer join": lambda b, s: s.outer_join(b.stream("other"), add, TEN),
    "join of several": lambda b, s: s.join_all({"b": b.stream("other"), "C.1": s}, add, TEN),
    "deduplicate": lambda b, s: s.deduplicate(10),
    "suppress": lambda b, s: (
        s.group_by_key()
        .windowed_by(WINDOWS)
        .count(materialized=Materialized(name="w"))
        .suppress(Suppressed.until_window_closes())
    ),
    "repartition": lambda b, s: s.repartition(),
    "grouping": lambda b, s: counted(s).group_by(lambda v: v).reduce(add, materialized=Materialized(name="again")),
    "grace": lambda b, s: s.join(
        b.table("t", materialized=Materialized(name="t", history_retention=100)), add, joined=Joined(grace=5)
    ),
    "foreign key": lambda b, s: b.table("l", materialized=Materialized(name="l")).join(
        b.table("r", materialized=Materialized(name="r")), add, foreign_key=lambda k, v: v
    ),
    "table grouping": lambda b, s: (
        b.table("l", materialized=Materialized(name="l"))
        .group_by(lambda k, v: (v, v))
        .count(materialized=Materialized(name="c"))
    ),
}
NAMED = {
    "aggregate": lambda b, s: s.group_by_key().count(materialized=Materialized(name="n")),
    "node": lambda b, s: s.group_by_key().count(named="n"),
    "windows": lambda b, s: s.group_by_key().windowed_by(WINDOWS).reduce(add, materialized=Materialized(name="n")),
    "table": lambda b, s: b.table("t", materialized=Materialized(name="n")),
    "global table": lambda b, s: b.global_table("t", materialized=Materialized(name="n")),
    "to_table": lambda b, s: s.to_table(Materialized(name="n")),
    "join": lambda b, s: s.outer_join(b.stream("other"), add, TEN, StreamJoined(name="n")),
    "join of several": lambda b, s: s.join_all({"b": b.stream("other"), "c": s}, add, TEN, StreamJoined(name="n")),
    "deduplicate": lambda b, s: s.deduplicate(10, named="n"),
    "suppress": lambda b, s: (
        s.group_by_key()
        .windowed_by(WINDOWS)
        .count(materialized=Materialized(name="w"))
        .suppress(Suppressed.until_window_closes(), "n")
    ),
    "repartition": lambda b, s: s.repartition(Repartitioned(name="n")),
    "grouping": lambda b, s: (
        counted(s).group_by(lambda v: v, Grouped(name="n")).reduce(add, materialized=Materialized(name="again"))
    ),
    "grace": lambda b, s: s.join(
        b.table("t", materialized=Materialized(name="t", history_retention=100)), add, joined=Joined(name="n", grace=5)
    ),
    "foreign key": lambda b, s: b.table("l", materialized=Materialized(name="l")).join(
        b.table("r", materialized=Materialized(name="r")), add, foreign_key=lambda k, v: v, named="n"
    ),
    "stateless": lambda b, s: s.filter(lambda v: v).map_values(lambda v: v).to("out"),
}


def build(program, **settings):
    builder = StreamsBuilder(**settings)
    program(builder, builder.stream("in"))
    return builder.build()


@pytest.mark.parametrize("what", UNNAMED)
def test_generated_names_are_refused(what):
    topology = build(UNNAMED[what])
    for attempt in (lambda: build(UNNAMED[what], ensure_explicit_naming=True), lambda: check_explicit_names(topology)):
        with pytest.raises(TopologyError, match=r"ensure_explicit_naming is on, but names were generated\. .*name="):
            attempt()


@pytest.mark.parametrize("what", NAMED)
def test_given_names_pass(what):
    assert build(NAMED[what], ensure_explicit_naming=True)


def test_all_are_named_at_once():
    with pytest.raises(TopologyError) as error:
        build(lambda b, s: (UNNAMED["aggregate"](b, s), UNNAMED["repartition"](b, s)), ensure_explicit_naming=True)
    assert "stores: 'KSTREAM-AGGREGATE-STATE-STORE-in-" in str(error.value)
    assert "repartition topics: 'KSTREAM-REPARTITION-in-" in str(error.value)


@pytest.mark.parametrize("kind", ["table", "global_table"])
def test_equal_look_ups_are_numbered_and_names_below_do_not_depend_on_their_order(kind):
    def stores(counted):
        builder = StreamsBuilder(default_value_serde=StringSerde())
        stream, table = builder.stream("in"), getattr(builder, kind)("table", materialized=Materialized("rows"))
        key = [lambda key, value: key] if kind == "global_table" else []
        joined = [
            stream.join(table, *key, joiner) for joiner in (lambda v, row: f"{v}{row}a", lambda v, row: f"{v}{row}b")
        ]
        for name, one in zip("ab", joined, strict=True):
            one.to(f"out-{name}")
        joined[counted].group_by_key().count()
        with TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("table").pipe_input("k", "1")
            driver.create_input_topic("in").pipe_input("k", "x")
            assert [driver.create_output_topic(f"out-{name}").read_value() for name in "ab"] == ["x1a", "x1b"]
            return set(driver.get_all_state_stores())

    assert stores(counted=0) == stores(counted=1)
