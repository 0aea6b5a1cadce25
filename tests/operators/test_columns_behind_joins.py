"""Aggregates and filters behind joins by `fields(...)` read columns of the joined texts: the same results as record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    KStream,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    Topology,
    agg,
    col,
    fields,
)
from streams.operators import json_fields
from streams.operators.aggregate.column_aggregate import PickedFields
from streams.operators.aggregate.column_rows import FieldValues
from streams.operators.join.stream_join import PairStep
from streams.testing import TopologyTestDriver
from streams.topology.plan import plan_alone
from streams.topology.ways import Way, ways
from tests.both_ways import check_both_ways
from tests.budget import up_to
from tests.operators.join_inputs import KINDS, PARTITIONS, feed, windows

VALUES = (
    b'{"v":1,"n":{"a":2.5}}',
    b'{"v":7,"n":{"a":-1},"at":9}',
    b'{ "v" : 2, "at": "1970-01-01T00:00:00.020Z" }',
    b'{"v":"text","n":[1,{"a":3}]}',
    b'{"v":1,"v":2.50}',
    b'{"v":12345678901234567890,"n":{"a":"\\u00e9\\""}}',
    b'{"v":1.7e308}',
    b"{}",
    b"[3]",
    b"null",
    None,
)
SELECTED = fields(left=["v", "at"], right=["n"], w=col("right.v"), a=col("right.n.a"))
GROUPS = (None, TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), (TimeWindows(10, 5, 30), EmitStrategy.on_window_close()))
BOUNDED = JoinWindows.until(col("at"), at_most=15, grace=5)


def aggregated(
    stream: KStream[Any, Any], group: Any, *, caching: bool = True, distinct: bool = False
) -> KStream[Any, Any]:
    """Built-in aggregates of all sorts, of fields that are there, missing, nested and computed."""
    found: Any = stream.group_by_key()
    if group is not None:
        time, emit = group if isinstance(group, tuple) else (group, EmitStrategy.on_window_update())
        found = found.windowed_by(time).emit_strategy(emit)
    wanted: dict[str, Any] = {
        "n": agg.count(),
        "sum": agg.sum("w"),
        "mean": agg.mean("a"),
        "most": agg.max("n.a"),
        "twice": agg.sum(col("v") * 2),
        "first": agg.first("n"),
        "none": agg.last("other"),
        "best": agg.max_by(fields("v", "n", w=col("w")), by="a"),
        "few": agg.collect("v", last=3),
        "some": agg.count(where=col("a") > 0),
    }
    if distinct:
        wanted |= {"v": agg.count_distinct("v"), "a": agg.count_distinct("a", where=col("w") > 0)}
    table = found.aggregate(**wanted, materialized=Materialized(name="rows", caching=caching))
    result: KStream[Any, Any] = table.to_stream()
    return result


def program(kind: str, within: JoinWindows, group: Any, where: Any = None, *, distinct: bool = False) -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    joined = join(right, SELECTED, within)
    aggregated(joined if where is None else joined.filter(where), group, distinct=distinct).to("out")
    return builder.build()


@contextmanager
def scanned(few: int = 0) -> Iterator[list[int]]:
    """Within the context, the numbers of records whose fields an aggregation has scanned; up to so many stay records."""
    counts: list[int] = []

    def counting(batch: Any, paths: Any) -> Any:
        found = json_fields.with_fields(batch, paths)
        counts.extend([len(found)] * isinstance(found.values, FieldValues))
        return found

    with (
        mock.patch("streams.engine.task.task_graph.with_fields", counting),
        mock.patch.object(json_fields, "FEW_CELLS", few),
    ):
        yield counts


@pytest.mark.slow
@up_to(60)
@given(
    st.sampled_from(KINDS),
    windows() | st.just(BOUNDED),
    st.integers(0, 10**6),
    st.sampled_from(GROUPS),
    st.sampled_from(("strict", "compat")),
    st.sets(st.integers(0, 3)),
    st.sampled_from((0, 0, 5, 20)),
    st.sampled_from(("skip", "fail")),
    st.sampled_from((None, col("a") > 0, col("w").is_not_null() | (col("n.a") == 3))),
    st.booleans(),
)
def test_aggregates_of_joined_texts(kind, within, seed, group, mode, restarts, few, policy, where, distinct) -> None:
    """Within a step and across steps, with values of all forms and of wrong types, as columns and some of them as records."""
    steps = feed(seed, values=VALUES if policy == "skip" else VALUES[:2])
    with scanned(few):
        check_both_ways(
            program(kind, within, group, where, distinct=distinct),
            steps,
            tuple(restarts),
            partitions=PARTITIONS,
            mode=mode,
            processing=policy,
        )


@pytest.mark.slow
@up_to(30)
@given(st.integers(0, 10**6), st.sampled_from(GROUPS), st.sampled_from((0, 5)), st.booleans())
def test_results_that_come_in_several_batches_of_a_step(seed: int, group: Any, few: int, distinct: bool) -> None:
    """Those of a join at the end of a step, where its time goes on by itself, follow those of the step's records."""
    topology = program("outer", JoinWindows(6, 6, 2), group, distinct=distinct)
    with scanned(few):
        check_both_ways(
            topology,
            feed(seed, values=VALUES),
            (1,),
            apart_ms=30,
            partitions=PARTITIONS,
            processing="skip",
            settings={"idle_timeout_ms": 10, "wall_clock_interval_ms": 5},
        )


KEYS = (col("w"), col("n"), fields("v", a=col("n.a")), col("v") * 2)


@pytest.mark.slow
@up_to(24)
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from(KEYS), st.booleans())
def test_keys_of_joined_texts(seed: int, kind: str, key: Any, looked_at: bool) -> None:
    """New keys of fields, behind which the texts are as they were; or of objects, because something has read them before."""
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    joined = join(right, SELECTED, JoinWindows(6, 6, 2))
    joined = joined.peek(lambda value: value.get("v")) if looked_at else joined
    joined.select_key(key).to("out", key_serde=JsonSerde())
    with scanned():
        check_both_ways(builder.build(), feed(seed, values=VALUES), (1,), partitions=PARTITIONS, processing="skip")


@pytest.mark.slow
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_aggregates_behind_a_join_with_a_table(seed: int, caching: bool) -> None:
    builder = StreamsBuilder()
    joined = builder.stream("left").left_join(builder.table("right"), SELECTED)
    aggregated(joined, None, caching=caching).to("out")
    with scanned() as counts:
        check_both_ways(builder.build(), feed(seed, values=VALUES), (1,), partitions=PARTITIONS, processing="skip")
    assert bool(counts) == caching


def test_a_join_until_a_field_makes_texts_of_which_an_aggregation_reads_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the joiner is called, nor is a record added by itself."""
    monkeypatch.setattr(PairStep, "_called", mock.Mock(side_effect=AssertionError("objects were joined")))
    monkeypatch.setattr(PickedFields, "records", mock.Mock(side_effect=AssertionError("records were added")))
    topology = program("inner", BOUNDED, None, col("w") > 3)
    with scanned() as counts, TopologyTestDriver(topology) as driver:
        left, right = map(driver.create_input_topic, ("left", "right"))
        with driver.batch():
            left.pipe_input("k", {"v": 1, "at": 20}, 10)
            for price in (5, 9, 7, 3):
                right.pipe_input("k", {"v": price, "n": {"a": price}}, 12)
        (found,) = driver.create_output_topic("out").read_values_to_list()
        assert (found["n"], found["sum"], found["best"]["w"]) == (3, 21, 9)
    assert counts == [3]


def test_explain_says_where_columns_come_from() -> None:
    def way(topology: Topology) -> tuple[Way, str]:
        (sub,) = plan_alone(topology).sub_topologies
        return next((one.way, one.remark) for one in ways(sub) if "AGGREGATE" in one.node)

    assert way(program("outer", BOUNDED, GROUPS[1])) == (Way.COLUMNS, "of the texts that joins make")
    builder = StreamsBuilder()
    joined = builder.stream("left").join(builder.stream("right"), lambda left, right: {**left, **right}, BOUNDED)
    aggregated(joined, None).to("out")
    assert way(builder.build())[0] is Way.TOGETHER


def test_records_that_an_aggregation_drops_are_whole_where_somebody_takes_them() -> None:
    builder = StreamsBuilder()
    joined = builder.stream("left").join(builder.stream("right"), SELECTED, JoinWindows(9, 9, 5))
    table = joined.group_by_key().windowed_by(GROUPS[1]).aggregate(n=agg.count())
    table.dropped().to("dropped")
    table.to_stream().to("out")
    with scanned() as counts:
        seen = check_both_ways(builder.build(), feed(3, values=VALUES[:2]), (), partitions=PARTITIONS)
    assert seen.values("dropped")
    assert not counts
