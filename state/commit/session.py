"""The steps of a task that stays in one process: fenced once, then one step after another, in transactions of one producer.

A live step is a `CommitStep` that takes from the step before what it would otherwise ask for. It begins where that step has ended,
so it needs neither a fence, nor the last marker, nor the ends of the logs, as long as three things hold:

* The producer may write another transaction (`TransactionalProducer.again`). If not, it is replaced: the new one fences, and the
  last marker is read again and must be the session's own (`shared.SharedProducer`: the tasks of a process share it).
* Records land where the session expects them, right behind the control record of its last transaction. If they do not, something
  else has written to the task's logs, and the step fails before it commits (`guards.check_delivered`).
* Nothing has failed. Any error ends the session, and with it the attempt: only a new attempt may fence again, so that two
  processes that take each other for dead cannot fence one another for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from state.commit import guards
from state.commit.decide import TaskIdentity, check_lineage, mismatch
from state.commit.marker import CommitMarker, MarkerCopy, read_last_marker
from state.commit.protocols import Effects, TopicPartition
from state.commit.shared import SharedProducer
from state.commit.step import CommitStep, PreparedStep, StepResult
from state.commit.transaction import StepInput, StepPoints
from state.commit.watch import StopWatch
from state.stores.task_store import TaskStore

FLUSH_EVERY_S = 10.0
"""How often a session's stores are made durable, s. A flush costs several ms, and makes a file that has to be merged; after a kill,
the changelogs have what was written since."""


class TaskSession:
    """Live steps of one task, within a `with` block.

    Args:
        step: The task's step on its Kafka and stores.
        clock: A monotonic clock, in seconds.
        shared: The producer, which other sessions may use as well; default: one of its own, with the task's transactional id.

    Attributes:
        last: The last marker of the task; None: it has never committed.
    """

    def __init__(
        self, step: CommitStep, clock: Callable[[], float] = time.monotonic, shared: SharedProducer | None = None
    ) -> None:
        self._step = step
        self._shared = shared
        self._clock = clock
        self._flushed = clock()
        self._ends: dict[TopicPartition, int] = {}
        self._open = ExitStack()
        self._store: TaskStore | None = None
        self._copy: MarkerCopy | None = None
        self.last: CommitMarker | None = None

    @property
    def identity(self) -> TaskIdentity:
        return self._step.identity

    def __enter__(self) -> TaskSession:
        """Fences, reads the last marker and brings the stores to it.

        Raises:
            CheckpointMismatchError: The marker belongs to something else, is missing, or is not the last one that there was.
            StreamsError: Fencing or restoring has failed.
        """
        with ExitStack() as opened:
            shared = self._shared or opened.enter_context(
                SharedProducer(self._step.kafka, self.identity.transactional_id)
            )
            self._begin(shared)
            store = opened.enter_context(self._step.stores.open())
            points = self._points()
            self._step.stores.restore_to(store, self.last, points.reach)
            points.reach("restore_done")
            shared.join(self)
            opened.callback(shared.leave, self)
            self._shared, self._store, self._open = shared, store, opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._store is not None:
            self._store.flush()
        self._open.__exit__(kind, error, trace)

    def prepare(self, step: StepInput, process: Callable[[TaskStore, CommitMarker | None], Effects]) -> PreparedStep:
        """Processes a step behind the last one, and sends what it gives; then commit its `transaction`, and `apply` it.

        Sessions that share their producer prepare their steps one after the other, and their transaction is committed once.

        Raises:
            StreamsError: The step failed; the session is over.
        """
        assert self._store is not None, "used within its block"
        assert self._shared is not None, "used within its block"
        watch = StopWatch()
        transaction = self._shared.transaction()
        watch.lap("fence")
        version = self.last.version if self.last else 0
        return self._step.prepare(transaction, step, self.last, self._store, process, self._ends, version, watch)

    def apply(self, done: PreparedStep) -> StepResult:
        """Brings the stores to a step whose transaction is committed.

        Raises:
            StateError: The disk refuses; the session is over.
        """
        assert self._store is not None, "used within its block"
        now = self._clock()
        durable = now - self._flushed >= FLUSH_EVERY_S
        if durable:
            self._flushed = now
        result = self._step.apply(done, self._store, durable)
        marker = done.copy.marker
        self._ends = self._step.ends_after(done.copy, marker, self._ends)
        self._copy, self.last = done.copy, marker
        self._step.stores.committed(self._store, marker)
        return result

    def read_again(self) -> None:
        """See `shared.Member`."""
        points = self._points()
        points.reach("after_init")
        self._ends = dict(self._step.ends())
        found = self._newest(self._copy)
        points.reach("after_tail_read")
        self._check(found)
        points.reach("after_decide")

    def _begin(self, shared: SharedProducer) -> None:
        """Fences, and finds the last marker, behind which no other attempt can commit any more."""
        points = self._points()
        points.reach("before_init")
        shared.fence()
        fenced = set(shared.not_to_fence)
        # As far as it can be read: whoever has written it may have left a transaction open.
        found = read_last_marker(self._step.kafka, self._step.commits)
        fenced_all = False
        while not fenced_all:
            if (writer := self._writer_of(found)) not in fenced:
                guards.fenced_producer(self._step.kafka, writer).close()
                fenced.add(writer)
            self._ends = dict(self._step.ends())
            found = self._newest(found)
            # If not, another one has committed meanwhile.
            fenced_all = self._writer_of(found) in fenced
        points.reach("after_init")
        points.reach("after_tail_read")
        self._check(found)
        self._copy, self.last = found, None if found is None else found.marker
        points.reach("after_decide")

    def _writer_of(self, found: MarkerCopy | None) -> str:
        return self.identity.writer_of(None if found is None else found.marker)

    def _newest(self, known: MarkerCopy | None) -> MarkerCopy | None:
        commits = self._step.commits
        return read_last_marker(self._step.kafka, commits, known.offset if known else None, self._ends[commits])

    def _check(self, found: MarkerCopy | None) -> None:
        """Checks that the last marker is the session's own, or, at its beginning, one to continue."""
        if self._store is not None:
            if found != self._copy:
                raise mismatch(
                    self.identity,
                    "another process has committed steps of this task while this one was running it",
                    "Let one of them run the application: Spark starts this one again.",
                )
        elif found is None:
            guards.check_nothing_written(self.identity, self._step.kafka, self._step.changelogs, self._ends)
        else:
            check_lineage(self.identity, found.marker)
            guards.check_is_last(self.identity, self._step.kafka, self._step.changelogs, found.marker, self._ends)

    def _points(self) -> StepPoints:
        return StepPoints(self._step.crash, self.identity.task, (self.last.version if self.last else 0) + 1)
