"""A changed topology is safe, needs migration, or loses state; the engine's own hash agrees."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, model_validator

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Repartitioned,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    VersionedSerde,
    agg,
    col,
)
from streams.topology.diff import StateEffect, compare, worst
from streams.topology.manifest import manifest, manifest_json

SAFE, MIGRATION, LOSS = StateEffect


class Pass(Processor):
    def process(self, record):
        self.ctx.forward(record)


def build(program):
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def counts(stream, name="counts", size=10, more=lambda s: s, **how):
    windows = TimeWindows.of_size_with_no_grace(size)
    grouped = stream.group_by_key().windowed_by(windows)
    more(grouped.count(materialized=Materialized(name=name, **how)).to_stream()).to("out")


def base(builder):
    counts(builder.stream("in"))


def totals(builder, **how):
    builder.stream("in").group_by_key().aggregate(dict, lambda k, v, t: v, materialized=Materialized(name="t", **how))


def through_topic(builder, name, partitions=None):
    builder.stream("in").repartition(Repartitioned(name=name, partitions=partitions)).to("out")


def two(builder):
    base(builder)
    builder.stream("other").to_table(Materialized(name="others"))


def filtered(condition, to="out"):
    def program(builder):
        table = builder.table("in", materialized=Materialized("rows"))
        (table if condition is None else table.filter(condition)).to_stream().to(to)

    return program


def counted_by_value(condition):
    def program(builder):
        table = builder.table("in", materialized=Materialized("rows"))
        kept = table if condition is None else table.filter(condition)
        kept.group_by(lambda k, v: (str(v), v), Grouped(name="by-v")).count(materialized=Materialized(name="counts"))

    return program


def above(limit):
    return lambda v: v > limit


def two_outputs(builder):
    rows = builder.table("in", materialized=Materialized("rows"))
    rows.to_stream().to("out")
    rows.filter(lambda v: v > 0).to_stream().to("new")


CHANGES = {
    "a filter of a table": (
        filtered(None),
        filtered(lambda v: v > 0),
        MIGRATION,
        "a new filter of a table: rows that it holds back stay in the topic 'out'",
    ),
    "a narrower one": (
        filtered(lambda v: v > 0),
        filtered(lambda v: v > 10),
        MIGRATION,
        "by another condition: rows that it holds back now and did not before",
    ),
    "a narrower one by a value": (filtered(above(0)), filtered(above(10)), MIGRATION, "by another condition"),
    "a narrower expression": (filtered(col("x") > 0), filtered(col("x") > 1), MIGRATION, "by another condition"),
    "an equal function": (filtered(above(1)), filtered(above(1)), SAFE, ""),
    "an equal expression": (filtered(col("x") > 1), filtered(col("x") > 1), SAFE, ""),
    "a filter in front of a new topic": (filtered(None), two_outputs, SAFE, "is new"),
    "a filter in front of an aggregate": (
        counted_by_value(None),
        counted_by_value(lambda v: v > 0),
        MIGRATION,
        "stay in the",
    ),
    "a filter less": (filtered(lambda v: v > 0), filtered(None), SAFE, "is gone"),
    "nothing": (base, base, SAFE, ""),
    "a stateless operator": (base, lambda b: counts(b.stream("in").filter(lambda v: v)), SAFE, "is new"),
    "one less": (lambda b: counts(b.stream("in").peek(print)), base, SAFE, "is gone"),
    "behind the state": (base, lambda b: counts(b.stream("in"), more=lambda s: s.map_values(str)), SAFE, "is new"),
    "another sink": (base, lambda b: (base(b), b.stream("in").to("copy")), SAFE, "sink 'KSTREAM-SINK-copy' is new"),
    "a new sub-topology": (base, two, SAFE, "other: the sub-topology is new"),
    "a stateless sub-topology gone": (
        lambda b: (base(b), b.stream("x").to("y")),
        base,
        SAFE,
        "the sub-topology is gone",
    ),
    "longer retention": (
        base,
        lambda b: counts(b.stream("in"), retention=99),
        SAFE,
        "keeps rows for 99 ms instead of 10",
    ),
    "shorter retention": (lambda b: counts(b.stream("in"), retention=99), base, LOSS, "older ones are dropped"),
    "in memory": (base, lambda b: counts(b.stream("in"), persistent=False), SAFE, "into memory, from its changelog"),
    "no changelog": (base, lambda b: counts(b.stream("in"), logging=False), LOSS, "cannot be restored"),
    "a changelog": (lambda b: counts(b.stream("in"), logging=False), base, MIGRATION, "a restore would lack them"),
    "changelog settings": (
        base,
        lambda b: counts(b.stream("in"), changelog_config={"segment.ms": "5"}),
        SAFE,
        "segment.ms None -> 5",
    ),
    "another window": (base, lambda b: counts(b.stream("in"), size=20), MIGRATION, "size_ms 10 -> 20"),
    "a renamed store": (
        base,
        lambda b: counts(b.stream("in"), "new"),
        LOSS,
        "now called 'new'.*Materialized\\(name='counts'\\)",
    ),
    "a removed operator": (two, base, LOSS, "store 'others' is gone"),
    "an added operator": (
        base,
        lambda b: (base(b), totals(b)),
        MIGRATION,
        "would begin empty in the midst of its input",
    ),
    "another aggregate": (
        lambda b: b.stream("in").group_by_key().aggregate(n=agg.count(), materialized=Materialized(name="t")),
        lambda b: b.stream("in").group_by_key().aggregate(n=agg.sum("x"), materialized=Materialized(name="t")),
        MIGRATION,
        "works differently",
    ),
    "another serde": (totals, lambda b: totals(b, value_serde=Int64Serde()), MIGRATION, "VersionedSerde"),
    "a new version of values": (
        totals,
        lambda b: totals(b, value_serde=VersionedSerde(JsonSerde(), 1, {1: dict})),
        SAFE,
        "",
    ),
    "another source": (base, lambda b: counts(b.stream(["in", "more"], Consumed(name="s"))), MIGRATION, "source"),
    "another first topic": (
        base,
        lambda b: counts(b.stream("renamed")),
        MIGRATION,
        "belongs to the sub-topology 'renamed' now",
    ),
    "a stateless sub-topology that is read with others now": (
        lambda b: (b.stream("a").to("x"), b.stream("b").to("x")),
        lambda b: b.stream("a").merge(b.stream("b")).to("x"),
        MIGRATION,
        "b: source 'KSTREAM-SOURCE-b' reads b in the sub-topology 'a' now",
    ),
    "a topic that a pattern reads now": (
        lambda b: b.stream("orders-eu").to("x"),
        lambda b: b.stream(re.compile("ORDERS-.*", re.IGNORECASE)).to("x"),
        MIGRATION,
        "reads orders-eu in the sub-topology 'ORDERS-pattern' now",
    ),
    "another repartition topic": (
        lambda b: through_topic(b, "a"),
        lambda b: through_topic(b, "b"),
        MIGRATION,
        "what was not read from it yet would be lost",
    ),
    "its partitions": (
        lambda b: through_topic(b, "a", 2),
        lambda b: through_topic(b, "a", 3),
        MIGRATION,
        "asks for 3 partitions instead of 2",
    ),
    "a global table": (base, lambda b: (base(b), b.global_table("g")), SAFE, "is new.*it is read from its topic"),
    "other inputs of an operator": (
        lambda b: b.stream("in").group_by_key(Grouped(name="g")).count(named="c"),
        lambda b: b.stream("in").process_values(Pass, named="p").group_by_key(Grouped(name="g")).count(named="c"),
        MIGRATION,
        "has other reads",
    ),
}


STARTS_ALL_THE_SAME = {
    "shorter retention": "what is older than the new retention is dropped",
    "no changelog": "the store goes on where it is",
    "a removed operator": "it was a sub-topology of its own",
    "a filter of a table": "what was written before stays",
    "a narrower one": "the same",
    "a narrower one by a value": "the same",
    "a narrower expression": "the same",
    "a filter in front of an aggregate": "what was counted before stays counted",
}
"""What loses state, or some of it, and yet is started."""
DEPENDS = {"another repartition topic", "its partitions"}


@pytest.mark.parametrize("what", CHANGES)
def test_the_report_says_what_the_engine_does(what):
    before, after, severity, _ = CHANGES[what]
    refused = [change for change in compare(manifest(build(before)), build(after)) if change.refused]
    assert bool(refused) is (severity is not SAFE and what not in STARTS_ALL_THE_SAME)
    assert any(change.depends for change in refused) is (what in DEPENDS)
    assert all("The engine refuses to start" in change.says for change in refused if not change.depends)


def same_hashes(old, new):
    before, after = old["sub_topologies"], new["sub_topologies"]
    return all(after[name]["hash"] == sub["hash"] for name, sub in before.items() if name in after)


@pytest.mark.parametrize("what", CHANGES)
def test_changes(what):
    before, after, severity, said = CHANGES[what]
    old, new = build(before), build(after)
    # Through JSON, as from a file.
    changes = compare(json.loads(manifest_json(old)), new)
    assert worst(changes) is severity, changes
    assert changes or not said
    if said:
        assert any(re.search(said, str(change)) for change in changes if change.severity is severity), changes
    if not same_hashes(manifest(old), manifest(new)):
        assert any(change.refused for change in changes), "no task would take it"
        assert worst(changes) is not SAFE


def test_the_worst_comes_first():
    def after(builder):
        counts(builder.stream("in").filter(lambda v: v), "new")

    found = [change.severity for change in compare(manifest(build(base)), build(after))]
    assert found == sorted(found, key=list(StateEffect).index, reverse=True)
    assert set(found) == {SAFE, MIGRATION, LOSS}


def test_descriptions_know_no_application_and_are_stable():
    assert manifest_json(build(two)) == manifest_json(build(two))
    assert compare(manifest(build(two)), build(two)) == []


@pytest.mark.parametrize("old", [{}, {"format": 99, "sub_topologies": {}}, {"format": 1}])
def test_what_is_no_description_is_refused(old):
    with pytest.raises(TopologyError, match="streams describe --format json"):
        compare(old, build(base))


@dataclass
class First:
    id: int
    at: str
    note: str = ""


@dataclass
class More(First):
    currency: str = "EUR"


@dataclass
class Needs:
    id: int
    currency: str
    at: str
    note: str = ""


@dataclass
class Other:
    id: str
    at: datetime


class Filled(BaseModel):
    id: int
    currency: str

    @model_validator(mode="before")
    @classmethod
    def fill(cls, found: Any) -> Any:
        return {"currency": "EUR", **found}


class Row(NamedTuple):
    id: int


class LongerRow(NamedTuple):
    id: int
    more: int


class Record(msgspec.Struct):
    id: int
    inner: list[Record] = msgspec.field(default_factory=list)


class OtherRecord(msgspec.Struct):
    id: int
    name: str
    inner: list[OtherRecord] = msgspec.field(default_factory=list)


class Entry(typing_extensions.TypedDict):
    id: int


class LongerEntry(Entry):
    name: str
    maybe: typing_extensions.NotRequired[int]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int


READABLE = [
    (First, First),
    (First, More),
    (More, First),
    (First, None),
    (None, Needs),
    (First, Filled),
    (int, float),
    (int | None, int),
]
UNREADABLE: list[tuple[Any, Any, list[str]]] = [
    (First, Needs, ["the field 'currency' is required, and they have none"]),
    (First, Other, ["the field 'id' was integer and is string", "the field 'at' was string and is date-time"]),
    (list[First], list[Needs], ["the field '[].currency' is required, and they have none"]),
    (dict[str, First], dict[str, Needs], ["the field '*.currency' is required, and they have none"]),
    (Row, LongerRow, ["the field 'more' is required, and they have none"]),
    (Record, OtherRecord, ["the field 'name' is required, and they have none"]),
    (Entry, LongerEntry, ["the field 'name' is required, and they have none"]),
    (First, Closed, ["the field 'at' is gone, and the type takes no further fields"]),
    (Literal["a", "b"], Literal["a"], ["the value was one of ['a', 'b'] and is one of ['a']"]),
]


def typed(kind):
    return lambda builder: totals(builder, value_serde=JsonSerde(kind))


@pytest.mark.parametrize(("before", "after"), READABLE)
def test_a_type_whose_values_can_be_read_as_another_one_is_no_change(before, after):
    assert compare(manifest(build(typed(before))), build(typed(after))) == []


@pytest.mark.parametrize(("before", "after", "said"), UNREADABLE)
def test_rows_that_the_new_type_cannot_read_are_reported_with_their_field(before, after, said):
    (change,) = compare(manifest(build(typed(before))), build(typed(after)))
    assert (change.refused, change.what) == (True, "store 't'")
    assert change.says.startswith("holds rows that this program cannot read: of values, ")
    assert all(part in change.says for part in said)


def test_records_that_wait_in_a_repartition_topic_are_compared_too():
    def through(kind):
        return lambda b: b.stream("in").repartition(Repartitioned(name="r", value_serde=JsonSerde(kind))).to("out")

    (change,) = compare(manifest(build(through(First))), build(through(Needs)))
    assert (change.refused, change.depends, change.what) == (True, True, "repartition topic 'r-repartition'")
    assert "of values, the field 'currency' is required" in change.says


def test_a_description_without_fields_is_compared_without_them():
    old = manifest(build(typed(First)))
    del old["sub_topologies"]["in"]["stores"]["t"]["fields"]
    assert compare(old, build(typed(Needs))) == []


def test_a_left_join_from_before_its_store_had_kafka_streams_name_is_refused_with_a_way_out():
    def joined(builder):
        windows = JoinWindows.of_time_difference_with_no_grace(10)
        builder.stream("a").left_join(builder.stream("b"), lambda left, right: left, windows).to("out")

    new = build(joined)
    text = manifest_json(new)
    assert "-outer-other-join-store" in text
    old = json.loads(text.replace("-outer-other-join-store", "-other-join-store"))
    old["sub_topologies"]["a"]["hash"] = "before"
    (change,) = [one for one in compare(old, new) if one.says.startswith("is gone")]
    assert change.refused
    assert "-outer-other-join-store' was called so" in change.says
    assert "`streams reset`" in change.says
