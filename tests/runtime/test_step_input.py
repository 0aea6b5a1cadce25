"""What a step begins with, and the way its rows take."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from streams.engine.source.partition_times import with_partition_times
from streams.engine.spark.shuffle import COLUMNS
from streams.engine.spark.worker import ROW_SCHEMA
from streams.engine.step.read import TaskRow


def test_a_step_begins_with_the_partition_times_that_readers_report() -> None:
    before: dict[str, Any] = {"nodes": {"n": 1}, "task": {"time": {"stream_time": 5}}}
    state = with_partition_times(before, {("in", 0): (7, 70), ("in", 1): (3, 30)})
    assert state == {
        "nodes": {"n": 1},
        "task": {"time": {"stream_time": 5}, "partition_times": {"in": {"0": [[7, 70]], "1": [[3, 30]]}}},
    }


def test_the_last_two_times_of_a_partition_are_kept() -> None:
    state: dict[str, Any] = {}
    for offset in (1, 2, 3):
        state = with_partition_times(state, {("in", 0): (offset, 10 * offset)})
    assert state["task"]["partition_times"] == {"in": {"0": [[2, 20], [3, 30]]}}


def test_the_state_of_the_last_commit_stays_as_it_is() -> None:
    last = with_partition_times({}, {("in", 0): (1, 10)})
    with_partition_times(last, {("in", 0): (2, 20), ("other", 0): (1, 1)})
    assert last == {"task": {"partition_times": {"in": {"0": [[1, 10]]}}}}


def test_columns_of_the_shuffle_are_the_fields_of_a_row() -> None:
    names = [name for name, _ in COLUMNS]
    assert names[1:] == [field.name for field in fields(TaskRow)][1:]
    assert ROW_SCHEMA.names == names


WARM_UP = """
import gc, sys
from streams.engine.spark.warm_up import warm_up
warm_up()
warm_up()
from numba.core.dispatcher import Dispatcher
ran = [one.py_func for one in gc.get_objects() if isinstance(one, Dispatcher) and one.signatures]
print(*{one.__module__ for one in ran}, *(f"{one.__module__}.{one.__name__}" for one in ran))
print([name for name in sys.modules if name.startswith("streams.testing")])
"""


@pytest.mark.slow
def test_the_warm_up_runs_every_kernel_of_a_step_and_no_test_driver() -> None:
    """And may run again."""
    done = subprocess.run([sys.executable, "-c", WARM_UP], capture_output=True, text=True, timeout=300, check=True)
    kernels, testing = done.stdout.splitlines()
    assert {
        "state.kafka.native_producer.produce_rows",
        "state.kafka.native_reader.gather",
        "state.kafka.partitioner.hash_cells",
        "streams.operators.aggregate.accumulators",
        "streams.operators.aggregate.column_rows",
        "streams.operators.aggregate.session_aggregate",
        "streams.operators.aggregate.sliding_aggregate",
        "streams.operators.join.joined_objects",
        "streams.operators.json_fields",
        "streams.engine.task.input",
        "streams.serdes.json_scan",
    } <= set(kernels.split())
    assert testing == "[]"
