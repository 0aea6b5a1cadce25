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
from streams.testing.faults import CrashedError, Faults
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
        faults: Where tasks are to die.
    """

    def __init__(
        self,
        sub: SubTopology,
        tasks: int,
        settings: TaskSettings,
        log: MemoryLog,
        open_store: OpenStore,
        global_tables: MemoryGlobalTables,
        faults: Faults,
    ) -> None:
        self.sub = sub
        self.tasks = tasks
        self._settings = settings
        self._log = log
        self._open_store = open_store
        self._global_tables = global_tables
        self._faults = faults
        self._positions: dict[tuple[str, int], int] = {}
        self._markers: dict[int, bytes] = {}
        self._committed: dict[int, StorePosition] = {}
        self._changelogs: dict[tuple[int, str], list[ChangelogBatch]] = {}
        self._stores = {task: open_store(sub, task, True) for task in range(tasks)}
        self._head = Head(sub, tasks, settings)
        self._starts = 1

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
        ends = {place: self._log.end(*place) for place in self._places()}
        done: dict[int, StepOutput] = {}
        while True:
            try:
                self._attempt(ends, now_ms, every_task, done)
                break
            except CrashedError as crash:
                # The step is repeated over the same records; tasks that have committed it find that they have.
                self._reopen(crash.wipe_state)
        self._positions.update(ends)
        return [done[task] for task in sorted(done)]

    def _attempt(
        self, ends: dict[tuple[str, int], int], now_ms: int, every_task: bool, done: dict[int, StepOutput]
    ) -> None:
        """Process what no task has committed yet, then commit task by task into `done`."""
        rows: dict[int, list[RowBatch]] = {task: [] for task in range(self.tasks)} if every_task else {}
        made = []
        try:
            self._read(rows, ends)
            for task in sorted(rows.keys() - done.keys()):
                made.append((task, self._process(task, rows[task], now_ms)))
        except BaseException:
            for store in self._stores.values():
                store.discard()
            self._head.close()
            raise
        for task, output in made:
            self._faults.reach("process_done", task)
            self._commit(task, output)
            done[task] = output
            self._faults.reach("after_commit", task)
            self._stores[task].apply(self._committed[task])
            self._faults.reach("store_applied", task)

    def _read(self, rows: dict[int, list[RowBatch]], ends: dict[tuple[str, int], int]) -> None:
        """Run the head over what is there, into the rows of each task."""
        for place, end in ends.items():
            columns = self._log.columns(*place, self._positions.get(place, 0), end)
            if columns is not None:
                for task, batch in self._head.run(columns):
                    # Through the wire format, as between a reader and a task.
                    rows.setdefault(task, []).append(decode(encode(batch)))

    def restart(self, wipe_state: bool) -> None:
        """Stop, lose the local state or not, start again from changelogs and markers."""
        self._reopen(wipe_state)
        self._starts += 1

    def _reopen(self, wipe_state: bool) -> None:
        """Open all stores anew, and bring them to where the last commits were."""
        for task, store in self._stores.items():
            store.close()
            self._stores[task] = fresh = self._open_store(self.sub, task, wipe_state)
            if (committed := self._committed.get(task)) is not None:
                self._bring_to(committed, fresh, task)
        self._head.close()
        self._head = Head(self.sub, self.tasks, self._settings)

    def _bring_to(self, committed: StorePosition, store: TaskStore, task: int) -> None:
        """Restore what is missing: after a wipe all, after a crash a tail, else what another program lays out anew."""
        there = store.position.changelog_offsets if store.position is not None else {}
        behind = [
            name for name in store.logged_stores if there.get(name, -1) < committed.changelog_offsets.get(name, 0)
        ]
        for name in behind:
            offset = 0
            for batch in self._changelogs.get((task, name), []):
                if offset >= there.get(name, 0):
                    store.restore(name, batch.keys, batch.values, batch.timestamps)
                offset += len(batch)
        if behind or (store.position is not None and store.position.version < committed.version):
            store.restored(committed)

    def replace(self, sub: SubTopology, global_tables: MemoryGlobalTables) -> None:
        """Go on with another program from the next restart on."""
        self.sub = sub
        self._global_tables = global_tables

    def close(self) -> None:
        """Close the stores, and what operators have open."""
        self._head.close()
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
            rows, now_ms, start=str(self._starts)
        )

    def _commit(self, task: int, output: StepOutput) -> None:
        """What is one transaction in production; the store has it only when it is applied."""
        store = self._stores[task]
        for batch in output.sends:
            self._log.send(batch)
        offsets = dict.fromkeys(store.logged_stores, 0)
        for name, changes in store.changelog().items():
            self._changelogs.setdefault((task, name), []).append(changes)
        for name in offsets:
            offsets[name] = sum(len(batch) for batch in self._changelogs.get((task, name), []))
        self._markers[task] = orjson.dumps(output.operator_state)
        version = self._committed[task].version + 1 if task in self._committed else 1
        self._committed[task] = StorePosition(query_id="test", version=version, changelog_offsets=offsets)
