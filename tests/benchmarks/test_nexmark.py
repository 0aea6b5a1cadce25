"""Nexmark's queries give what DuckDB recomputes, over the test driver with several tasks."""

from __future__ import annotations

import pytest

from benchmarks.nexmark.events import batches
from benchmarks.nexmark.expected import differences
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.workloads import NEXMARK, side
from benchmarks.workloads.base import RunConfig
from streams import BytesSerde, StreamsBuilder
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from streams.topology.ways import Way, ways

EVENTS = 6_000
PARTITIONS = 4
TOPICS = {"events": "events", "side": "side", "out": "out"}


@pytest.fixture(scope="module")
def input_batches():
    return list(batches(EVENTS, PARTITIONS))


@pytest.mark.slow
@pytest.mark.parametrize("workload", NEXMARK, ids=list(QUERIES))
def test_a_query_gives_what_duckdb_recomputes(workload, input_batches):
    config = RunConfig(workload.name, "a", "", TOPICS, PARTITIONS, 2, "exactly-once", "", {})
    with TopologyTestDriver(workload.topology(config), partitions=dict.fromkeys(TOPICS.values(), PARTITIONS)) as driver:
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
    lines, count = differences(workload.query, EVENTS, [found])
    assert not lines
    assert count


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
