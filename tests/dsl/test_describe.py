"""`describe()` against what Kafka Streams 4.3.1 printed for the same topology; `mermaid()`, `explain()`, drawings and reprs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from streams import (
    Branched,
    CalendarWindows,
    Consumed,
    EmitStrategy,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    KStream,
    KTable,
    Materialized,
    Processor,
    Produced,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    UuidSerde,
    WrappedProcessor,
    agg,
    col,
    fields,
)
from streams.topology.lint import Level, lint
from streams.topology.plan import build_plan

GOLDEN = Path(__file__).parent / "golden"


def test_text_of_the_same_program_in_kafka_streams():
    """Printed by Kafka Streams' own DSL, operator by operator the same program with the same names."""
    builder = StreamsBuilder()
    flights = builder.stream("flights", Consumed(name="flights-source"))
    carriers = builder.table("carriers", Consumed(name="carriers"), Materialized(name="carrier-names"))
    (
        flights.filter(lambda v: True, "late")
        .map_values(lambda v: v, "slim")
        .left_join(carriers, lambda left, right: left, Joined(name="with-carrier"))
        .to("late-flights", Produced(name="late-sink"))
    )
    (
        builder.stream(["weather"], Consumed(name="weather-source"))
        .group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(300_000))
        .count("hourly", Materialized(name="hourly-counts"))
        .to_stream("updates")
        .to("counts", Produced(name="counts-sink"))
    )
    assert builder.build().describe() == (GOLDEN / "describe_dsl.txt").read_text()


def attribution():
    builder = StreamsBuilder()
    views = builder.stream("views", Consumed(name="views-source"))
    clicks = builder.stream("clicks", Consumed(name="clicks-source"))
    (
        views.join(
            clicks,
            lambda view, click: view,
            JoinWindows.of_time_difference_with_no_grace(10),
            StreamJoined(name="attributed"),
        )
        .select_key(lambda value: value, "by-campaign")
        .group_by_key(Grouped(name="campaign"))
        .count("count", Materialized(name="per-campaign"))
        .to_stream("changes")
        .to("campaigns", Produced(name="campaigns-sink"))
    )
    return builder.build()


def test_text_of_the_same_graph_in_kafka_streams():
    """Printed by Kafka Streams' `Topology`, given the same sources, processors, stores and sinks."""
    assert attribution().describe() == (GOLDEN / "describe_repartition.txt").read_text()


def test_text_of_a_dynamic_sink_names_the_extractor():
    def by_carrier(value):
        return value

    builder = StreamsBuilder()
    builder.stream("in").to(by_carrier)
    assert "(extractor class: " in builder.build().describe()


def test_mermaid():
    chart = attribution().mermaid()
    lines = chart.splitlines()
    assert lines[0] == "flowchart LR"
    assert lines.count("  end") == 2
    assert sum(line.startswith("    subgraph") for line in lines) == sum(line == "    end" for line in lines)
    ids = dict(re.findall(r'(\w\d+)[(\[]+"([^"]+)"', chart))
    edges = {(ids[a], ids[b]) for a, b in re.findall(r"^  (\w\d+)\S* --> (\w\d+)", chart, re.MULTILINE)}
    assert {
        ("views", "views-source"),
        ("views-source", "attributed-this-join"),
        ("by-campaign", "campaign-repartition-sink"),
        ("campaign-repartition-sink", "campaign-repartition"),
        ("campaign-repartition", "campaign-repartition-source"),
        ("campaigns-sink", "campaigns"),
    } <= edges
    stores = {(ids[a], ids[b]) for a, b in re.findall(r"^  (\w\d+) -\.- (\w\d+)", chart, re.MULTILINE)}
    assert ("count", "per-campaign") in stores
    assert len(set(ids.values())) == len(ids)


def test_mermaid_tells_readers_from_tasks():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda v: v, "kept").to("out")
    readers, tasks = builder.build().mermaid().split('["tasks"]')
    assert '"kept"' in readers
    assert '"KSTREAM-SINK-out"' in tasks


# --- `explain()` says how each operator processes records, and why not on columns; `streams check` hints at expressions.


windows = TimeWindows.of_size_with_no_grace(10)


def test_a_program_of_expressions_stays_on_columns_up_to_its_aggregate() -> None:
    builder = StreamsBuilder()
    warm = builder.stream("in", Consumed(name="source")).filter(col("degrees") > 20, "warm")
    named = Materialized("mean")
    warm.map_values(fields("sensor", f=col("degrees") * 1.8), "slim").group_by_key().mean("f", named).to_stream("s").to(
        "out", "sink"
    )
    topology = builder.build()
    assert topology.explain() == (
        "Sub-topology: 0\n"
        "  Can run live, with as many tasks as partitions\n"
        "  In readers:\n"
        "    source                  columns: decodes degrees, sensor\n"
        "    warm                    columns\n"
        "    slim                    columns\n"
        "  In tasks:\n"
        "    KSTREAM-AGGREGATE-mean  columns\n"
        "    s                       records together\n"
        "    sink                    records together\n"
    )


def test_joins_process_records_together_and_sources_pass_bytes_on() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left", name="l"), builder.stream("right", name="r")
    left.join(right, fields(left="*"), JoinWindows.of_time_difference_with_no_grace(5), store_name="j").to(
        "out", "sink"
    )
    lines = builder.build().explain().splitlines()
    assert [" ".join(line.split()) for line in lines if line.split()[0] in ("l", "r", "sink")] == [
        "l bytes: the tasks decode the records",
        "r bytes: the tasks decode the records",
        "sink records together",
    ]


WITHIN = JoinWindows.of_time_difference_with_no_grace(5)


@pytest.mark.parametrize(
    "join",
    [
        lambda one, two, three: one.left_join(two, fields(left="*"), WITHIN),
        lambda one, two, three: one.outer_join(two, fields(left="*"), WITHIN),
        lambda one, two, three: one.join(one, fields(left="*"), WITHIN),
        lambda one, two, three: one.as_of_join(two, fields(left="*"), 5, grace=0),
        lambda one, two, three: one.join_all({"two": two, "three": three}, len, WITHIN, this="one"),
    ],
)
@pytest.mark.parametrize("optimize", [False, True])
def test_all_joins_of_streams_process_records_together(join: Callable[..., KStream], optimize: bool) -> None:
    builder = StreamsBuilder(optimize=optimize)
    join(*(builder.stream(topic) for topic in ("one", "two", "three"))).to("out")
    # A stream that takes no part is a sub-topology of its own, without tasks.
    tasks = builder.build().explain().partition("In tasks:\n")[2].partition("\n\n")[0].splitlines()
    assert tasks
    assert all(" records together" in line for line in tasks), tasks


@pytest.mark.parametrize(
    ("joiner", "reads"),
    [
        (fields(left="*", n=col("right.n")), "fields of JSON are copied as bytes"),
        (fields(n=col("left.n") + col("right.n")), "the joiner computes fields"),
        (lambda left, right: left, "the joiner is a function, which takes values"),
    ],
)
def test_joins_say_whether_they_read_values(joiner: Any, reads: str) -> None:
    builder = StreamsBuilder()
    one, two, table = builder.stream("one"), builder.stream("two"), builder.table("table")
    one.left_join(two, joiner, WITHIN).to("streams")
    one.join(table, joiner).to("looked-up")
    joins = [line for line in builder.build().explain().splitlines() if "JOIN-one" in line and "-merge" not in line]
    assert len(joins) == 3
    assert all(line.endswith(f" records together: {reads}") for line in joins), joins


class Watching(Processor):
    def process(self, record: Any) -> None:
        self.context.forward(record)  # type: ignore[attr-defined]


PLAIN = (col("a") > 1, "f")
CLOSE = EmitStrategy.on_window_close()
WRITTEN = "bytes: the readers have written the values"


@pytest.mark.parametrize(
    ("define", "ways"),
    [
        (lambda s: s.filter(*PLAIN), ["columns", WRITTEN]),
        (lambda s: s.filter(lambda v: True, "f"), ["one by one: calls a function", "records together"]),
        (lambda s: s.filter(*PLAIN).peek(print, "p"), ["one by one: 'p' takes whole records", "records together"]),
        (lambda s: s.filter(*PLAIN).process(Watching, named="w"), ["columns", "records together"]),
    ],
)
def test_a_topic_says_whether_readers_have_written_its_values(
    define: Callable[[KStream], KStream], ways: list[str]
) -> None:
    builder = StreamsBuilder()
    define(builder.stream("in")).to("out", "o")
    lines = builder.build().explain().splitlines()
    found = [line.split(None, 1)[1] for name in ("f", "o") for line in lines if line.split()[:1] == [name]]
    assert [one.startswith(way) for one, way in zip(found, ways, strict=True)] == [True, True], found


def aggregate(stream: KStream, field: str = "a") -> None:
    stream.group_by_key().mean(field, Materialized("m"))


def both_ways_to_one_topic(table: KTable) -> None:
    """Each result is in the topic twice before the next one."""
    table.to_stream().to("out")
    table.to_stream().map_values(str).to("out")


@pytest.mark.parametrize(
    ("define", "reason"),
    [
        (lambda s: aggregate(s.filter(lambda v: True, "f")), "'f' calls a function, which takes whole values"),
        (lambda s: aggregate(s.map_values(lambda v: v, "f")), "write it as fields(...)"),
        (lambda s: aggregate(s.map_values(col("a"), "f")), None),
        (lambda s: aggregate(s.filter(*PLAIN).peek(print, "p")), "'p' takes whole records"),
        (lambda s: aggregate(s.peek(print, "p").filter(*PLAIN)), "'p' takes whole records"),
        (lambda s: aggregate(s.merge(s.filter(*PLAIN), "both")), "'both' takes whole records"),
        (lambda s: (aggregate(s.filter(*PLAIN)), s.to("out", "o")), None),
        (lambda s: s.filter(*PLAIN).group_by(col("b")).mean("a", Materialized("m")), None),
        (lambda s: s.group_by(lambda v: v["b"]).mean("a", Materialized("m")), "such as col('user')"),
        (lambda s: s.group_by(col("b"), key_serde=UuidSerde()).mean("a", Materialized("m")), "which may use headers"),
        (lambda s: [aggregate(f := s.filter(*PLAIN)), f.to("out", "o")], None),
        (
            lambda s: aggregate(s.map_values(fields(a=col("b") * 2), "f"), "a.x"),
            "computes the field that 'a.x' is within",
        ),
        (lambda s: aggregate(s.map_values(fields(a=col("b")), "f"), "a.x"), None),
        (lambda s: aggregate(s.map_values(fields("*", b=col("b") * 2), "f"), "0"), "'0' is an element of an array"),
        (lambda s: (aggregate(s), s.process(Watching, named="w")), None),
        (
            lambda s: s.filter(*PLAIN).group_by_key().mean("a", Materialized("m", caching=False)),
            "emits every update (caching=False)",
        ),
        (
            lambda s: s.group_by_key().windowed_by(windows).emit_strategy(CLOSE).mean("a", "m"),
            None,
        ),
        (
            lambda s: (
                s.group_by_key().windowed_by(windows).emit_strategy(CLOSE).mean("a", Materialized("m", caching=False))
            ),
            None,
        ),
        (
            lambda s: (
                s.group_by_key().windowed_by(CalendarWindows.of("day", "UTC")).emit_strategy(CLOSE).mean("a", "m")
            ),
            None,
        ),
        (
            lambda s: s.group_by_key().windowed_by(UnlimitedWindows()).mean("a", "m"),
            "has windows of a class that computes their bounds for one record at a time",
        ),
        (
            lambda s: (
                s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).emit_strategy(CLOSE)
            ).mean("a", "m"),
            None,
        ),
        (lambda s: both_ways_to_one_topic(s.group_by_key().windowed_by(windows).mean("a", "m")), None),
        (
            lambda s: both_ways_to_one_topic(s.group_by_key().windowed_by(windows).emit_strategy(CLOSE).mean("a", "m")),
            "write to the topic 'out'",
        ),
        (lambda s: s.group_by_key().aggregate(int, lambda v, n: n + 1, Materialized("m")), "aggregates with functions"),
        (
            lambda s: aggregate(s.filter(*PLAIN)) or s.group_by_key(key_serde=Int64Serde()).count(Materialized("n")),
            None,
        ),
        (
            lambda s: s.filter(*PLAIN).group_by_key(key_serde=Int64Serde()).mean("a", Materialized("m")),
            "has another serde of keys than the source",
        ),
    ],
)
def test_why_an_aggregate_takes_whole_records(define: Callable[[KStream], Any], reason: str | None) -> None:
    builder = StreamsBuilder()
    define(builder.stream("in", key_serde=StringSerde()))
    check(builder.build(), reason)


def check(topology: Topology, reason: str | None) -> None:
    (line,) = (line for line in topology.explain().splitlines() if line.split()[:1] in (["KSTREAM-AGGREGATE-m"], ["m"]))
    assert line.endswith("columns") if reason is None else reason in line


@pytest.mark.parametrize(
    ("slow", "tip", "fast"),
    [
        (
            lambda s: s.group_by_key().aggregate(int, lambda v, n: n + v["n"], Materialized("m")),
            "agg.sum('n')",
            lambda s: s.group_by_key().aggregate(sum=agg.sum("n"), materialized=Materialized("m")),
        ),
        (
            lambda s: s.group_by_key().top(1, by=col("n"), materialized=Materialized("m")),
            "agg.max_by('name', by='n')",
            lambda s: s.group_by_key().aggregate(best=agg.max_by("name", by="n"), materialized=Materialized("m")),
        ),
        (
            lambda s: s.group_by_key().windowed_by(UnlimitedWindows()).sum("n", "m"),
            "with TimeWindows and CalendarWindows it takes columns",
            lambda s: s.group_by_key().windowed_by(CalendarWindows.of("year", "UTC")).sum("n", "m"),
        ),
    ],
)
def test_what_takes_whole_records_says_what_to_write(slow: Any, tip: str, fast: Any) -> None:
    for define, reason in ((slow, tip), (fast, None)):
        builder = StreamsBuilder()
        define(builder.stream("in", key_serde=StringSerde()))
        check(builder.build(), reason)


def test_values_of_a_type_are_whole_records() -> None:
    builder = StreamsBuilder()
    aggregate(builder.stream("in", value_serde=JsonSerde(dict[str, int]), name="s").filter(*PLAIN))
    check(builder.build(), "'s' reads values that are not plain JSON: columns need JsonSerde() without a type")


class Wrapper(WrappedProcessor):
    """Passes every record on."""


def test_wrapped_operators_take_whole_records() -> None:
    builder = StreamsBuilder(processor_wrapper=lambda name, processor: Wrapper(processor))
    aggregate(builder.stream("in").filter(*PLAIN))
    check(builder.build(), "is wrapped, and wrappers see whole records")


def test_only_what_is_needed_is_decoded_and_a_branch_is_read_once() -> None:
    builder = StreamsBuilder()
    wanted = builder.stream("in").filter(col("state") == "ok")
    aggregate(wanted.map_values(fields(a=col("x") + col("y"), unused=col("z"))))
    wanted.map_values(fields("*", a=col("o"))).group_by_key().sum("a.b", Materialized("n"))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    (source,) = sub.sources
    assert sorted(sub.columns.paths[source.name]) == ["o", "o.b", "state", "x", "y", "z"]
    assert [(entry.transport, entry.fields) for entry in sub.entries] == [("columns", ("a",)), ("columns", ("a.b",))]


def test_a_function_in_front_of_an_aggregate_of_fields_is_noted_by_check() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda v: v["a"] > 1, "f").group_by_key().mean("a", Materialized("m")).to_stream().to(
        "o"
    )
    builder.stream("in2").filter(lambda v: v["a"] > 1, "g").to("o2")
    (found,) = lint(builder.build())
    assert (found.rule, found.level, found.where) == ("whole-records", Level.NOTE, "f")
    assert "write it as an expression, such as col('count') > 0" in found.says


def test_check_hints_at_no_expression_where_values_of_a_type_are_decoded_as_a_whole() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", value_serde=JsonSerde(dict[str, str]))
    orders.group_by(lambda order: order["country"]).count(materialized=Materialized("m")).to_stream().to("out")
    assert "whole-records" not in [one.rule for one in lint(builder.build())]


def test_an_aggregate_with_a_cache_does_not_say_that_it_has_none() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", value_serde=JsonSerde(dict[str, str]))
    orders.filter(*PLAIN).to("others")
    orders.group_by(lambda order: order["country"]).count(materialized=Materialized("m")).to_stream().to("out")
    text = builder.build().explain()
    assert "KSTREAM-AGGREGATE-m    records together: 'KSTREAM-KEY-SELECT-in' calls a function" in text
    assert "caching=False" not in text


def test_an_aggregate_of_sessions_says_which_windows_take_whole_records() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").filter(*PLAIN).group_by_key()
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    grouped.windowed_by(sessions).aggregate(x=agg.max(col("a") * 2), materialized=Materialized("m"))
    line = next(line for line in builder.build().explain().splitlines() if "AGGREGATE-m" in line)
    assert "columns" in line or "SessionWindows" in line


# --- What a notebook and a Python shell show of a topology.


SVG = "{http://www.w3.org/2000/svg}"


def clicks_per_user() -> Topology:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    clicks, views = builder.stream("clicks"), builder.stream("views")
    joined = clicks.filter(bool).join(views, lambda click, view: click, windows, StreamJoined(name="seen"))
    users = joined.select_key(lambda click: click["user"]).group_by_key(Grouped(name="by-user"))
    users.count(materialized=Materialized(name="counts")).to_stream().to("counts-per-user")
    joined.to("joined")
    builder.global_table("airports", materialized=Materialized(name="places"))
    return builder.build()


@pytest.fixture
def shown() -> dict[str, str]:
    return clicks_per_user()._repr_mimebundle_()


def texts(drawing: str) -> str:
    return "".join(found.text or "" for found in ElementTree.fromstring(drawing).iter(f"{SVG}text"))


def boxes(drawing: str) -> list[tuple[int, ...]]:
    found = ElementTree.fromstring(drawing).iter(f"{SVG}rect")
    drawn = [box for box in found if box.get("class") in ("topic", "reader", "task")]
    assert drawn
    return [tuple(int(box.get(side, "")) for side in ("x", "y", "width", "height")) for box in drawn]


def test_a_drawing_names_every_topic_operator_and_store(shown: dict[str, str]) -> None:
    said = texts(shown["image/svg+xml"])
    topology = clicks_per_user()
    topics = ("clicks", "views", "joined", "counts-per-user", "by-user-repartition", "airports")
    missing = [name for name in (*topics, *topology.nodes, *topology.stores) if name not in said]
    assert missing == []


def test_a_drawing_needs_no_network_and_no_script(shown: dict[str, str]) -> None:
    drawing = shown["text/html"].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert [what for what in ("http", "<script", "href", "url(//", "@import") if what in drawing] == []


def test_boxes_do_not_overlap(shown: dict[str, str]) -> None:
    def overlap(one: Any, other: Any) -> bool:
        across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
        return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]

    assert [pair for pair in combinations(boxes(shown["image/svg+xml"]), 2) if overlap(*pair)] == []


def test_a_drawing_leaves_the_rest_of_the_page_as_it_is(shown: dict[str, str]) -> None:
    style = ElementTree.fromstring(shown["image/svg+xml"]).findtext(f"{SVG}style") or ""
    assert [rule for rule in style.split("}")[:-1] if not rule.startswith(".streams-topology ")] == []


def test_texts_are_escaped() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a<b>|c&d")).to("out")
    assert "/a<b>|c&d/" in texts(builder.build()._repr_mimebundle_()["image/svg+xml"])


def test_a_notebook_that_draws_mermaid_gets_the_chart(shown: dict[str, str]) -> None:
    assert shown["text/vnd.mermaid"] == clicks_per_user().mermaid()


def test_a_topology_shows_in_one_line_what_it_reads_writes_and_keeps() -> None:
    assert repr(clicks_per_user()) == (
        "Topology(2 sub-topologies: clicks, views -> by-user-repartition, joined (2 stores); "
        "by-user-repartition -> counts-per-user (1 store); global tables: places)"
    )


# --- What streams, tables and groups show of themselves: where they come from, and the methods since.


FIVE = TimeWindows.of_size_with_no_grace(5)


def left(one: object, other: object) -> object:
    return one


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda b: b.stream("in"), "KStream('in')"),
        (lambda b: b.stream("in").filter(bool).map_values(len), "KStream('in' → filter → map_values)"),
        (lambda b: b.stream("in").filter(bool, "mine").select_key(len), "KStream('in' → filter → select_key)"),
        (lambda b: b.stream("in").merge(b.stream("more")), "KStream('in', 'more' → merge)"),
        (lambda b: b.stream("in").left_join(b.table("t"), left), "KStream('in' → left_join)"),
        (
            lambda b: b.stream("a").join(b.stream("b"), left, JoinWindows.of_time_difference_with_no_grace(5)),
            "KStream('a', 'b' → join → merge)",
        ),
        (lambda b: b.stream("in").repartition().peek(print), "KStream('in' → repartition → peek)"),
        (
            lambda b: b.stream("in").group_by_key().count().to_stream().select_key(len).group_by_key().count(),
            "KTable('in' → aggregate → to_stream → select_key → aggregate)",
        ),
        (
            lambda b: b.stream("in").peek(id).peek(id).map(left).filter(id).map_values(id).map(left).filter(id).peek(id),
            "KStream('in' → … → map → filter → map_values → map → filter → peek)",
        ),
        (lambda b: b.table("t"), "KTable('t')"),
        (lambda b: b.table("t").join(b.table("u"), left, foreign_key=len), "KTable('t', 'u' → join)"),
        (lambda b: b.global_table("g"), "GlobalKTable('g')"),
        (lambda b: b.stream("in").group_by(len), "KGroupedStream('in' → select_key)"),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(FIVE),
            "TimeWindowedKStream('in', TimeWindows(size_ms=5, advance_ms=5, grace_ms=0))",
        ),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(FIVE).count().suppress(Suppressed.until_window_closes()),
            "KTable('in' → aggregate → suppress)",
        ),
        (lambda b: b.table("t").group_by(left), "KGroupedTable('t' → group_by)"),
        (
            lambda b: b.stream("a").group_by_key().cogroup(left).cogroup(b.stream("b").group_by_key(), left),
            "CogroupedKStream('a'; 'b')",
        ),
        (lambda b: b.stream("in").split(), "BranchedKStream('in')"),
        (
            lambda b: b.stream("in").split().branch(bool, Branched("true")).no_default_branch()["true"],
            "KStream('in' → split → branch)",
        ),
    ],
)  # fmt: skip
def test_each_shows_its_way(make: Callable[[StreamsBuilder], object], shown: str) -> None:
    assert repr(make(StreamsBuilder())) == shown
