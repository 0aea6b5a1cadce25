"""Compiles every kernel (or loads it from numba's cache on disk) by running one step of small topologies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from state.columns import RecordColumns
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from state.warm_up import warm_up as warm_up_state
from streams import JoinWindows, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, agg, fields
from streams.microbatch.job import QueryJob
from streams.microbatch.read import PlannedRange, StepRows, TaskRow, read_range
from streams.runtime.settings import TaskSettings
from streams.runtime.task.task import StreamTask
from streams.serdes.json_scan import normal_json
from streams.source.offsets import OffsetRange
from streams.source.planner import SourceSpec
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology

_APPLICATION = "warm-up"
_TASKS = _PARTITIONS = 2
_RECORDS = 2


def warm_up() -> None:
    """Runs all vectorised code once: JSON scanning, merging, windows, groups, joins, murmur2, gathering."""
    warm_up_state()
    normal_json(pa.array([b"{}"], pa.binary()))
    _run(_topology(), TaskSettings(application_id=_APPLICATION))
    _run(_outer_join(), TaskSettings(application_id=_APPLICATION, mode="compat"))


def _run(topology: Topology, settings: TaskSettings) -> None:
    for sub in build_plan(topology, _APPLICATION).sub_topologies:
        rows = list(_rows(sub, settings))
        for task in range(_TASKS):
            store = TaskStore(MemoryTable(), [node.spec for node in sub.stores.values()])
            given = StepRows.of(row for row in rows if row.task == task)
            StreamTask(sub, task, store, {}, settings).process(given.batches, now_ms=0)


def _topology() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    for windows in (
        TimeWindows.of_size_and_grace(2, 1).advance_by(1),
        SessionWindows.of_inactivity_gap_and_grace(2, 1),
        SlidingWindows.of_time_difference_and_grace(2, 1),
    ):
        grouped.windowed_by(windows).aggregate(
            n=agg.count(), low=agg.min("x"), high=agg.max("x"), mean=agg.mean("x"), last=agg.last("s")
        )
    grouped.aggregate(int, lambda value, count: count + 1)
    builder.stream("repeated").deduplicate(1)
    left, right = builder.stream("left"), builder.stream("right")
    left.as_of_join(right, lambda left, right: left, 1, grace=0)
    left.left_join(right, lambda left, right: left, JoinWindows.of_time_difference_and_grace(1, 0))
    return builder.build()


def _outer_join() -> Topology:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_and_grace(1, 0)
    builder.stream("left").outer_join(builder.stream("right"), fields(left="*", right=["s"]), windows)
    return builder.build()


def _rows(sub: SubTopology, settings: TaskSettings) -> Iterator[TaskRow]:
    topics = sub.topics
    job = QueryJob(
        sub, _TASKS, settings, SourceSpec(dict.fromkeys(topics, "earliest")), {}, Path(), 0, 0, bulk_io=False
    )
    for topic in topics:
        for partition in range(_PARTITIONS):
            planned = PlannedRange("batch", "topic", OffsetRange(topic, partition, 0, _RECORDS), now_ms=0)
            yield from read_range(job, planned, [_records(topic, partition)])


def _records(topic: str, partition: int) -> RecordColumns:
    """Records whose keys are spread over both tasks."""
    numbers = np.arange(_RECORDS, dtype=np.int64)
    keys = [f"key-{number}".encode() for number in numbers]
    values = [orjson.dumps({"x": number / 2, "s": "text"}) for number in range(_RECORDS)]
    return RecordColumns(
        topic, partition, numbers, numbers, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), None
    )


if __name__ == "__main__":
    warm_up()
