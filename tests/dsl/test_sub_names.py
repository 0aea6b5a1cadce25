"""What lasts of a sub-topology has a name that the order of the program has no part in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from streams import Consumed, Grouped, Materialized, StreamsBuilder, TopologyError, agg
from streams.errors import TopologyMismatchError
from streams.testing import TopologyTestDriver
from streams.topology.manifest import manifest
from streams.topology.plan import SubTopology, build_plan
from streams.topology.planning.sub_topologies import check_one_name
from streams.topology.topology import Topology


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
    "program",
    [
        joined,
        two_tables,
        lambda swapped: merged(["b", "a", "c"] if swapped else ["c", "b", "a"]),
    ],
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
