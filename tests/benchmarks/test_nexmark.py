"""Nexmark's queries give what DuckDB recomputes, over the test driver with several tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from benchmarks.nexmark.events import batches
from benchmarks.nexmark.expected import EXPECTED, differences
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.workloads import NEXMARK, side
from benchmarks.workloads.base import RunConfig
from streams import BytesSerde, StreamsBuilder
from streams.engine.graph.node import NodeContext, NodeRunner
from streams.engine.task import task_graph
from streams.operators.aggregate.column_rows import FieldValues
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from streams.topology.ways import Way, ways

EVENTS = 6_000
PARTITIONS = 4
TOPICS = {"events": "events", "side": "side", "out": "out"}


@pytest.fixture(scope="module")
def input_batches():
    return list(batches(EVENTS, PARTITIONS))


@contextmanager
def ways_taken() -> Iterator[dict[str, set[Way]]]:
    """Within the context, notes for each node of tasks and readers how it gets records, by its name."""
    found: dict[str, set[Way]] = defaultdict(set)
    process_group, receive, attempt_each = task_graph.process_group, NodeRunner.receive, NodeContext.attempt_each
    with_fields, first = task_graph.with_fields, ""

    def of_group(runners: Any, inboxes: Any, *others: Any) -> None:
        nonlocal first
        first = runners[0].name
        for runner, inbox in zip(runners, inboxes, strict=True):
            if inbox:
                found[runner.name].add(Way.COLUMNS if inbox.has_fields else Way.TOGETHER)
        process_group(runners, inboxes, *others)

    def of_texts(batch: Any, paths: Any) -> Any:
        made = with_fields(batch, paths)
        if isinstance(made.values, FieldValues):
            found[first].add(Way.COLUMNS)
        return made

    def of_record(runner: NodeRunner, record: Any) -> None:
        found[runner.name].add(Way.ONE_BY_ONE)
        receive(runner, record)

    def of_each(context: NodeContext, *arguments: Any) -> None:
        found[context.node].add(Way.ONE_BY_ONE)
        attempt_each(context, *arguments)

    with (
        mock.patch.object(task_graph, "process_group", of_group),
        mock.patch.object(task_graph, "with_fields", of_texts),
        mock.patch.object(NodeRunner, "receive", of_record),
        mock.patch.object(NodeContext, "attempt_each", of_each),
    ):
        yield found


def check_explained(topology: Any, taken: dict[str, set[Way]], counts: dict[str, int]) -> None:
    """Requires that each node that got records got them as `explain` says, and none one by one for want of another way."""
    assert not [name for name in counts if name.startswith("one_by_one:")]
    said = {one.node: one for sub in build_plan(topology, "a").sub_topologies for one in ways(sub)}
    for name, found in taken.items():
        way = Way.ONE_BY_ONE if Way.ONE_BY_ONE in found else Way.COLUMNS if Way.COLUMNS in found else Way.TOGETHER
        assert said[name].place == "tasks", "the readers work on columns"
        assert said[name].way is way, name


@pytest.mark.slow
@pytest.mark.parametrize("workload", NEXMARK, ids=list(QUERIES))
def test_a_query_gives_what_duckdb_recomputes(workload, input_batches):
    config = RunConfig(workload.name, "a", "", TOPICS, PARTITIONS, 2, "exactly-once", "", {})
    topology = workload.topology(config)
    with (
        TopologyTestDriver(topology, partitions=dict.fromkeys(TOPICS.values(), PARTITIONS)) as driver,
        ways_taken() as taken,
    ):
        for batch in ([side(PARTITIONS)] if "side" in workload.inputs else []) + input_batches:
            topic = driver.create_input_topic(batch.role, key_serde=BytesSerde(), value_serde=BytesSerde())
            keys = [None] * len(batch) if batch.keys is None else batch.keys.to_pylist()
            rows = zip(
                keys, batch.values.to_pylist(), batch.timestamps.tolist(), batch.partitions.tolist(), strict=True
            )
            with driver.batch():
                for key, value, time, partition in rows:
                    topic.pipe_input(key, value, time, partition=partition)
        output = driver.create_output_topic("out", key_serde=BytesSerde(), value_serde=BytesSerde())
        found = [(record.key, record.value) for record in output.read_records_to_list()]
        assert not driver.dropped()
        check_explained(topology, taken, driver.counts())
    lines, count = differences(workload.query, EVENTS, [found])
    assert not lines
    assert count
    check_refused(workload.query, found)


def check_refused(query: str, found: list[tuple[bytes | None, bytes | None]]) -> None:
    """Requires that an output is refused that lacks a result, or that has one twice."""
    if not EXPECTED[query].is_table:
        assert differences(query, EVENTS, [found[:-1]])[0][-1] == "missing: 1 in all"
        assert differences(query, EVENTS, [found, found[-1:]])[0][-1] == "not expected: 1 in all"
        return
    lost = next(key for key, value in dict(found).items() if value is not None)
    assert differences(query, EVENTS, [[one for one in found if one[0] != lost]])[0]


def test_readers_make_no_objects_and_topics_take_their_bytes():
    written = []
    for query, define in QUERIES.items():
        builder = StreamsBuilder()
        result = define(builder, TOPICS)
        (result.to_stream() if hasattr(result, "to_stream") else result).to("out")
        for sub in build_plan(builder.build(), "a").sub_topologies:
            found = ways(sub)
            assert not [one for one in found if one.place == "readers" and one.way is Way.ONE_BY_ONE]
            written += [query for one in found if one.node == "KSTREAM-SINK-out" and one.way is Way.BYTES]
    assert written == ["q0", "q1", "q2", "q10", "q14", "q21", "q22"]
