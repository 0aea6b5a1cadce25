"""One step of a task: the numbered order in which everything happens, so that a crash anywhere changes nothing but time.

 1. A new producer with the task's transactional id; `init_transactions` fences every other attempt and decides every older
    transaction. One producer for each step: librdkafka speaks the old EndTxn, so a delayed commit of one transaction could
    commit half of the next one of the same producer.
 2. Only then the last marker is read, up to the last stable offset, and compared with Spark's copy (`decide`).
 3. The store is brought to the marker: rolled forward, or restored.
 4. The records are processed in memory.
 5. begin, outputs, changelog, source offsets, marker, commit. Any error fails the attempt; nothing is retried here.
 6. The writes are applied to the local store together with its position: so it can be behind Kafka, never ahead.

The caller then updates Spark's GroupState (7) and reports (8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from state.changelog.topics import changelog_topic, commits_topic
from state.commit import guards
from state.commit.crash_points import Faults
from state.commit.decide import Decision, TaskIdentity, decide
from state.commit.digest import changelog_digest
from state.commit.last_marker import read_last_marker
from state.commit.marker import MARKER_KEY, CommitMarker, MarkerCopy, Ranges
from state.commit.protocols import Effects, KafkaAccess, Producer, StoreAccess, TopicPartition
from state.restore.plan import check_end
from state.stores.task_store import StorePosition, TaskStore


@dataclass(frozen=True, slots=True)
class StepInput:
    """The micro-batch.

    Attributes:
        batch_id: Spark's number of it.
        batch: digest of the offset ranges of all its partitions.
        ranges: the ranges that fed this task.
        offsets: the source partitions whose progress this task reports, with their new offsets.
        topic_ids: Kafka's topic ids of the sources.
        now_ms: Spark's logged batch time.
        routing: digest of the keys that functions in front of the shuffle have made for the task's rows; not empty if there
            are such functions, even if the task has no rows.
        keyed_by: names of the nodes with these functions, for messages.
    """

    batch_id: int
    batch: str
    ranges: Ranges
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    now_ms: int
    routing: str = ""
    keyed_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did: the marker that is now the last one, and how long each part took (seconds)."""

    copy: MarkerCopy
    decision: Decision
    counters: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(slots=True)
class StopWatch:
    """Seconds spent in each named part; for reports only, never for decisions."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Books the time since the last call under `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


class CommitStep:
    """Runs one step of one task. See the module's docstring for the order and why it must be that one."""

    def __init__(self, identity: TaskIdentity, kafka: KafkaAccess, stores: StoreAccess, crash: Faults) -> None:
        self.identity = identity
        self._kafka = kafka
        self._stores = stores
        self._crash = crash
        self._commits: TopicPartition = (
            commits_topic(identity.application_id, identity.sub_topology),
            identity.task,
        )
        self._fencing: Future[Producer] | None = None

    def start_fencing(self) -> None:
        """Begins item 1 in the background: it waits for the broker while the caller may still unpack its input."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._fencing = pool.submit(self._fenced_producer)
        pool.shutdown(wait=False)

    def _fenced_producer(self) -> Producer:
        producer = self._kafka.producer(self.identity.transactional_id)
        try:
            producer.init_transactions()
        except BaseException:
            producer.close()
            raise
        return producer

    def run(
        self,
        step: StepInput,
        copy: MarkerCopy | None,
        process: Callable[[TaskStore, CommitMarker | None], Effects],
    ) -> StepResult:
        """Commits the micro-batch, or finds that it is committed already.

        Args:
            step: the micro-batch.
            copy: Spark's copy of the last marker; None before the task's first step.
            process: computes the effects in memory; its writes go to the store's buffer.

        Raises:
            StreamsError: anything went wrong; the attempt is over, Spark runs another.
        """
        watch = StopWatch()
        known = copy.marker if copy else None
        version = (known.version if known else 0) + 1
        self._reach("before_init", version)
        producer = self._fencing.result() if self._fencing else self._fenced_producer()
        try:
            self._reach("after_init", version)
            watch.lap("fence")
            last = self._read_last_marker(copy)
            found = last.marker if last else None
            self._reach("after_tail_read", version)
            decision = decide(self.identity, step.batch_id, step.batch, known, found)
            if decision is Decision.SKIP and found is not None:
                guards.check_routing(self.identity, found, step.routing, step.keyed_by)
            self._reach("after_decide", version)
            watch.lap("decide")
            with self._stores.open() as store:
                self._stores.bring_to(store, found)
                self._reach("restore_done", version)
                watch.lap("restore")
                if decision is Decision.SKIP and last is not None:
                    return StepResult(last, decision, {}, watch.seconds)
                # Spark has confirmed the step that the store is at, so it will never be asked for again.
                self._stores.trim(store)
                effects = process(store, found)
                self._reach("process_done", version)
                watch.lap("process")
                result, position = self._commit(producer, step, found, store, effects)
                self._reach("after_commit", version)
                watch.lap("commit")
                store.apply(position)
                self._reach("store_applied", version)
                watch.lap("apply")
            return StepResult(result, decision, effects.counters, watch.seconds)
        finally:
            producer.close()

    def _reach(self, point: str, version: int) -> None:
        self._crash.reach(point, self.identity.task, version)

    def _read_last_marker(self, copy: MarkerCopy | None) -> MarkerCopy | None:
        return read_last_marker(self._kafka, self._commits, copy.offset if copy else None)

    def _commit(
        self,
        producer: Producer,
        step: StepInput,
        last: CommitMarker | None,
        store: TaskStore,
        effects: Effects,
    ) -> tuple[MarkerCopy, StorePosition]:
        identity, version = self.identity, (last.version if last else 0) + 1
        changelog = store.changelog()
        logs = {name: (changelog_topic(identity.application_id, name), identity.task) for name in store.logged_stores}
        ends = self._kafka.end_offsets([self._commits, *logs.values()])
        # A whole local store would hide a changelog that was lost, and the next restore would miss all that is older.
        for name, promised in last.changelog_ends.items() if last else ():
            if name in logs:
                check_end(name, ends[logs[name]], version - 1, promised)
        producer.begin()
        self._reach("after_begin", version)
        sent = 0
        for send in effects.sends:
            producer.send_columns(
                send.topic, self._kafka.partitions_for(send), send.keys, send.values, send.timestamps, send.headers
            )
            sent += len(send.keys)
        self._reach("outputs_sent", version)
        for name, batch in changelog.items():
            producer.send_columns(logs[name][0], identity.task, batch.keys, batch.values, batch.timestamps)
        self._reach("changelog_sent", version)
        # Nobody else writes these partitions and every older transaction is decided: the records land right at the ends.
        changelog_ends = {
            name: ends[log] + (len(changelog[name].keys) if name in changelog else 0) for name, log in logs.items()
        }
        marker = CommitMarker(
            query_id=identity.query_id,
            task=identity.task,
            tasks=identity.tasks,
            topology_hash=identity.topology_hash,
            version=version,
            batch_id=step.batch_id,
            batch=step.batch,
            ranges=step.ranges,
            topic_ids=step.topic_ids,
            stream_time=effects.stream_time,
            operator_state=effects.operator_state,
            changelog_ends=changelog_ends,
            expired_before=store.expired_before,
            counts={
                "in": effects.records_in,
                "out": sent,
                "changelog": sum(len(batch.keys) for batch in changelog.values()),
            },
            changelog_hash=changelog_digest(changelog),
            now_ms=step.now_ms,
            routing=step.routing,
            adopted=last.adopted if last else 0,
            application_id=identity.application_id,
        )
        if step.offsets:
            producer.send_offsets(step.offsets, identity.application_id)
        data = marker.to_bytes()
        producer.send(self._commits[0], self._commits[1], MARKER_KEY, data, step.now_ms)
        self._reach("marker_sent", version)
        producer.commit()
        return (
            MarkerCopy(data, ends[self._commits]),
            StorePosition(identity.query_id, version, changelog_ends, step.now_ms),
        )
