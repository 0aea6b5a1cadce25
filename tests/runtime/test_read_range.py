"""Rows that a reader sends to tasks, without Spark and Kafka."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from state.columns import RecordColumns
from streams import StreamsBuilder
from streams.engine.graph.rows import decode
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.offsets import OffsetRange
from streams.engine.step.job import QueryJob
from streams.engine.step.read import PlannedCall, PlannedRange, StepRows, call_every_task, read_range
from streams.topology.plan import build_plan

TASKS = 8
RANGE = PlannedRange("batch", "id", OffsetRange("in", 0, 0, 6))


class Seen:
    """Made once in a process; a second query has its own."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, value):
        self.calls += 1
        return [value, self.calls] if value >= 0 else None


def sent_by(topology, pieces=1):
    """What a reader sends for six records, read in one piece or more."""
    size = 6 // pieces
    return list(read_range(job_of(topology), RANGE, [records(at, size) for at in range(0, 6, size)]))


def job_of(topology):
    (sub,) = build_plan(topology, "app").sub_topologies
    return QueryJob(sub, TASKS, TaskSettings("app"), None, {}, Path("unused"), 0, 0, False)


def records(start, size):
    offsets = np.arange(start, start + size, dtype=np.int64)
    keys, values = [b"k%d" % n for n in offsets], [b"%d" % (n - 3) for n in offsets]
    return RecordColumns("in", 0, offsets, offsets, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def called(sent):
    return {row.task for row in sent if row.payload is None}


def counters(sent):
    return orjson.loads(next(row.counters for row in sent if row.counters is not None))


def values(sent):
    blobs = [decode(row.payload).rows.column("value") for row in sent if row.payload is not None]
    return sorted(pickle.loads(value) for blob in blobs for value in blob.to_pylist())


def test_every_task_that_records_were_for_is_called():
    builder = StreamsBuilder()
    enriched = builder.stream("in").enrich(Seen, concurrency=1, named="seen")
    enriched.filter(lambda value: value is not None).map_values(lambda value: value[1]).to("out")
    first, second = sent_by(builder.build()), sent_by(builder.build())
    for sent in (first, second):
        assert {row.task for row in sent if row.payload is not None} < called(sent)
        assert counters(sent)["calls:seen"] == 6
    # The worker process keeps the object: the second reader's calls go on counting.
    assert (values(first), values(second)) == ([4, 5, 6], [10, 11, 12])


def test_without_such_an_operator_only_the_owner_is_called():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: value > 0).to("out")
    assert called(sent_by(builder.build())) == {0}


def test_the_largest_event_time_comes_with_the_row_of_the_owner_whatever_the_pieces():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: value > 0).to("out")
    topology = builder.build()
    for sent in (sent_by(topology), sent_by(topology, pieces=3)):
        assert StepRows.of([row for row in sent if row.task == 0]).event_times == {("in", 0): 5}
        assert [row.event_time for row in sent if row.task != 0] == [None] * len([r for r in sent if r.task != 0])


def test_a_call_is_for_every_task_and_brings_nothing():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: False).to("out")
    rows = list(call_every_task(job_of(builder.build()), PlannedCall("batch", backlog=True)))
    assert {row.task for row in rows} == set(range(TASKS))
    given = StepRows.of(rows)
    assert (given.batch, given.backlog, given.ranges, given.batches) == ("batch", True, {}, [])


def counted_by(key_of):
    builder = StreamsBuilder()
    builder.stream("in").select_key(key_of).group_by_key().count().to_stream().to("out")
    return builder.build()


def routings(sent):
    inputs = {task: StepRows.of([row for row in sent if row.task == task]) for task in range(TASKS)}
    return {task: given.routing for task, given in inputs.items() if given.routing}


def test_keys_that_functions_make_have_a_digest_whatever_the_pieces():
    topology = counted_by(lambda key, value: f"n{value}")
    whole = sent_by(topology)
    assert routings(whole) == routings(sent_by(topology, pieces=3)) == routings(sent_by(topology, pieces=6))
    assert set(routings(whole)) == {row.task for row in whole if row.payload is not None}


def test_another_key_has_another_digest():
    first, second = (routings(sent_by(counted_by(lambda key, value, by=by: f"{by}-{value % 3}"))) for by in (1, 2))
    assert first.keys() & second.keys()
    assert all(first[task] != second[task] for task in first.keys() & second.keys())


def test_keys_of_the_source_need_no_digest():
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value + 1).group_by_key().count().to_stream().to("out")
    assert routings(sent_by(builder.build())) == {}


def test_records_that_are_held_back_have_the_digest_of_their_keys_whatever_comes_of_them():
    def rows(keep):
        builder = StreamsBuilder()
        keyed = builder.stream("in").select_key(lambda key, value: f"n{value}")
        enriched = keyed.enrich(lambda values: [value if keep else None for value in values], batch_size=4)
        enriched.filter(lambda value: value is not None).group_by_key().count().to_stream().to("out")
        return sent_by(builder.build())

    assert routings(rows(True)) == routings(rows(False)) != {}


def test_what_goes_only_to_a_sink_behind_a_new_key_goes_by_its_source_partition():
    keyed = StreamsBuilder()
    keyed.stream("in").select_key(lambda key, value: f"n{value}").to("out")
    sent = sent_by(keyed.build())
    assert {row.task for row in sent} == {0}
    assert routings(sent) == {}


def test_timestamps_too_far_ahead_of_the_planned_time_are_rejected():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    job = job_of(builder.build())
    job = replace(job, settings=TaskSettings("app", max_future_ms=2, future="skip"))
    kept = {}
    for now_ms in (None, 1, 100):
        sent = list(read_range(job, replace(RANGE, now_ms=now_ms), [records(0, 6)]))
        kept[now_ms] = sum(decode(row.payload).rows.num_rows for row in sent if row.payload is not None)
    assert kept == {None: 6, 1: 4, 100: 6}
