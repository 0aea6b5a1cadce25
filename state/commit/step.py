"""One step of one task: the numbered order of its actions, in which a crash anywhere costs only time.

 1. A new producer with the task's transactional id; `init_transactions` fences every other attempt and decides every older
    transaction. One producer for each step: librdkafka speaks the old EndTxn, so a delayed commit of one transaction could
    commit half of the next one of the same producer.
 2. Only then is the last marker read, up to the last stable offset, and compared with Spark's copy (`decide`). Nothing else
    writes these partitions, so the last stable offset is the end of the log (`guards`).
 3. The store is brought to the marker: rolled forward, or restored.
 4. The records are processed in memory.
 5. begin, outputs, changelog, marker, source offsets, commit: `transaction`. Any error fails the attempt; nothing is retried.
 6. The writes are applied to the local store together with its position, so the store can be behind Kafka, never ahead.
    Changelog records that the step before no longer needed are deleted then, and a snapshot is taken if one is due; what goes
    wrong there fails nothing.

The caller then updates Spark's GroupState (7) and reports (8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from state.changelog import changelog_topic, commits_topic
from state.commit import guards
from state.commit.crash_points import Faults
from state.commit.decide import Decision, TaskIdentity, decide, expected_version
from state.commit.marker import CommitMarker, MarkerCopy, end_behind, read_last_marker
from state.commit.protocols import Effects, KafkaAccess, Producer, StoreAccess, TopicPartition
from state.commit.transaction import StepInput, StepPoints, StepTransaction, Transaction
from state.commit.watch import StopWatch
from state.errors import KafkaClientError, RestoreError, StateError
from state.stores.task_store import StorePosition, TaskStore

__all__ = ["CommitStep", "StepInput", "StepResult"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step: the marker that is now the last one, and the duration of each part (seconds)."""

    copy: MarkerCopy
    decision: Decision
    counters: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step whose records are processed and sent.

    Attributes:
        transaction: Its `commit` only waits for the brokers. It may have steps of other tasks, too.
        copy: The new marker.
        needless: Changelog records that are deleted after the commit.
    """

    transaction: Transaction
    points: StepPoints
    copy: MarkerCopy
    position: StorePosition
    counters: Mapping[str, int]
    needless: Mapping[TopicPartition, int]
    watch: StopWatch


class CommitStep:
    """Runs one step of one task, in the order that the module's docstring describes and explains.

    Args:
        kafka: The log.
        stores: The task's local stores.
        crash: The crash points.
        compared: Query and commits partition of the tasks whose last marker this process has read and compared with Spark's copy,
            with the id of the topic; the step adds its own. Such a log is read again only if it has grown since, or if the topic
            is another one. Default: it is always read.
    """

    def __init__(
        self,
        identity: TaskIdentity,
        kafka: KafkaAccess,
        stores: StoreAccess,
        crash: Faults,
        compared: dict[tuple[str, TopicPartition], str] | None = None,
    ) -> None:
        self._compared = {} if compared is None else compared
        self.identity = identity
        self.kafka = kafka
        self.stores = stores
        self.crash = crash
        self.commits: TopicPartition = (commits_topic(identity.application_id, identity.sub_topology), identity.task)
        self.changelogs: dict[str, TopicPartition] = {
            name: (changelog_topic(identity.application_id, name), identity.task) for name in stores.logged_stores
        }
        self._fencing: Future[Producer] | None = None

    def start_fencing(self, copy: MarkerCopy | None) -> None:
        """Begins item 1 in the background, so that waiting for the broker overlaps with unpacking the input.

        A caller must also call `close` at the end: a fence that comes late would hit the next attempt.
        """
        self._points(copy.marker if copy else None).reach("before_init")
        pool = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._fencing = pool.submit(guards.fenced_producer, self.kafka, self.identity.transactional_id)
        pool.shutdown(wait=False)

    def close(self) -> None:
        """Waits for a fence that was begun but not used, and closes its producer. Does nothing after `run`."""
        fencing, self._fencing = self._fencing, None
        if fencing is not None and fencing.exception() is None:
            fencing.result().close()

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
        points = self._points(known)
        producer = self._fenced_producer(points)
        try:
            points.reach("after_init")
            watch.lap("fence")
            ends = self.ends()
            topic_id = guards.id_of(self.kafka, self.commits[0])
            last = self._last_marker(copy, ends[self.commits], topic_id)
            found = last.marker if last else None
            points.reach("after_tail_read")
            decision = self._decide(step, known, found, ends)
            self._compared[self.identity.query_id, self.commits] = topic_id
            points.reach("after_decide")
            watch.lap("decide")
            if decision is Decision.SKIP and last is not None and found is not None:
                self._bring_forward(found, points)
                watch.lap("restore")
                return StepResult(last, decision, {}, watch.seconds)
            with self.stores.open() as store:
                self.stores.restore_to(store, found, points.reach)
                points.reach("restore_done")
                watch.lap("restore")
                version = expected_version(known, found)
                transaction = Transaction(producer, self.identity.transactional_id)
                prepared = self.prepare(transaction, step, found, store, process, ends, version, watch)
                prepared.transaction.commit()
                return self.apply(prepared, store)
        finally:
            producer.close()

    def prepare(
        self,
        transaction: Transaction,
        step: StepInput,
        found: CommitMarker | None,
        store: TaskStore,
        process: Callable[[TaskStore, CommitMarker | None], Effects],
        ends: Mapping[TopicPartition, int],
        version: int,
        watch: StopWatch,
    ) -> PreparedStep:
        """Item 4, and item 5 up to the marker, on stores that are at the marker `found`.

        Only then may anything of the step be in the transaction, so processing for long keeps no transaction open, but others' may.
        """
        points = StepPoints(self.crash, self.identity.task, version + 1)
        # The store's step will never be asked for again.
        needless = self.stores.to_trim(store)
        effects = process(store, found)
        points.reach("process_done")
        watch.lap("process")
        own = StepTransaction(self.kafka, transaction, self.identity, points, self.commits, self.changelogs)
        copy, position = own.send(step, found, store, effects, ends, version, watch)
        watch.lap("commit")
        return PreparedStep(transaction, points, copy, position, effects.counters, needless, watch)

    def apply(self, done: PreparedStep, store: TaskStore, durable: bool = True) -> StepResult:
        """Item 6, once the transaction is committed; `durable`: see `TaskStore.apply`."""
        done.watch.lap("wait" if done.transaction.shared else "commit")
        store.apply(done.position, done.points.at("store_half_applied"), durable)
        done.points.reach("store_applied")
        # Nothing fences a deletion, so only an attempt that has committed may ask for one.
        self.stores.trim(store, done.needless)
        self.stores.snapshot(store, done.points.reach)
        done.watch.lap("apply")
        return StepResult(done.copy, Decision.RUN, done.counters, done.watch.seconds)

    def _fenced_producer(self, points: StepPoints) -> Producer:
        if self._fencing is None:
            points.reach("before_init")
            return guards.fenced_producer(self.kafka, self.identity.transactional_id)
        fencing, self._fencing = self._fencing, None
        return fencing.result()

    def _points(self, known: CommitMarker | None) -> StepPoints:
        return StepPoints(self.crash, self.identity.task, (known.version if known else 0) + 1)

    def ends(self) -> dict[TopicPartition, int]:
        """Where the logs that only this task writes end. From the fence on, the task's records land there."""
        ends = self.kafka.log_ends([self.commits, *self.changelogs.values()])
        guards.check_decided(self.identity, ends)
        return {place: stable for place, (stable, _) in ends.items()}

    def ends_after(
        self, copy: MarkerCopy, marker: CommitMarker, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where the task's logs end after a step: a transaction leaves one control record in each log that it wrote to."""
        ends = {self.commits: end_behind(copy.offset)}
        for name, log in self.changelogs.items():
            end = marker.changelog_ends[name]
            ends[log] = end + 1 if end > before[log] else end
        return ends

    def _last_marker(self, copy: MarkerCopy | None, end: int, topic_id: str) -> MarkerCopy | None:
        """The last marker of the task, read from the log unless it can only be Spark's copy."""
        compared = self._compared.get((self.identity.query_id, self.commits))
        if copy is not None and end == end_behind(copy.offset) and compared == topic_id:
            return copy
        return read_last_marker(self.kafka, self.commits, copy.offset if copy else None, end)

    def _decide(
        self,
        step: StepInput,
        known: CommitMarker | None,
        found: CommitMarker | None,
        ends: Mapping[TopicPartition, int],
    ) -> Decision:
        """The decision, once the guards agree."""
        decision = decide(self.identity, step.batch_id, step.batch, known, found, step.ranges)
        if found is None or not found.version:
            guards.check_nothing_written(self.identity, self.kafka, self.changelogs, ends)
        elif decision is Decision.RUN:
            guards.check_not_passed_over(self.identity, found, known, step.keyed_by)
        else:
            guards.check_routing(self.identity, found, step.routing, step.keyed_by)
        return decision

    def _bring_forward(self, marker: CommitMarker, points: StepPoints) -> None:
        """Brings the store to a step that is already committed. A failure is only logged: the next step tries again."""
        try:
            with self.stores.open(patient=False) as store:
                self.stores.restore_to(store, marker, points.reach)
                points.reach("restore_done")
        except RestoreError:
            raise
        except (StateError, KafkaClientError, OSError) as error:
            _log.warning(
                "%s: the step is committed, but its local store is not up to date: %s. The next step tries again",
                self.identity,
                error,
            )
