"""A node says what it is: nothing about it is read back from names, texts or signatures."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    agg,
)
from streams.application.store_rows import view_of, window_size_ms
from streams.errors import TopologyError
from streams.topology.node_kind import NodeKind
from streams.topology.plan import build_plan
from streams.topology.specs.base import NodeSpec
from tests.dsl.identities import CASES, cases, identity, recorded

STREAMS = Path(__file__).parent.parent.parent / "streams"
SOURCES = sorted(STREAMS.rglob("*.py"))
KINDS = {kind.value for kind in NodeKind}


def specs(of: type[NodeSpec]) -> set[type[NodeSpec]]:
    return {spec for one in of.__subclasses__() for spec in (one, *specs(one))}


def literals(file: Path) -> Iterator[ast.Constant]:
    return (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant))


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


def test_the_size_of_windows_is_known_of_their_store():
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(10)
    builder.stream("in").group_by_key().windowed_by(windows).count(materialized=Materialized(name="counts"))
    builder.stream("in").group_by_key().count(materialized=Materialized(name="all"))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    assert [window_size_ms(sub, store) for store in ("counts", "all")] == [10, None]


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
    assert view_of(sub, "by-functions")({"a": 1}) == {"a": 1}


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
    "spec", sorted(specs(NodeSpec), key=lambda spec: spec.__name__), ids=lambda spec: spec.__name__
)
def test_a_spec_cannot_be_changed(spec):
    assert dataclasses.is_dataclass(spec)
    assert spec.__dataclass_params__.frozen
