"""The plan: where a topology is cut, what runs in the readers, and what crosses over to the tasks and how."""

from __future__ import annotations

import ast
import dataclasses
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle

from streams import (
    CalendarWindows,
    Consumed,
    EmitStrategy,
    Grouped,
    Int64Serde,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Windows,
    agg,
)
from streams.application.store_rows import view_of, window_ends
from streams.topology.node_kind import NodeKind
from streams.topology.plan import build_plan
from streams.topology.specs.base import NodeSpec
from tests.dsl.identities import CASES, cases, identity, recorded

TEN = JoinWindows.of_time_difference_with_no_grace(10)


def plan(builder):
    return build_plan(builder.build(), "app")


def only(builder):
    (sub,) = plan(builder).sub_topologies
    return sub


def shape(sub):
    return [(entry.from_node, entry.node, entry.transport) for entry in sub.entries]


def test_rekeying_in_the_head_needs_no_topic():
    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda v: v, "f").select_key(lambda v: v, "k")
    stream.group_by_key(Grouped(key_serde=Int64Serde())).count("count").to_stream("changes").to(
        "out", Produced(name="o")
    )
    sub = only(builder)
    assert plan(builder).repartition_topics == {}
    assert sub.head == {"f", "k"}
    assert shape(sub) == [("k", "count", "object")]
    assert sub.entries[0].key_serde == Int64Serde()
    assert [source.topics for source in sub.sources] == [("in",)]
    assert sub.topics == ("in",)
    assert sub.children("count") == ("changes",)


def test_rekeying_behind_state_cuts():
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count("count").to_stream("changes")
    counts.group_by(lambda v: v, Grouped(name="again")).reduce(lambda a, b: a, "reduce").to_stream("end").to("out")
    first, second = plan(builder).sub_topologies
    assert plan(builder).repartition_topics == {"app-again-repartition": None}
    assert (first.index, first.name, first.topics) == (0, "in", ("in",))
    assert (second.index, second.name, second.topics) == (1, "again-repartition", ("app-again-repartition",))
    assert [sink.topic for sink in first.sinks] == ["app-again-repartition"]
    assert first.head == second.head == frozenset()
    assert shape(second) == [("again-repartition-source", "reduce", "raw")]
    assert set(first.stores) | set(second.stores) == set(builder.build().stores)


def test_an_unused_key_may_be_dropped():
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count().to_stream()
    counts.select_key(lambda v: v).to("out")
    counts.map_values(lambda v: v).group_by_key().reduce(lambda a, b: a)
    assert plan(builder).repartition_topics == {}
    assert len(plan(builder).sub_topologies) == 1


def test_explicit_repartition_always_cuts():
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(name="r", partitions=3)).group_by_key().count()
    assert plan(builder).repartition_topics == {"app-r-repartition": 3}
    assert [sub.name for sub in plan(builder).sub_topologies] == ["in", "r-repartition"]
    assert shape(plan(builder).sub_topologies[0]) == [("KSTREAM-SOURCE-in", "r-repartition-sink", "raw")]


def test_sources_stores_and_nodes_connect():
    builder = StreamsBuilder()
    table = builder.table("t")
    builder.stream("a").join(table, lambda a, b: a)  # by the store
    builder.stream("b").merge(builder.stream("c")).to("out")  # by a node
    builder.stream("d").to("one")  # alone
    assert [sub.topics for sub in plan(builder).sub_topologies] == [("a", "t"), ("b", "c"), ("d",)]


def test_transport():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    groups = stream.group_by_key()
    groups.aggregate(s=agg.sum("x"), m=agg.max("y.z"), materialized=Materialized(name="columns"))
    groups.count("rows")
    stream.filter(lambda v: v, "f").group_by_key().sum("x", "behind-a-head")
    stream.to("copy", Produced(name="copy"))
    builder.stream("text", Consumed(value_serde=StringSerde())).group_by_key().count("not-json")
    entries = {entry.node: entry for sub in plan(builder).sub_topologies for entry in sub.entries}
    assert {node: entry.transport for node, entry in entries.items()} == {
        "KSTREAM-AGGREGATE-columns": "columns",
        "rows": "columns",
        "behind-a-head": "object",
        "copy": "raw",
        "not-json": "raw",
    }
    assert entries["KSTREAM-AGGREGATE-columns"].fields == ("x", "y.z")
    assert entries["rows"].source == "KSTREAM-SOURCE-in"
    assert entries["behind-a-head"].source is None
    first = plan(builder).sub_topologies[0]
    assert [entry.index for entry in first.entries] == list(range(len(first.entries)))


def test_keys_cross_over_by_the_serde_asked_for_further_down():
    builder = StreamsBuilder()
    rekeyed = builder.stream("a").select_key(lambda v: v, "k")
    counted = builder.stream("b", Consumed(key_serde=Int64Serde())).group_by_key().count("c").to_stream("s")
    merged = counted.merge(rekeyed, "m").filter(lambda v: v, "f")
    merged.group_by_key(Grouped(key_serde=Int64Serde())).reduce(lambda a, b: a, "r")
    rekeyed.to("out", Produced(name="sink", key_serde=Int64Serde()))
    rekeyed.to("out2", Produced(name="sink2"))
    serdes = {(entry.from_node, entry.node): entry.key_serde for entry in only(builder).entries}
    assert serdes == {
        ("KSTREAM-SOURCE-b", "c"): Int64Serde(),
        ("k", "m"): Int64Serde(),
        ("k", "sink"): Int64Serde(),
        ("k", "sink2"): StringSerde(),
    }


def test_only_what_has_a_stateless_past_is_head():
    builder = StreamsBuilder()
    stream = builder.stream("in").map_values(lambda v: v, "head")
    stream.group_by_key().count("state").to_stream("behind").merge(stream, "both").to("out", Produced(name="o"))
    sub = only(builder)
    assert sub.head == {"head"}
    assert shape(sub) == [("head", "state", "object"), ("head", "both", "object")]


def test_a_plan_travels_pickled():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda v: v["x"] > 1).group_by_key().count().to_stream().to("out")
    made = plan(builder)
    back = pickle.loads(cloudpickle.dumps(made))
    assert back.sub_topologies[0].topology_hash == made.sub_topologies[0].topology_hash
    assert list(back.sub_topologies[0].nodes) == list(made.sub_topologies[0].nodes)


def hash_of(size=10, aggregates=None, materialized=None, threshold=1, sink="out", topic="in"):
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(size)
    groups = builder.stream(topic).filter(lambda v: v > threshold).group_by_key().windowed_by(windows)
    table = groups.aggregate(**(aggregates or {"n": agg.count()}), materialized=materialized or Materialized(name="s"))
    table.to_stream().to(sink)
    return only(builder).topology_hash


def test_the_hash_is_of_what_gives_state_its_meaning():
    base = hash_of()
    assert hash_of(threshold=2, sink="elsewhere") == base
    assert hash_of(materialized=Materialized(name="s", caching=False, retention=99)) == base
    changed = [
        hash_of(size=20),
        hash_of(aggregates={"n": agg.sum("x")}),
        hash_of(materialized=Materialized(name="t")),
        hash_of(materialized=Materialized(name="s", key_serde=Int64Serde())),
        hash_of(topic="other"),
    ]
    assert len({base, *changed}) == 6


def test_names_of_sub_topologies_stay_when_others_are_added():
    def names(more):
        builder = StreamsBuilder()
        if more:
            builder.stream("earlier").to("x")
        builder.stream("in").to("out")
        return [sub.name for sub in plan(builder).sub_topologies]

    assert names(False) == ["in"]
    assert names(True) == ["earlier", "in"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.to("app-s-changelog"), "the changelog of the store 's' of this application"),
        (lambda s: s.to("app-r-repartition"), "a repartition topic of this application"),
    ],
)
def test_internal_topics_belong_to_the_engine(build, message):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.repartition(Repartitioned(name="r")).group_by_key().count(materialized=Materialized(name="s"))
    build(stream)
    with pytest.raises(TopologyError, match=message):
        plan(builder)


def test_reading_a_changelog_of_ones_own_is_refused():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized=Materialized(name="s"))
    builder.stream("app-s-changelog").to("out")
    with pytest.raises(TopologyError, match="The source 'KSTREAM-SOURCE-app-s-changelog' reads the topic"):
        plan(builder)


def test_an_unlogged_store_has_no_changelog():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count(materialized=Materialized(name="s", logging=False))
    stream.to("app-s-changelog")
    plan(builder)


def test_application_ids_are_fit_for_topics():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(TopologyError, match="application id 'my app'"):
        build_plan(builder.build(), "my app")


def test_a_topic_read_by_two_sources_is_refused():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    topology = builder.build()
    topology.add(replace(topology.nodes["KSTREAM-SOURCE-in"], name="again"))
    with pytest.raises(TopologyError, match="is read by 'KSTREAM-SOURCE-in' and by 'again'"):
        build_plan(topology, "app")


def test_self_join_enters_twice():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.join(stream, lambda a, b: a, TEN, StreamJoined(name="j"))
    assert shape(only(builder)) == [
        ("KSTREAM-SOURCE-in", "j-this-join", "raw"),
        ("KSTREAM-SOURCE-in", "j-other-join", "raw"),
    ]


# --- A node says what it is: nothing about it is read back from names, texts or signatures.


STREAMS = Path(__file__).parent.parent.parent / "streams"
SOURCES = sorted(STREAMS.rglob("*.py"))
KINDS = {kind.value for kind in NodeKind}


def specs(of: type[NodeSpec]) -> set[type[NodeSpec]]:
    return {spec for one in of.__subclasses__() for spec in (one, *specs(one))}


def literals(file: Path) -> Iterator[ast.Constant]:
    return (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant))


@pytest.mark.slow
def test_the_texts_of_kinds_stand_in_the_enum_alone():
    found = [
        f"{file.relative_to(STREAMS)}:{literal.lineno} {literal.value}"
        for file in SOURCES
        if file.name != "node_kind.py"
        for literal in literals(file)
        if literal.value in KINDS
    ]
    assert found == []


@pytest.mark.parametrize(
    "folder",
    [
        "application",
        "dsl/nodes",
        "topology",
        *(f"operators/{room}" for room in ("aggregate", "join", "stores", "table")),
    ],
)
def test_no_meaning_is_read_from_signatures(folder):
    """What a user gives is checked by its signature, in other folders; what the engine makes is known by its spec."""
    found = [
        f"{file.relative_to(STREAMS)}:{node.lineno}"
        for file in sorted((STREAMS / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "signature")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "signature" for alias in node.names))
    ]
    assert found == []


def test_a_kind_is_written_as_its_text():
    assert f"{NodeKind.KSTREAM_KEY_SELECT}-in" == "KSTREAM-KEY-SELECT-in"


class Thirds(Windows):
    """Windows of one's own."""

    size_ms = 3
    grace_ms = 0

    def __repr__(self):
        return "Thirds()"

    def starts(self, timestamp):
        return [timestamp // 3 * 3]

    def end_of(self, start):
        return start + 3


@pytest.mark.parametrize(
    ("windows", "start", "end"),
    [
        (TimeWindows.of_size_with_no_grace(10), 20, 30),
        (TimeWindows.of_size_with_no_grace(10).advance_by(4), 16, 26),
        (SlidingWindows.of_time_difference_with_no_grace(10), 7, 17),
        (CalendarWindows.of("day", "Europe/Berlin"), 1_774_738_800_000, 1_774_738_800_000 + 23 * 3_600_000),
        (UnlimitedWindows(5), 5, 2**63 - 1),
        (Thirds(), 6, 9),
    ],
)
def test_the_ends_of_windows_are_known_of_their_store(windows, start, end):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).count(materialized=Materialized(name="counts"))
    builder.stream("in").group_by_key().count(materialized=Materialized(name="all"))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    ends = window_ends(sub, "counts")
    assert ends is not None
    assert ends(start) == pickle.loads(pickle.dumps(ends))(start) == end
    assert window_ends(sub, "all") is None


class Idle(Processor):
    def process(self, record):
        """Does nothing."""


def test_the_windows_of_a_processors_store_end_after_their_size():
    builder = StreamsBuilder()
    serdes = {"key_serde": StringSerde(), "value_serde": Int64Serde()}
    builder.add_state_store(Stores.window_store("sized", retention=100, window_size=10, **serdes))
    builder.add_state_store(Stores.window_store("times", retention=100, **serdes))
    builder.stream("in").process(Idle, ["sized", "times"])
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    ends = window_ends(sub, "sized")
    assert ends is not None
    assert ends(7) == 17
    assert window_ends(sub, "times") is None


def test_rows_of_built_in_aggregates_are_shown_as_their_results():
    builder = StreamsBuilder()
    group, stats = builder.stream("in").group_by_key(), {"n": agg.count(), "mean": agg.mean("x")}
    windowed = group.windowed_by(TimeWindows.of_size_with_no_grace(10))
    group.aggregate(**stats, materialized="plain")
    windowed.aggregate(**stats, materialized="windows")
    windowed.emit_strategy(EmitStrategy.on_window_close()).aggregate(**stats, materialized="closed")
    group.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).aggregate(**stats, materialized="sessions")
    group.aggregate(dict, lambda value, held: held, materialized="by-functions")
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    for store in ("plain", "windows", "closed", "sessions"):
        assert view_of(sub, store)([6, [1299, 6]]) == {"n": 6, "mean": 216.5}
    assert view_of(sub, "by-functions") is None, "the store's serde says what they are"


def test_windows_that_never_close_are_known_however_their_name_reads():
    class EndlessWindows(UnlimitedWindows):
        """Windows of a user's, whose text begins with another word."""

    table = StreamsBuilder().stream("in").group_by_key().windowed_by(EndlessWindows()).count()
    with pytest.raises(TopologyError, match="never close"):
        table.suppress(Suppressed.until_window_closes())


def test_a_record_dropped_by_a_join_comes_from_its_sides_whatever_they_are_called():
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    joined = left.join(right, lambda one, other: one, windows)
    joined.dropped("lost").to("lost")
    joined.to("out")
    topology = builder.build()
    assert [topology.nodes[name].kind for name in topology.nodes["lost"].parents] == [
        NodeKind.KSTREAM_JOINTHIS,
        NodeKind.KSTREAM_JOINOTHER,
    ]


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_names_and_hashes_stay(file):
    """State that is there already is found under them."""
    golden = recorded()
    changed = [case.name for case in cases(file) if case.name in golden and identity(case) != golden[case.name]]
    assert changed == []


@pytest.mark.parametrize(
    "spec",
    sorted(specs(NodeSpec), key=lambda spec: spec.__name__),  # type: ignore[attr-defined]
    ids=lambda spec: spec.__name__,  # type: ignore[attr-defined]
)
def test_a_spec_cannot_be_changed(spec):
    assert dataclasses.is_dataclass(spec)
    assert spec.__dataclass_params__.frozen
