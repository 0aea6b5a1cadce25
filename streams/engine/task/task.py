"""A task: one step of one sub-topology and partition, and how far idle time advances its stream time.

A task is idle once it has had no record for `idle_timeout_ms` of the wall clock, according to the times of its own steps, which
Spark has logged. Two situations do not count as idle, because they would make later records late through no fault of their own:

* a backlog: a step without records, while the source holds records back for a later micro-batch;
* time in which the application did not run: each start counts from its first step. Whatever stopped the application
  (a broker, a network, a deployment) may have stopped its producers too, and they need time to catch up.

Example, with a timeout of 10 s: the last record came in a step at 0 s. Steps without records at 4, 12 and 15 s advance stream time
by 0, 12 and 3 s.

Invariant: the same steps at the same times give the same result; a step repeated at the same time adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state.changelog import commits_topic
from state.headers import decode_headers
from streams.engine.graph.handlers import NOWHERE, DeadLetter
from streams.engine.graph.looked_up import note_looked_up
from streams.engine.graph.outputs import OutputTopics, SendBatch, UnlimitedTopics, placed
from streams.engine.graph.rows import DEAD_LETTER_ENTRY, RowBatch
from streams.engine.graph.settings import TaskSettings
from streams.engine.graph.step_context import ChangedInPlace, StepContext, check_operator_state
from streams.engine.graph.typed_stores import StoreProvider, typed_stores
from streams.engine.task.input import admit
from streams.engine.task.task_graph import TaskGraph
from streams.model.record import NO_TIME
from streams.operators.processor import PunctuationType
from streams.operators.stream_time import STREAM_TIME, idle_from
from streams.topology.plan import SubTopology


def idle_ms(state: dict[str, Any], timeout_ms: int, now_ms: int, start: str, busy: bool) -> int:
    """How far event time advances in this step, ms: by the idle time that no earlier step has counted."""
    if busy or state.get("start") != start:
        state.update(start=start, since=now_ms, idle=False)
        return 0
    elapsed: int = now_ms - state["since"]
    if elapsed <= 0 or (elapsed < timeout_ms and not state["idle"]):
        return 0
    state.update(since=now_ms, idle=True)
    return elapsed


# --- A task: one step of one sub-topology and partition, from rows to the records and state to commit.
#
# Order: all rows, unit by unit (`streams.topology.planning.units`), with stream-time punctuations between them; if the task is
# idle, stream time advances; wall-clock punctuations; flush in topological order. Invariants: state and stores are only written to
# through the task's buffer, so a failed step leaves no trace; only the arguments determine the result.

_FAILING = "failing"
_STEPS_WITH_PRIVATE_ROWS = 50
"""After one record has made an aggregation fail, others soon will. So the next steps begin with private rows, and run only once."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The result of a step, in addition to the writes pending in the task's store.

    Attributes:
        sends: Records to produce, one batch for each topic.
        operator_state: JSON-able; the input of the next step's task.
        stream_time: Largest timestamp that the task ever read, or later if idle time advanced it; -1 before the first.
        records_in: Input rows, without the dead letters of the readers.
    """

    sends: list[SendBatch]
    operator_state: dict[str, Any]
    counters: dict[str, int]
    stream_time: int
    records_in: int


class StreamTask:
    """Runs one step, and is discarded after it.

    Args:
        task: Number of the task.
        stores: Its stores (`state.stores.task_store.TaskStore`), brought to the last committed step.
        operator_state: `StepOutput.operator_state` of the last committed step; empty before the first.
        settings: Policies and mode.
        global_stores: `GlobalTables.stores`, up to the offsets logged for the step.
        topics: Looks up the output topics in Kafka.
    """

    def __init__(
        self,
        sub: SubTopology,
        task: int,
        stores: StoreProvider,
        operator_state: Mapping[str, Any],
        settings: TaskSettings,
        global_stores: Mapping[str, Any] | None = None,
        topics: OutputTopics | None = None,
    ) -> None:
        self._sub = sub
        self._task = task
        self._stores = stores
        self._operator_state = dict(operator_state)
        self._settings = settings
        self._global_stores = dict(global_stores or {})
        self._topics = topics or UnlimitedTopics()

    def process(
        self,
        batches: Sequence[RowBatch],
        now_ms: int,
        start: str = "",
        backlog: bool = False,
        halfway: Callable[[], None] | None = None,
    ) -> StepOutput:
        """Runs the step.

        Raises:
            RecordFailedError: A record cannot be handled and its policy is `fail`.
            OperatorStateError: The operators' state exceeds the commit marker.
        """
        failing = self._operator_state.get("task", {}).get(_FAILING, {}).get("steps", 0)
        if not failing:
            try:
                return self._process(batches, now_ms, start, backlog, halfway, 0)
            except ChangedInPlace:
                self._stores.discard()
        return self._process(batches, now_ms, start, backlog, halfway, failing or _STEPS_WITH_PRIVATE_ROWS)

    def _process(
        self,
        batches: Sequence[RowBatch],
        now_ms: int,
        start: str,
        backlog: bool,
        halfway: Callable[[], None] | None,
        failing: int,
    ) -> StepOutput:
        """Runs the step once. `failing` is the number of steps, this one included, in which rows are private."""
        run = StepContext(
            self._settings,
            f"{self._sub.index}_{self._task}",
            now_ms,
            private_rows=failing > 0,
            operator_state=self._operator_state,
            topics=self._topics,
            counted_by=self._sub.counted_by,
            retry_topics=self._sub.delays,
        )
        run.operator_state.get("task", {}).pop(_FAILING, None)
        app, room = self._settings.application_id, run.outputs.room_for_state
        run.stores = {**self._global_stores, **typed_stores(self._sub, self._stores, app, room, self._settings.mode)}
        run.stream_time = run.state("task", "time").get(STREAM_TIME, NO_TIME)
        graph = TaskGraph(self._sub, run)
        try:
            records_in = self._run(graph, run, batches, halfway or (lambda: None))
            self._end(graph, run, self._idle_ms(run, start, backlog or bool(batches)))
            run.check_values()
        finally:
            graph.close()
        if failing > 1:
            run.state("task", _FAILING)["steps"] = failing - 1
        run.state("task", "time")[STREAM_TIME] = run.stream_time
        for store, stream_time in run.store_times.items():
            retention_ms = self._sub.stores[store].spec.retention_ms
            if retention_ms is not None and stream_time > retention_ms:
                self._stores.expire(store, stream_time - retention_ms)
        graph.count()
        note_looked_up(run.operator_state, run.counters)
        check_operator_state(run.operator_state, run.task_id, room(commits_topic(app, self._sub.name)))
        sends = [self._placed(batch, run) for batch in run.collector.batches()]
        return StepOutput(sends, run.operator_state, dict(run.counters), run.stream_time, records_in)

    def _placed(self, batch: SendBatch, run: StepContext) -> SendBatch:
        """Assigns each record to the partition in which its reader looks for its key."""
        placement = self._settings.placements.get(batch.topic)
        if placement is None:
            return batch
        partitions = run.outputs.target(batch.topic).partitions
        if not partitions:
            raise ValueError(f"the number of partitions of topic {batch.topic!r} is not known")
        return placed(batch, partitions, placement, own=self._task % partitions)

    def _run(self, graph: TaskGraph, run: StepContext, batches: Sequence[RowBatch], halfway: Callable[[], None]) -> int:
        letters = [batch for batch in batches if batch.entry == DEAD_LETTER_ENTRY]
        _send_dead_letters(run, letters)
        admitted = [admit(batch, self._sub, run) for batch in batches if batch.entry != DEAD_LETTER_ENTRY]
        graph.process(admitted)
        halfway()
        records_in: int = sum(batch.rows.num_rows for batch in batches if batch.entry != DEAD_LETTER_ENTRY)
        return records_in

    def _idle_ms(self, run: StepContext, start: str, busy: bool) -> int:
        timeout_ms = self._settings.idle_timeout_ms
        if timeout_ms is None or self._sub.reads_internal:
            return 0
        idle = idle_ms(run.state("task", "idle"), timeout_ms, run.now_ms, start, busy)
        return 0 if idle_from(run.state("task", "time"), run.stream_time) == NO_TIME else idle

    def _end(self, graph: TaskGraph, run: StepContext, idle: int) -> None:
        if idle:
            run.stream_time = idle_from(run.state("task", "time"), run.stream_time) + idle
            graph.punctuate(PunctuationType.STREAM_TIME, run.stream_time)
        graph.punctuate(PunctuationType.WALL_CLOCK_TIME, run.now_ms)
        graph.flush(idle)


def _send_dead_letters(run: StepContext, batches: Sequence[RowBatch]) -> None:
    for batch in sorted(
        batches, key=lambda batch: (batch.topic, batch.partition, batch.rows.column("offset")[0].as_py())
    ):
        rows = batch.rows.to_pydict()
        for key, value, headers in zip(rows["key"], rows["value"], rows["headers"], strict=True):
            run.send_dead_letter(DeadLetter(key, value, tuple(decode_headers(headers))), NOWHERE)
