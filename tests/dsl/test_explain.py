"""`explain()` says how each operator processes records, and why not on columns; `streams check` hints at expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import (
    Consumed,
    EmitStrategy,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    KStream,
    Materialized,
    Processor,
    SessionWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    Topology,
    UuidSerde,
    WrappedProcessor,
    agg,
    col,
    fields,
)
from streams.topology.lint import Level, lint
from streams.topology.plan import build_plan

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
        self.context.forward(record)


PLAIN = (col("a") > 1, "f")


def aggregate(stream: KStream, field: str = "a") -> None:
    stream.group_by_key().mean(field, Materialized("m"))


@pytest.mark.parametrize(
    ("define", "reason"),
    [
        (lambda s: aggregate(s.filter(lambda v: True, "f")), "'f' calls a function, which takes whole values"),
        (lambda s: aggregate(s.map_values(lambda v: v, "f")), "write it as fields(...)"),
        (lambda s: aggregate(s.map_values(col("a"), "f")), "write it as fields(...)"),
        (lambda s: aggregate(s.filter(*PLAIN).peek(print, "p")), "'p' takes whole records"),
        (lambda s: aggregate(s.peek(print, "p").filter(*PLAIN)), "'p' takes whole records"),
        (lambda s: aggregate(s.merge(s.filter(*PLAIN), "both")), "'both' takes whole records"),
        (lambda s: (aggregate(s.filter(*PLAIN)), s.to("out", "o")), None),
        (lambda s: s.filter(*PLAIN).group_by(col("b")).mean("a", Materialized("m")), None),
        (lambda s: s.group_by(lambda v: v["b"]).mean("a", Materialized("m")), "such as col('user')"),
        (lambda s: s.group_by(col("b"), key_serde=UuidSerde()).mean("a", Materialized("m")), "which may use headers"),
        (
            lambda s: [aggregate(f := s.filter(*PLAIN)), f.to("out", "o")],
            "'o' gets records of 'f', and writes them whole",
        ),
        (
            lambda s: aggregate(s.map_values(fields(a=col("b") * 2), "f"), "a.x"),
            "computes the field that 'a.x' is within",
        ),
        (lambda s: aggregate(s.map_values(fields(a=col("b")), "f"), "a.x"), None),
        (lambda s: aggregate(s.map_values(fields("*", b=col("b") * 2), "f"), "0"), "'0' is an element of an array"),
        (lambda s: (aggregate(s), s.process(Watching, named="w")), "'w' may look at stream time"),
        (
            lambda s: s.filter(*PLAIN).group_by_key().mean("a", Materialized("m", caching=False)),
            "emits every update (caching=False)",
        ),
        (
            lambda s: (
                s.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close()).mean("a", "m")
            ),
            "emits on close",
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
    (line,) = (line for line in topology.explain().splitlines() if line.split()[0] in ("KSTREAM-AGGREGATE-m", "m"))
    assert line.endswith("columns") if reason is None else reason in line


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
    assert "KSTREAM-AGGREGATE-m    one by one: 'KSTREAM-KEY-SELECT-in' calls a function" in text
    assert "caching=False" not in text


def test_an_aggregate_of_sessions_says_which_windows_take_whole_records() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").filter(*PLAIN).group_by_key()
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    grouped.windowed_by(sessions).aggregate(x=agg.max(col("a") * 2), materialized=Materialized("m"))
    line = next(line for line in builder.build().explain().splitlines() if "AGGREGATE-m" in line)
    assert "columns" in line or "SessionWindows" in line
