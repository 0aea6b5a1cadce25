"""What a worker reports about its stores comes through JSON to the driver."""

from __future__ import annotations

import random
from pathlib import Path

import orjson

from state.commit.decide import TaskIdentity
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.codec import timestamped
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.metrics.application import StepFigures
from streams.spark.worker import _about_stores
from tests.metrics.made import report
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random


def test_sizes_and_restores_come_through(tmp_path: Path) -> None:
    logs, live = MemoryLogs(), TaskStore(MemoryTable(), SPECS)
    write_random(live, random.Random(4), now=20)
    live.store("table").put(b"sure", timestamped(b"v", 1), 1)
    marker = marker_of(commit(live, logs, 1))
    identity = TaskIdentity(APPLICATION, "orders", 0, 1, "query", "hash")
    memory = WorkerMemory()
    first, second = (TaskStateManager(logs, identity, SPECS, tmp_path, memory=memory) for _ in range(2))
    for stores in (first, second):
        with stores.open() as store:
            stores.restore_to(store, marker)
    figures = StepFigures.of(orjson.loads(orjson.dumps(report(**_about_stores(first)))))
    assert figures.state is not None
    assert figures.state.disk_bytes > 0
    assert figures.state.stores["table"].rows == len(list(live.rows("table")))
    assert figures.restore is not None
    assert figures.restore.records >= figures.restore.rows > 0
    # Nothing to restore, and measured a moment ago.
    assert _about_stores(second) == {}
