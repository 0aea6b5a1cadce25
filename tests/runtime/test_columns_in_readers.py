"""Expressions in readers: what leaves for the tasks, and for which."""

from __future__ import annotations

from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from streams import BytesSerde, KStream, StreamsBuilder, StringSerde, agg, col, fields
from streams.engine.graph.settings import TaskSettings
from streams.engine.reader.pipeline import ReaderPipeline
from streams.testing import TopologyTestDriver
from streams.topology.plan import SubTopology, build_plan
from streams.topology.planning.column_head import ColumnHead

VALUES = [orjson.dumps({"n": n, "user": f"user-{n % 7}", "note": "not needed"}) for n in range(60)]


def records(first: int = 0, end: int = 60) -> RecordColumns:
    numbers = np.arange(first, end, dtype=np.int64)
    keys = pa.array([b"k%d" % (n % 5) for n in range(first, end)], pa.binary())
    return RecordColumns("in", 3, numbers + 100, numbers, keys, pa.array(VALUES[first:end], pa.binary()))


def planned(define) -> SubTopology:
    builder = StreamsBuilder()
    define(builder.stream("in")).group_by_key().aggregate(sum=agg.sum("n"))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    return sub


def rekeyed(stream: KStream) -> KStream:
    return stream.filter(col("n") % 2 == 0).select_key(col("user"))


def read(sub: SubTopology, tasks: int, *pieces: RecordColumns) -> tuple[dict[int, tuple[int, bytes]], dict[int, str]]:
    """Offset -> task and key; and the digests of the keys."""
    head = ReaderPipeline(sub, tasks, TaskSettings("app"))
    found = {}
    for piece in pieces:
        for task, batch in head.run(piece):
            keys = batch.rows.column("key").cast(pa.binary()).to_pylist()
            found.update(zip(batch.rows.column("offset").to_pylist(), [(task, key) for key in keys], strict=True))
    return found, head.routings()


@pytest.mark.parametrize("tasks", [1, 3])
def test_new_keys_go_to_the_tasks_to_which_they_go_record_by_record(tasks: int) -> None:
    on_columns = read(planned(rekeyed), tasks, records())
    with mock.patch("streams.topology.plan.column_head", lambda nodes, *_: ColumnHead(paths=dict.fromkeys(nodes, ()))):
        sub = planned(rekeyed)
    assert sub.entries[0].transport == "object"
    assert on_columns == read(sub, tasks, records())
    assert len(on_columns[0]) == 30


def test_the_digest_of_new_keys_does_not_depend_on_the_pieces() -> None:
    sub = planned(rekeyed)
    whole = read(sub, 2, records())
    assert whole == read(sub, 2, records(0, 11), records(11, 60))
    assert set(whole[1]) == {0, 1}
    assert sub.keyed_by == tuple(name for name in sub.nodes if "KEY-SELECT" in name)


def test_only_the_fields_and_rows_that_an_aggregate_needs_leave_the_reader() -> None:
    sub = planned(lambda stream: stream.filter(col("user") == "user-1").map_values(fields(n=col("n") * 2)))
    (batch,) = [batch for _, batch in ReaderPipeline(sub, 1, TaskSettings("app")).run(records())]
    assert batch.rows.schema.names == ["offset", "seq", "timestamp", "key", "i:n"]
    assert batch.rows.column("i:n").to_pylist() == [2 * n for n in range(60) if n % 7 == 1]


def test_the_error_of_a_record_with_a_new_key_does_not_show_that_key_as_the_records_own() -> None:
    sub = planned(lambda stream: stream.select_key(col("user")))
    (batch,) = [batch for _, batch in ReaderPipeline(sub, 1, TaskSettings("app")).run(records())]
    assert batch.rows.column("source_key").null_count == 60


def test_a_repartition_topic_drops_null_keys_in_compat_mode_and_keeps_the_others_bytes() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(col("user")).repartition().to("out")
    with TopologyTestDriver(builder.build(), mode="compat") as driver:
        with driver.batch():
            for value in (b'{"user":"a","n":1}', b'{"n":2}', b'{"user": "b", "n":3}'):
                driver.create_input_topic("in").pipe_bytes(None, value)
        found = driver.create_output_topic("out", StringSerde(), BytesSerde()).read_key_values_to_list()
        assert found == [("a", b'{"user":"a","n":1}'), ("b", b'{"user":"b","n":3}')]
        assert driver.dropped("null_key") == 1
