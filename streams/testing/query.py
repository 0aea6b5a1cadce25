"""One sub-topology under the test driver: its head, its tasks, their stores and changelogs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from state.changelog.records import ChangelogBatch
from state.stores.task_store import StorePosition, TaskStore
from streams.runtime.head import Head
from streams.runtime.rows import RowBatch, decode, encode
from streams.runtime.settings import TaskSettings
from streams.runtime.task import StepOutput, StreamTask
from streams.runtime.typed_stores import typed_stores
from streams.testing.global_tables import MemoryGlobalTables
from streams.testing.log import MemoryLog
from streams.topology.plan import SubTopology

OpenStore = Callable[[SubTopology, int, bool], TaskStore]


class MemoryQuery:
    """Runs the steps of one sub-topology, as a Spark query would.

    Args:
        sub: What to run.
        tasks: Number of tasks.
        settings: Of the application.
        log: The topics.
        open_store: Opens the stores of a task: (sub-topology, task, wiped).
        global_tables: The application's.
    """

    def __init__(
        self,
        sub: SubTopology,
        tasks: int,
        settings: TaskSettings,
        log: MemoryLog,
        open_store: OpenStore,
        global_tables: MemoryGlobalTables,
    ) -> None:
        self.sub = sub
        self.tasks = tasks
        self._settings = settings
        self._log = log
        self._open_store = open_store
        self._global_tables = global_tables
        self._positions: dict[tuple[str, int], int] = {}
        self._markers: dict[int, bytes] = {}
        self._versions: dict[int, int] = {}
        self._changelogs: dict[tuple[int, str], list[ChangelogBatch]] = {}
        self._stores = {task: open_store(sub, task, True) for task in range(tasks)}
        self._head = Head(sub, tasks, settings)

    @property
    def pending(self) -> bool:
        """Whether there are records that no step has taken."""
        return any(self._log.end(*place) > self._positions.get(place, 0) for place in self._places())

    def step(self, now_ms: int, every_task: bool = False) -> list[StepOutput]:
        """Take all records that are there as one step of each task that they concern.

        Args:
            now_ms: The step's wall clock.
            every_task: Also run tasks without records (a wall-clock step).
        """
        rows: dict[int, list[RowBatch]] = {task: [] for task in range(self.tasks)} if every_task else {}
        ends: dict[tuple[str, int], int] = {}
        for place in self._places():
            columns = self._log.columns(*place, self._positions.get(place, 0))
            if columns is not None:
                ends[place] = self._log.end(*place)
                for task, batch in self._head.run(columns):
                    # Through the wire format, as between a reader and a task.
                    rows.setdefault(task, []).append(decode(encode(batch)))
        done = []
        try:
            for task in sorted(rows):
                done.append((task, self._process(task, rows[task], now_ms)))
        except BaseException:
            for store in self._stores.values():
                store.discard()
            raise
        self._positions.update(ends)
        for task, output in done:
            self._commit(task, output)
        return [output for _, output in done]

    def restart(self, wipe_state: bool) -> None:
        """Stop, lose the local state or not, start again from changelogs and markers."""
        for task, store in self._stores.items():
            position = store.position
            store.close()
            self._stores[task] = fresh = self._open_store(self.sub, task, wipe_state)
            # All of them after a wipe, else those whose layout another program has changed.
            there = fresh.position.changelog_offsets if fresh.position is not None else {}
            missing = [name for name in fresh.logged_stores if name not in there]
            if missing and position is not None:
                for name in missing:
                    for batch in self._changelogs.get((task, name), []):
                        fresh.restore(name, batch.keys, batch.values, batch.timestamps)
                fresh.restored(position)
        self._head = Head(self.sub, self.tasks, self._settings)

    def replace(self, sub: SubTopology, global_tables: MemoryGlobalTables) -> None:
        """Go on with another program from the next restart on."""
        self.sub = sub
        self._global_tables = global_tables

    def close(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            store.close()

    def typed_store(self, name: str, task: int) -> Any:
        """A store of a task as operators see it."""
        return typed_stores(self.sub, self._stores[task], self._settings.application_id)[name]

    @property
    def head_counters(self) -> dict[str, int]:
        """Counters of the head since the last restart."""
        return self._head.counters

    def _places(self) -> list[tuple[str, int]]:
        return [(topic, p) for topic in self.sub.topics for p in range(self._log.partitions(topic))]

    def _process(self, task: int, rows: list[RowBatch], now_ms: int) -> StepOutput:
        state = orjson.loads(self._markers.get(task, b"{}"))
        global_stores = self._global_tables.stores
        return StreamTask(self.sub, task, self._stores[task], state, self._settings, global_stores).process(
            rows, now_ms
        )

    def _commit(self, task: int, output: StepOutput) -> None:
        store = self._stores[task]
        for batch in output.sends:
            self._log.send(batch)
        offsets = dict.fromkeys(store.logged_stores, 0)
        for name, changes in store.changelog().items():
            self._changelogs.setdefault((task, name), []).append(changes)
        for name in offsets:
            offsets[name] = sum(len(batch) for batch in self._changelogs.get((task, name), []))
        self._markers[task] = orjson.dumps(output.operator_state)
        self._versions[task] = self._versions.get(task, 0) + 1
        store.apply(StorePosition(query_id="test", version=self._versions[task], changelog_offsets=offsets))
