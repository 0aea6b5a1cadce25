"""The steps of a task, one after the other: the numbered order of what they do, in which a crash anywhere costs only time.

 1. A new producer; `init_transactions` fences every other attempt and decides every older transaction.
 2. Only then is the last marker read, up to the last stable offset. Nothing else writes these partitions, so the last stable offset
    is the end of the log (`guards`). Here a micro-batch decides whether it is committed already (`step`), and live execution
    checks that it may continue.
 3. The store is brought to the marker: rolled forward, or restored.
 4. The records are processed in memory.
 5. begin, outputs, changelog, marker, source offsets, commit: `transaction`. Any error fails the attempt; nothing is retried.
 6. The writes are applied to the local store together with its position, so the store can be behind Kafka, never ahead.
    Changelog records that the step before no longer needed are deleted then, and a snapshot is taken if one is due; what goes
    wrong there fails nothing.

A micro-batch is a session of one step. A live session continues: each step begins where the previous one ended, so it needs
neither a fence, nor the last marker, nor the ends of the logs, as long as three things hold:

* The producer may write another transaction (`TransactionalProducer.again`). If not, it is replaced: the new one fences, and the
  last marker must still be the session's own (`shared.SharedProducer`: the tasks of a process share it).
* Records land where the session expects them, right behind the control record of its last transaction. If they do not, something
  else has written to the task's logs, and the step fails before it commits (`guards.check_delivered`).
* Nothing has failed. Any error ends the session, and with it the attempt: only a new attempt may fence again, so that two
  processes that take each other for dead cannot fence one another forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType

from state.changelog import changelog_topic, commits_topic
from state.commit import guards
from state.commit.crash_points import Faults
from state.commit.decide import Decision, TaskIdentity, check_lineage, mismatch
from state.commit.marker import CommitMarker, MarkerCopy, end_behind, read_last_marker
from state.commit.protocols import Effects, KafkaAccess, StoreAccess, TopicPartition
from state.commit.shared import SharedProducer
from state.commit.transaction import StepInput, StepPoints, StepTransaction, Transaction
from state.commit.watch import StopWatch
from state.stores.task_store import StorePosition, TaskStore

FLUSH_EVERY_S = 10.0
"""How long after a flush a live session's stores are flushed again, s. A flush costs several ms, and creates a file that has to be
compacted. After a kill, rows written since the last flush are restored from the changelogs."""


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
        transaction: The transaction, whose `commit` only waits for the brokers. It may also have steps of other tasks.
        copy: The new marker.
        needless: Changelog records that are no longer needed, and are deleted after the commit.
    """

    transaction: Transaction
    points: StepPoints
    copy: MarkerCopy
    position: StorePosition
    counters: Mapping[str, int]
    needless: Mapping[TopicPartition, int]
    watch: StopWatch


class TaskLogs:
    """A task, its stores, and the logs that only it writes.

    Args:
        kafka: The log.
        stores: The task's local stores.
        crash: The crash points.

    Attributes:
        commits: The task's partition of the commits topic.
        changelogs: Store -> partition of its changelog.
    """

    def __init__(self, identity: TaskIdentity, kafka: KafkaAccess, stores: StoreAccess, crash: Faults) -> None:
        self.identity = identity
        self.kafka = kafka
        self.stores = stores
        self.crash = crash
        self.commits: TopicPartition = (commits_topic(identity.application_id, identity.sub_topology), identity.task)
        self.changelogs: dict[str, TopicPartition] = {
            name: (changelog_topic(identity.application_id, name), identity.task) for name in stores.logged_stores
        }

    @property
    def places(self) -> list[TopicPartition]:
        return [self.commits, *self.changelogs.values()]

    def ends(self) -> dict[TopicPartition, int]:
        """Where the logs end. After the fence, the task's records will land there."""
        return self.decided(self.kafka.log_ends(self.places))

    def decided(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The ends, after a check that no transaction is open."""
        guards.check_decided(self.identity, ends)
        return {place: stable for place, (stable, _) in ends.items()}

    def ends_after(
        self, copy: MarkerCopy, marker: CommitMarker, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where the logs end after a step: a transaction leaves one control record in each log that it wrote to."""
        ends = {self.commits: end_behind(copy.offset)}
        for name, log in self.changelogs.items():
            end = marker.changelog_ends[name]
            ends[log] = end + 1 if end > before[log] else end
        return ends

    def points(self, last: CommitMarker | None) -> StepPoints:
        """The crash points of the step after a marker."""
        return self.points_of((last.version if last else 0) + 1)

    def points_of(self, version: int) -> StepPoints:
        return StepPoints(self.crash, self.identity.task, version)


class TaskSession:
    """Steps of one task. Live ones are within a `with` block, which begins and opens.

    Args:
        logs: The task.
        clock: A monotonic clock, in seconds.
        shared: The producer, which other sessions may also use; default: its own producer, with the task's transactional id.

    Attributes:
        last: The last marker of the task; None: it has never committed.
        ends: Where its logs end.
    """

    def __init__(
        self, logs: TaskLogs, clock: Callable[[], float] = time.monotonic, shared: SharedProducer | None = None
    ) -> None:
        self._logs = logs
        self._shared = shared
        self._clock = clock
        self._flushed = clock()
        self._open = ExitStack()
        self._store: TaskStore | None = None
        self._copy: MarkerCopy | None = None
        self.ends: dict[TopicPartition, int] = {}
        self.last: CommitMarker | None = None

    @property
    def identity(self) -> TaskIdentity:
        return self._logs.identity

    def __enter__(self) -> TaskSession:
        """Fences, reads the last marker and brings the stores to it.

        Raises:
            CheckpointMismatchError: The marker belongs to something else, is missing, or is not the last one that was written.
            StreamsError: Fencing or restoring has failed.
        """
        with ExitStack() as opened:
            shared = self._shared or opened.enter_context(
                SharedProducer(self._logs.kafka, self.identity.transactional_id)
            )
            self._logs.points(None).reach("before_init")
            found = self.begin(shared)
            self._check(found)
            self.continue_behind(found)
            self._logs.points(self.last).reach("after_decide")
            opened.enter_context(self.opened())
            shared.join(self)
            opened.callback(shared.leave, self)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._store is not None:
            self._store.flush()
        self._open.__exit__(kind, error, trace)

    def begin(
        self,
        shared: SharedProducer,
        known: MarkerCopy | None = None,
        newest: Callable[[MarkerCopy | None, int], MarkerCopy | None] | None = None,
    ) -> MarkerCopy | None:
        """Items 1 and 2: returns the last marker, after which no other attempt can commit any more.

        Args:
            shared: The producer.
            known: A marker that is not newer.
            newest: Finds the last marker after a known one, up to an end of the log; default: reads it.
        """
        self._shared = shared
        points = self._logs.points(known.marker if known else None)
        shared.fence()
        points.reach("after_init")
        fenced, newest = set(shared.not_to_fence), newest or self._newest
        # There may be a newer marker that cannot be read yet, because its writer has left a transaction open.
        found = known or read_last_marker(self._logs.kafka, self._logs.commits)
        while True:
            if (writer := self._writer_of(found)) not in fenced:
                guards.fenced_producer(self._logs.kafka, writer).close()
                fenced.add(writer)
            self.ends = dict(self._logs.ends())
            found = newest(found, self.ends[self._logs.commits])
            # If not, another attempt has committed in the meantime.
            if self._writer_of(found) in fenced:
                break
        points.reach("after_tail_read")
        return found

    def continue_behind(self, found: MarkerCopy | None) -> None:
        """Continues after the last marker. Called once it is certain that the session may do so."""
        self._copy, self.last = found, None if found is None else found.marker

    @contextmanager
    def opened(self, patient: bool = True) -> Iterator[None]:
        """Item 3: opens the stores, and brings them to the last marker.

        Raises:
            StreamsError: Restoring has failed.
        """
        with self._logs.stores.open(patient) as store:
            points = self._logs.points(self.last)
            self._logs.stores.restore_to(store, self.last, points.reach)
            points.reach("restore_done")
            self._store = store
            yield

    def ready(self) -> None:
        """Prepares the producer for the next step (`SharedProducer.transaction`)."""
        assert self._shared is not None, "begun"
        self._shared.transaction()

    def prepare(
        self,
        step: StepInput,
        process: Callable[[TaskStore, CommitMarker | None], Effects],
        version: int | None = None,
        watch: StopWatch | None = None,
    ) -> PreparedStep:
        """Item 4, and item 5 up to the marker. After it, commit its `transaction`, and `apply` it.

        Nothing of the step is in the transaction before it is processed, so processing for long keeps no transaction open, but
        others' may. Sessions that share their producer prepare their steps one after the other, and their transaction is committed
        once.

        `version` is the last version that the caller knows; default: the last marker's.

        Raises:
            StreamsError: The step failed; the session is over.
        """
        assert self._store is not None, "open"
        assert self._shared is not None, "begun"
        watch, logs = watch or StopWatch(), self._logs
        transaction = self._shared.transaction()
        watch.lap("fence")
        if version is None:
            version = self.last.version if self.last else 0
        points = logs.points_of(version + 1)
        # The store's step will never be asked for again.
        needless = logs.stores.to_trim(self._store)
        effects = process(self._store, self.last)
        points.reach("process_done")
        watch.lap("process")
        own = StepTransaction(logs.kafka, transaction, self.identity, points, logs.commits, logs.changelogs)
        copy, position = own.send(step, self.last, self._store, effects, self.ends, version, watch)
        watch.lap("commit")
        return PreparedStep(transaction, points, copy, position, effects.counters, needless, watch)

    def apply(self, done: PreparedStep) -> StepResult:
        """Item 6, once the transaction is committed.

        Raises:
            StateError: The disk fails; the session is over.
        """
        assert self._store is not None, "open"
        now = self._clock()
        durable = now - self._flushed >= FLUSH_EVERY_S
        if durable:
            self._flushed = now
        result = self.applied(done, durable)
        marker = done.copy.marker
        self.ends = self._logs.ends_after(done.copy, marker, self.ends)
        self._copy, self.last = done.copy, marker
        self._logs.stores.committed(self._store, marker)
        return result

    def applied(self, done: PreparedStep, durable: bool = True) -> StepResult:
        """Item 6 of the last step of a session; `durable` is that of `TaskStore.apply`."""
        assert self._store is not None, "open"
        stores, store, points = self._logs.stores, self._store, done.points
        done.watch.lap("wait" if done.transaction.shared else "commit")
        store.apply(done.position, points.at("store_half_applied"), durable)
        points.reach("store_applied")
        # Nothing fences a deletion, so only an attempt that has committed may ask for one.
        stores.trim(store, done.needless)
        stores.snapshot(store, points.reach)
        done.watch.lap("apply")
        return StepResult(done.copy, Decision.RUN, done.counters, done.watch.seconds)

    @property
    def places(self) -> Collection[TopicPartition]:
        """The logs that only this task writes (`shared.Member`)."""
        return self._logs.places

    def check_again(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Checks, after a fence, that the last marker is still the session's own: if the logs have not grown, it is."""
        points, expected = self._logs.points(self.last), self.ends
        points.reach("after_init")
        self.ends = self._logs.decided(ends)
        found = self._copy
        if self.ends != expected:
            found = self._newest(self._copy, self.ends[self._logs.commits])
        points.reach("after_tail_read")
        self._check(found)
        points.reach("after_decide")

    def _writer_of(self, found: MarkerCopy | None) -> str:
        return self.identity.writer_of(None if found is None else found.marker)

    def _newest(self, known: MarkerCopy | None, end: int) -> MarkerCopy | None:
        return read_last_marker(self._logs.kafka, self._logs.commits, known.offset if known else None, end)

    def _check(self, found: MarkerCopy | None) -> None:
        """Checks the last marker. It must be the session's own; when the session begins, it must be one that it may continue."""
        logs = self._logs
        if self._store is not None:
            if found != self._copy:
                raise mismatch(
                    self.identity,
                    "another process has committed steps of this task while this one was running it",
                    "Let one of them run the application: Spark starts this one again.",
                )
        elif found is None:
            guards.check_nothing_written(self.identity, logs.kafka, logs.changelogs, self.ends)
        else:
            check_lineage(self.identity, found.marker)
            guards.check_is_last(self.identity, logs.kafka, logs.changelogs, found.marker, self.ends)
