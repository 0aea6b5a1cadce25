"""Results of `fields(...)` that are made of the bytes of both values equal those that `JoinedFields` defines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JoinWindows, Materialized, StreamsBuilder, col, fields, lit
from streams.errors import NoFieldsError
from streams.model.expressions import JoinedFields
from streams.operators import json_fields
from streams.operators.join.joined_objects import JoinedObjects
from streams.operators.join.stream_join import PairStep, StreamSelfJoin, StreamStreamJoin
from streams.operators.join.stream_table_join import StreamGlobalJoin, StreamTableJoin
from streams.serdes.json import JsonSerde
from streams.topology.plan import build_plan
from streams.topology.ways import ways
from tests.both_ways import Fed, check_both_ways, counted, played
from tests.budget import up_to
from tests.operators.join_inputs import KINDS, PARTITIONS, feed, windows

NAMES = ("n", "v", "a", "", 'q"', "é", "n\n", "nn")
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5)
FORMS = (
    b'{"v":1}',
    b'{ "v" : 2, "n": [ ] }',
    b'{"n":{"a":[1,{"v":null}]},"v":"x\\u00e9\\"y"}',
    b'{"v":1,"v":2.50}',
    b'{"n":1e3,"a":-0.0,"\\u0076":7}',
    b'{"n":12345678901234567890,"v":0.1234567890123456789}',
    b"{}",
    b"[]",
    b"[3,{}]",
    b"null",
    None,
)
"""Objects as orjson writes them and in other forms, arrays, and no value."""
SELECTED = (
    fields(left=["v"], right=["n", "a"], none=col("other")),
    fields(left="*", right=["n"]),
    fields(left="*", right="*"),
    fields(l=col("left"), deep=col("left.n.a"), at=col("left.n.a.1.v"), r=col("right.v"), one=lit(1)),
)


def joined(made: Any) -> JoinedFields:
    found = made if isinstance(made, JoinedFields) else JoinedFields.of(made)
    assert found is not None
    return found


def defined(selected: JoinedFields, left: Any, right: Any) -> Any:
    """What the definition says: the text, or the class of the error."""
    try:
        return JsonSerde().serialize("", selected(left, right))
    except NoFieldsError:
        return NoFieldsError


def made_of(selected: JoinedFields, cells: list[bytes], left: int, right: int, *, certain: bool) -> Any:
    """The same, from bytes; -1: no value."""
    objects = JoinedObjects.of(selected)
    assert objects is not None
    pair, column = (np.array([left]), np.array([right])), pa.array(cells, pa.binary())
    try:
        return objects.of_pairs(column, *pair, np.full(len(cells), certain)).column(JsonSerde(), "")[0].as_py()
    except NoFieldsError:
        return NoFieldsError


@st.composite
def selections(draw: Any) -> JoinedFields:
    names = draw(
        st.lists(st.sampled_from(NAMES[:-4]), unique=True, max_size=3).map(lambda all_: [one for one in all_ if one])
    )
    left = draw(st.sampled_from(("*", names)))
    right = draw(st.sampled_from(("*", [f"{name}n" for name in names])))
    paths = st.sampled_from(("left", "right", "left.n", "right.n.a", "left.a.0", "right.v.nn", "left.é", "neither.n"))
    # JSON has no infinite numbers, so such a constant is an error for both.
    constants = SCALARS.filter(lambda one: one not in (inf, -inf)).map(lit)
    computed = draw(st.dictionaries(st.sampled_from(("x", "é", 'y"')), paths.map(col) | constants, max_size=3))
    return joined(fields(left=left or ["n"], right=right or ["nn"], **computed))


@pytest.mark.slow
@up_to(300)
@given(selections(), OBJECTS | VALUES, OBJECTS | VALUES, st.booleans())
def test_objects_equal_those_of_the_definition(selected: JoinedFields, left: Any, right: Any, certain: bool) -> None:
    """For any JSON that orjson has written; `certain` values are not looked at before."""
    cells = [orjson.dumps(one) for one in (left, right)]
    # What is written and read again, as a store does.
    read = [orjson.loads(cell) for cell in cells]
    for at in ((0, 1), (0, -1), (-1, 1)):
        sides = [None if one < 0 else read[one] for one in at]
        assert made_of(selected, cells, *at, certain=certain) == defined(selected, *sides)


@pytest.mark.parametrize("selected", SELECTED, ids=repr)
def test_json_in_other_forms_is_written_anew(selected: Any) -> None:
    """What `normal_json` is not certain of: also in rows of a store that something else has written."""
    cells = [one for one in FORMS if one not in (None, b"null")]
    for left, a in enumerate(cells):
        for right, b in enumerate(cells):
            expected = defined(joined(selected), orjson.loads(a), orjson.loads(b))
            assert made_of(joined(selected), cells, left, right, certain=False) == expected


def test_what_has_to_be_computed_is_left_to_the_definition() -> None:
    assert JoinedObjects.of(joined(fields(x=col("left.a") + col("right.a")))) is None
    # The left value's field is overridden, but a left value without fields is still an error.
    assert JoinedObjects.of(fields(left=["a"], right=["a"])) is None
    assert JoinedObjects.of(None) is None


def program(kind: str, windows: JoinWindows, selected: Any, *, itself: bool = False, behind: bool = False) -> Any:
    builder = StreamsBuilder(optimize=itself)
    left = builder.stream("left")
    right = left if itself else builder.stream("right")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    results = join(right, selected, windows)
    (results.map_values(lambda value: [value, 1]) if behind else results).to("out")
    return builder.build()


@pytest.mark.slow
@up_to(10)
@given(
    st.sampled_from(KINDS),
    windows(),
    st.integers(0, 10**6),
    st.sampled_from(SELECTED),
    st.sampled_from(("strict", "compat")),
    st.booleans(),
    st.sets(st.integers(0, 3)),
)
def test_joins_by_bytes_equal_joins_by_objects(kind, windows, seed, selected, mode, behind, restarts) -> None:
    """Pairs within a step and with the stores, records without a partner at once and later, and functions behind."""
    topology = program(kind, windows, selected, behind=behind)
    with counted(StreamStreamJoin) as answers:
        check_both_ways(topology, feed(seed, values=FORMS), tuple(restarts), partitions=PARTITIONS, mode=mode)
    assert set(answers) == {"together"}


@pytest.mark.slow
@up_to(15)
@given(
    st.sampled_from(KINDS),
    windows(),
    st.integers(0, 10**6),
    st.sampled_from(SELECTED),
    st.sampled_from(("strict", "compat")),
)
def test_self_joins_by_bytes(kind, windows, seed, selected, mode) -> None:
    steps = [[one for one in step if one.topic == "left"] for step in feed(seed, values=FORMS)]
    with counted(StreamSelfJoin) as answers:
        check_both_ways(program(kind, windows, selected, itself=True), steps, (), partitions=PARTITIONS, mode=mode)
    assert set(answers) == {"together"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_operators_behind_a_join_by_bytes_read_its_results(mode: str, seed: int) -> None:
    """All at once, some of them, and one by one."""
    builder, windows = StreamsBuilder(), JoinWindows(9, 9, 5)
    joined = builder.stream("left").left_join(builder.stream("right"), SELECTED[0], windows)
    joined.to_table(materialized=Materialized(name="latest")).to_stream().to("latest")
    joined.group_by_key().aggregate(list, lambda value, last: [*last, value][-3:]).to_stream().to("last")
    joined.filter(lambda key, value: value["n"] is not None).to("filtered")
    joined.deduplicate(5, by=lambda value: str(value["v"])).to("distinct")
    with counted(StreamStreamJoin) as answers:
        check_both_ways(builder.build(), feed(seed, values=FORMS), (1,), partitions=PARTITIONS, mode=mode)
    assert "together" in answers


def table_program(kind: str, selected: Any, *, caching: bool, shape: str) -> Any:
    builder = StreamsBuilder()
    table = builder.table("table", materialized=Materialized(name="rows", caching=caching))
    if shape == "updates below":
        table.to_stream().to("updates")
    elif shape == "filtered":
        table = table.filter(lambda key, value: value != [])
    stream = builder.stream("in")
    (stream.left_join if kind == "left" else stream.join)(table, selected).to("out")
    return builder.build()


def for_tables(seed: int, values: Sequence[bytes | None] = FORMS) -> list[list[Fed]]:
    """Three updates of the table for two records of the stream."""
    rng = random.Random(seed)
    topics = ("in", "in", "table", "table", "table")
    return [[replace(one, topic=rng.choice(topics)) for one in step] for step in feed(seed, values=values)]


TABLES = {"in": 2, "table": 2}


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["plain", "updates below", "filtered"])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_joins_with_tables_by_bytes(kind: str, caching: bool, shape: str) -> None:
    """Rows of the store and updates of the step, with a cache and without, in several forms of JSON."""
    for seed, selected in enumerate(SELECTED):
        topology = table_program(kind, selected, caching=caching, shape=shape)
        with counted(StreamTableJoin) as answers:
            mode = ("strict", "compat")[seed % 2]
            seen = check_both_ways(topology, for_tables(seed), (1,), partitions=TABLES, mode=mode)
        assert set(answers) == {"together"}
        assert any(topic == "out" for topic, _ in seen.topics)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_no_object_is_made_for_a_table(kind: str, caching: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamTableJoin, "_all_joined", _refuse)
    monkeypatch.setattr(JoinedObjects, "_defined", _refuse)
    monkeypatch.setattr("streams.operators.columnar.read_all", _refuse)
    with counted(StreamTableJoin) as answers:
        steps = for_tables(12, (b'{"v":1,"n":"x"}', b'{"n":2.5}'))
        seen = played(table_program(kind, SELECTED[0], caching=caching, shape="plain"), steps, (1,), partitions=TABLES)
    assert set(answers) == {"together"}
    assert any(topic == "out" for topic, _ in seen.topics)


SELECTORS = (
    (col("v"), True),
    (col("n.a.0"), True),
    (col("v").cast(str), True),
    (col("v").cast(int) % 2, True),
    (fields("v", "other"), True),
    (lambda value: value.get("v"), False),
)
"""Selectors of keys of a global table, and whether columns compute them."""


def global_program(kind: str, selected: Any, selector: Any) -> Any:
    builder = StreamsBuilder()
    table = builder.global_table("table", Consumed(JsonSerde(), JsonSerde()))
    stream = builder.stream("in")
    (stream.left_join if kind == "left" else stream.join)(table, selector, selected).to("out")
    return builder.build()


def for_global_tables(seed: int, values: Sequence[bytes | None] = FORMS) -> list[list[Fed]]:
    """Rows of the table, then records of the stream."""
    keys = (b"1", b"2", b"2.5", b"7", b"0", b'"1"', b'"x\\u00e9\\"y"', b"null", b'{"v":1,"other":null}')
    rows = [Fed("table", key, values[at % len(values)], at, partition=at % 2) for at, key in enumerate(keys)]
    return [rows, *([replace(one, topic="in") for one in step] for step in feed(seed, values=values))]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "fail"])
@pytest.mark.parametrize("kind", ["inner", "left"])
@pytest.mark.parametrize(("selector", "on_columns"), SELECTORS)
def test_joins_with_global_tables_by_bytes(selector: Any, on_columns: bool, kind: str, policy: str) -> None:
    """Keys of all types, missing ones, and values that the selector refuses, whose records meet the policy."""
    for seed, selected in enumerate(SELECTED):
        topology = global_program(kind, selected, selector)
        mode = ("strict", "compat")[seed % 2]
        steps = for_global_tables(seed, (*FORMS, b'"text"') if policy == "skip" else FORMS[:3])
        with mock.patch.object(json_fields, "FEW_CELLS", 0), counted(StreamGlobalJoin) as answers:
            seen = check_both_ways(topology, steps, (1,), partitions=TABLES, mode=mode, processing=policy)
        if seen.failed is None:
            assert "together" in answers
            assert any(topic == "out" for topic, _ in seen.topics)


def test_no_object_is_made_for_a_global_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamGlobalJoin, "_all_joined", _refuse)
    monkeypatch.setattr(JoinedObjects, "_defined", _refuse)
    monkeypatch.setattr("streams.operators.stateless.call_each", _refuse)
    monkeypatch.setattr(json_fields, "FEW_CELLS", 0)
    steps = for_global_tables(12, (b'{"v":1,"n":"x"}', b'{"n":2.5}'))
    for selector, on_columns in SELECTORS:
        program = global_program("left", SELECTED[0], selector)
        (sub,) = build_plan(program, "a").sub_topologies
        remarks = [one.remark for one in ways(sub) if "JOIN" in one.node]
        if on_columns:
            seen = played(program, steps, partitions=TABLES)
            assert any(topic == "out" for topic, _ in seen.topics), seen.failed
            assert remarks == ["fields of JSON are copied as bytes"]
        else:
            assert remarks == ["the selector takes values: write it as an expression, such as col('user')"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "fail"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_without_fields_meets_the_policy(kind: str, policy: str) -> None:
    topology = program(kind, JoinWindows(9, 9, 5), SELECTED[0])
    seen = check_both_ways(topology, feed(4, values=(*FORMS, b'"text"')), partitions=PARTITIONS, processing=policy)
    assert (seen.failed is not None) == (policy == "fail")


def _refuse(*_: Any) -> Any:
    raise AssertionError("an object was made")


@pytest.mark.parametrize("kind", KINDS)
def test_no_object_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topology that only names fields: neither values are read, nor joiners called."""
    monkeypatch.setattr(PairStep, "_called", _refuse)
    monkeypatch.setattr(JoinedObjects, "_defined", _refuse)
    monkeypatch.setattr("streams.operators.columnar.read_all", _refuse)
    with counted(StreamStreamJoin) as answers:
        steps = feed(12, values=(b'{"v":1,"n":"x"}', b'{"n":2.5}'))
        seen = played(program(kind, JoinWindows(9, 9, 5), SELECTED[0]), steps, (1, 2), partitions=PARTITIONS)
    assert set(answers) == {"together"}
    assert any(seen.topics["out", partition] for partition in range(2))
