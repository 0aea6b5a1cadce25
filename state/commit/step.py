"""The step of a micro-batch: a session of one step (`session`, with the order of its actions), preceded by a decision.

Between items 2 and 3 the last marker is compared with Spark's copy: Spark may call a task again for a micro-batch that it has
committed already, and then nothing is processed (`decide`). Each step has its own producer: librdkafka speaks the old EndTxn, so a
delayed commit of one transaction could commit half of the next one of the same producer. The caller then updates Spark's
GroupState, and reports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from state.commit import guards
from state.commit.crash_points import Faults
from state.commit.decide import Decision, TaskIdentity, decide, expected_version
from state.commit.marker import CommitMarker, MarkerCopy, end_behind, read_last_marker
from state.commit.protocols import Effects, KafkaAccess, StoreAccess, TopicPartition
from state.commit.session import StepResult, TaskLogs, TaskSession
from state.commit.shared import SharedProducer
from state.commit.transaction import StepInput
from state.commit.watch import StopWatch
from state.errors import KafkaClientError, RestoreError, StateError
from state.stores.task_store import TaskStore

__all__ = ["CommitStep", "StepInput", "StepResult"]

_log = logging.getLogger(__name__)


class CommitStep(TaskLogs):
    """Runs one step of one task.

    Args:
        kafka: The log.
        stores: The task's local stores.
        crash: The crash points.
        compared: (Query, commits partition) -> topic id, for tasks whose last marker this process has compared with Spark's copy;
            the step adds its own. Such a log is read again only if it has grown since, or if the topic was created again. Default:
            it is always read.
    """

    def __init__(
        self,
        identity: TaskIdentity,
        kafka: KafkaAccess,
        stores: StoreAccess,
        crash: Faults,
        compared: dict[tuple[str, TopicPartition], str] | None = None,
    ) -> None:
        super().__init__(identity, kafka, stores, crash)
        self._compared = {} if compared is None else compared
        self._producer = SharedProducer(kafka, identity.transactional_id, kept=False)
        self._fencing: Future[None] | None = None

    def start_fencing(self, copy: MarkerCopy | None) -> None:
        """Begins item 1 in the background, so that waiting for the broker overlaps with unpacking the input.

        A caller must also call `close` at the end: a fence that comes late would hit the next attempt.
        """
        self.points(copy.marker if copy else None).reach("before_init")
        pool = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._fencing = pool.submit(self._producer.fence)
        pool.shutdown(wait=False)

    def close(self) -> None:
        """Waits for a fence that was begun but not used, and closes its producer. Does nothing after `run`."""
        fencing, self._fencing = self._fencing, None
        if fencing is not None and fencing.exception() is None:
            self._producer.close()

    def run(
        self,
        step: StepInput,
        copy: MarkerCopy | None,
        process: Callable[[TaskStore, CommitMarker | None], Effects],
    ) -> StepResult:
        """Commits the micro-batch, or finds that it is already committed.

        Raises:
            StreamsError: The step failed. The attempt is over, and Spark runs another.
        """
        watch = StopWatch()
        # Each access to `MarkerCopy.marker` decodes the bytes again.
        known = copy.marker if copy else None
        session = TaskSession(self, shared=self._producer)
        with self._producer:
            self._fence(known)
            watch.lap("fence")
            topic_id = guards.id_of(self.kafka, self.commits[0])
            last = session.begin(self._producer, copy, self._newest(copy, topic_id))
            found = last.marker if last else None
            decision = self._decide(step, known, found, session)
            self._compared[self.identity.query_id, self.commits] = topic_id
            session.continue_behind(last)
            # The crash points of the decided step; a skipped step is the last marker's own.
            self.points(known).reach("after_decide")
            watch.lap("decide")
            if decision is Decision.SKIP and last is not None:
                self._bring_forward(session)
                watch.lap("restore")
                return StepResult(last, decision, {}, watch.seconds)
            with session.opened():
                watch.lap("restore")
                prepared = session.prepare(step, process, expected_version(known, found), watch)
                prepared.transaction.commit()
                return session.applied(prepared)

    def _fence(self, known: CommitMarker | None) -> None:
        fencing, self._fencing = self._fencing, None
        if fencing is None:
            self.points(known).reach("before_init")
            self._producer.fence()
        else:
            fencing.result()

    def _newest(self, copy: MarkerCopy | None, topic_id: str) -> Callable[[MarkerCopy | None, int], MarkerCopy | None]:
        """Returns a function that finds the last marker in the log, unless it can only be Spark's copy."""
        compared = self._compared.get((self.identity.query_id, self.commits))

        def newest(found: MarkerCopy | None, end: int) -> MarkerCopy | None:
            if copy is not None and end == end_behind(copy.offset) and compared == topic_id:
                return copy
            return read_last_marker(self.kafka, self.commits, found.offset if found else None, end)

        return newest

    def _decide(
        self, step: StepInput, known: CommitMarker | None, found: CommitMarker | None, session: TaskSession
    ) -> Decision:
        """The decision, after the checks of the guards."""
        decision = decide(self.identity, step.batch_id, step.batch, known, found, step.ranges)
        if found is None or not found.version:
            guards.check_nothing_written(self.identity, self.kafka, self.changelogs, session.ends)
        elif decision is Decision.RUN:
            guards.check_not_passed_over(self.identity, found, known, step.keyed_by)
        else:
            guards.check_routing(self.identity, found, step.routing, step.keyed_by)
        return decision

    def _bring_forward(self, session: TaskSession) -> None:
        """Brings the store to a step that is already committed. A failure is only logged: the next step tries again."""
        try:
            with session.opened(patient=False):
                pass
        except RestoreError:
            raise
        except (StateError, KafkaClientError, OSError) as error:
            _log.warning(
                "%s: the step is committed, but its local store is not up to date: %s. The next step tries again",
                self.identity,
                error,
            )
