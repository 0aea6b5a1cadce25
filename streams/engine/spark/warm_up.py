"""Compiles every kernel (or loads it from numba's cache on disk) by running one step of small topologies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from state.columns import COUNTERS, RecordColumns, numbers_at, prefix_ends, sliced
from state.kafka.librdkafka import bulk_available
from state.kafka.librdkafka import library as librdkafka
from state.kafka.partitioner import partition_for_keys
from state.sorting import numbered, sorted_rows
from state.stores.task_store import TaskStore
from state.tables.buffer import BufferMemory, WriteBuffer
from state.tables.native_library import library as rocksdb
from state.tables.native_library import native_available
from state.tables.table import MemoryTable
from streams import JoinWindows, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, agg, fields
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.offsets import OffsetRange
from streams.engine.source.topics import SourceSpec
from streams.engine.step.job import QueryJob
from streams.engine.step.read import PlannedRange, StepRows, TaskRow, read_range
from streams.engine.task.task import StreamTask
from streams.operators.late import import_all
from streams.serdes.json_scan import normal_json
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology

# --- Compiles (or loads from numba's cache on disk) the kernels of `state` before they are needed.
#
# The first call of a kernel costs up to seconds on a new machine, and tens of milliseconds afterwards. The worker daemon pays this
# once, before it forks. Invariant: no client is created and no database opened, because their threads do not survive a fork.


def _warm_up_state() -> None:
    """Runs every kernel of `state` once, with the argument types of real calls."""
    _columns_and_tables()
    if bulk_available():
        _kafka()
    if native_available():
        _rocksdb()


def _columns_and_tables() -> None:
    # There are enough rows for every way of sorting, some of them with equal keys.
    keys = pa.array([number.to_bytes(9, "big") for number in (*range(1000, 0, -1), 7, 7)], pa.binary())
    table = MemoryTable()
    table.write_columns(keys[:1], keys[:1])
    buffer = WriteBuffer(table, BufferMemory(), b"\x00")
    for _ in range(2):
        buffer.put_columns(keys, keys, np.zeros(len(keys), np.int64))
    # These are more than the few rows that are looked up one by one.
    buffer.get_columns(keys[:20])
    buffer.scan_ranges(keys[1:21], prefix_ends(keys[:20]))
    numbered(keys, sorted_rows(keys))
    numbers_at(sliced(keys, 1), 0)
    partition_for_keys(keys[:1], 1)


def _kafka() -> None:
    from state.kafka import native_producer, native_reader
    from state.kafka.interceptors import on_acknowledgement, on_send

    messages, functions = np.zeros(1, np.int64), np.zeros(4, np.int64)
    native_reader.gather(messages, 0, 0, 0, functions, np.zeros((2, 0), np.int64), np.zeros((3, 4), np.int64))
    native_reader.destroy(messages, 0, 0, functions)
    table, arguments = np.zeros((3, 3), np.int64), native_producer.new_arguments(0, 0)
    native_producer.produce_rows(0, functions, 0, np.zeros(0, np.int32), np.zeros(0, np.int64), table, arguments)
    on_send()
    on_acknowledgement()
    librdkafka()


def _rocksdb() -> None:
    # Importing the table compiles the functions of `native_objects`.
    from state.tables import native_kernels as kernels
    from state.tables.native_table import kernel_functions

    functions = kernel_functions(rocksdb())
    counters, error = np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
    pair, columns = np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int64)
    kernels.get_cells(0, 0, 0, functions, pair[:1], 0, columns[:1], counters, error)
    state = np.zeros(kernels.SCAN_STATE + 1, np.int64)
    kernels.scan_ranges(0, functions, pair, np.empty(0, np.int32), columns, counters, state, error)
    kernels.scan_part(0, functions, pair, 0, columns, counters, error)
    kernels.batch_bytes(pair, 0)
    kernels.fill_batch(pair, 0, 0)
    kernels.fill_file(0, functions, pair, 0, error)


_APPLICATION = "warm-up"
_TASKS = _PARTITIONS = 2
_RECORDS = 2


def warm_up() -> None:
    """Imports all operators, and runs all vectorised code once: scans of JSON, merges, windows, groups, joins, murmur2."""
    _warm_up_state()
    import_all()
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
