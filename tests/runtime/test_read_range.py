"""Rows that a Spark reader sends to tasks, without Spark and Kafka."""

import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import orjson
import pyarrow as pa

from state.kafka.columns import RecordColumns
from streams import StreamsBuilder
from streams.runtime.rows import decode
from streams.runtime.settings import TaskSettings
from streams.source.offsets import OffsetRange
from streams.spark import read
from streams.spark.job import QueryJob
from streams.spark.salts import task_salts
from streams.spark.source import RangePartition
from streams.topology.plan import build_plan

TASKS = 8


class Seen:
    """Made once in a process; a second query has its own."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, value):
        self.calls += 1
        return [value, self.calls] if value >= 0 else None


def rows(topology, monkeypatch, repeated=False):
    """What two readers of one process send, as (task, has records) and counters."""
    offsets = np.arange(6, dtype=np.int64)
    keys, values = [b"k%d" % n for n in range(6)], [b"%d" % (n - 3) for n in range(6)]
    piece = RecordColumns("in", 0, offsets, offsets, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    monkeypatch.setattr(read, "shared_reader", lambda *_, **__: SimpleNamespace(read=lambda *_: [piece]))
    (sub,) = build_plan(topology, "app").sub_topologies
    job = QueryJob(sub, TASKS, TaskSettings("app"), None, {}, Path("unused"), 0, 0, False)
    partition = RangePartition(
        "batch", "id", OffsetRange("in", 0, 0, 6), None, None, backlog=repeated, repeated=repeated
    )
    salts = task_salts(TASKS)
    for _ in range(2):
        sent = [batch.to_pylist()[0] for batch in read.read_range(job.dumps(), partition)]
        counters = next(row["counters"] for row in sent if row["counters"] is not None)
        yield [(salts.index(row["task_key"]), row["payload"]) for row in sent], counters


def values(sent):
    blobs = [decode(payload).rows.column("value") for _, payload in sent[0] if payload is not None]
    return sorted(pickle.loads(value) for blob in blobs for value in blob.to_pylist())


def test_every_task_that_records_were_for_is_called(monkeypatch):
    builder = StreamsBuilder()
    enriched = builder.stream("in").enrich(Seen, concurrency=1, named="seen")
    enriched.filter(lambda value: value is not None).map_values(lambda value: value[1]).to("out")
    first, second = rows(builder.build(), monkeypatch)
    for sent, counters in (first, second):
        with_records = {task for task, payload in sent if payload is not None}
        called = {task for task, payload in sent if payload is None}
        assert with_records < called
        assert orjson.loads(counters)["calls:seen"] == 6
    # The worker process keeps the object: the second reader's calls go on counting.
    assert (values(first), values(second)) == ([4, 5, 6], [10, 11, 12])


def test_without_such_an_operator_only_the_owner_is_called(monkeypatch):
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: value > 0).to("out")
    for sent, _ in rows(builder.build(), monkeypatch):
        assert [task for task, payload in sent if payload is None] == [0]


def test_all_tasks_are_called_again_where_an_earlier_run_has_logged_the_batch(monkeypatch):
    # Another predicate is the same topology; tasks that have committed what it now leaves out must learn of it.
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: False).to("out")
    for sent, _ in rows(builder.build(), monkeypatch, repeated=True):
        assert {task for task, payload in sent if payload is None} == set(range(TASKS))
