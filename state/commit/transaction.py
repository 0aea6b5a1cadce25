"""The one transaction of a step: outputs, changelog, marker, source offsets, all or nothing; for one task or several.

Each task's own records are checked before the commit: they must be where its logs ended when its step was decided. This makes a
marker's offset a compare-and-set, no matter who else writes: of two steps after the same marker, only one is at the expected
offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from state.changelog import check_end
from state.commit import guards
from state.commit.crash_points import Faults
from state.commit.decide import TaskIdentity
from state.commit.digest import StepDigest
from state.commit.marker import MARKER_KEY, CommitMarker, MarkerCopy, Ranges, Routing, format_of
from state.commit.protocols import Effects, KafkaAccess, Producer, Send, TopicPartition
from state.commit.watch import StopWatch
from state.errors import ProducerStateError
from state.stores.task_store import StorePosition, TaskStore


@dataclass(frozen=True, slots=True)
class StepInput:
    """The micro-batch.

    Attributes:
        batch_id: Spark's number of the micro-batch.
        batch: Digest of the offset ranges of all its partitions.
        ranges: The ranges that fed this task.
        offsets: The source partitions whose progress this task reports, with their new offsets.
        topic_ids: Kafka's topic ids of the sources.
        now_ms: Spark's logged batch time.
        routing: The number of records of each range, and a digest of the keys that functions before the shuffle made for
            the records of this task (`CommitMarker.routing`).
        keyed_by: Names of the nodes with these functions, for messages.
        live: Whether it is a step of live execution, without a micro-batch of Spark.
    """

    batch_id: int
    batch: str
    ranges: Ranges
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    now_ms: int
    routing: Routing = field(default_factory=dict)
    keyed_by: Sequence[str] = ()
    live: bool = False


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a transaction has sent before its marker.

    Attributes:
        outputs: Number of results.
        begins: Store -> where its changelog ended before the step.
        counts: Store -> number of changelog records.
        digest: Digest of the changelog records.
    """

    outputs: int
    begins: Mapping[str, int]
    counts: Mapping[str, int]
    digest: StepDigest

    @property
    def changelog_ends(self) -> dict[str, int]:
        """Store -> offset after its last changelog record."""
        return {name: begin + self.counts.get(name, 0) for name, begin in self.begins.items()}


@dataclass(frozen=True, slots=True)
class StepPoints:
    """The crash points of one step of one task."""

    crash: Faults
    task: int
    version: int

    def armed(self, point: str) -> bool:
        """Whether `reach` would cause a fault."""
        return self.crash.armed(point, self.task, self.version)

    def reach(self, point: str) -> None:
        """Kills or freezes the process if a fault is due at this point."""
        self.crash.reach(point, self.task, self.version)

    def at(self, point: str) -> Callable[[], None]:
        """`reach` as a callback for code that does not know the point's name."""
        return lambda: self.reach(point)


@dataclass(frozen=True, slots=True)
class SentStep:
    """A step whose records are sent.

    Attributes:
        expected: Where the last records of the task's own logs must be.
        offsets: The source offsets that it reports.
        follows: Whether its transaction may follow another transaction of the same producer.
    """

    identity: TaskIdentity
    points: StepPoints
    expected: Mapping[TopicPartition, int]
    offsets: Mapping[TopicPartition, int]
    follows: bool
    watch: StopWatch


class Transaction:
    """One Kafka transaction with steps of one task, or of several, one after the other. At the end it is committed, or never.

    Args:
        producer: A producer that has fenced all other attempts and is ready for a transaction.
        transactional_id: The producer's transactional id.
    """

    def __init__(self, producer: Producer, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.committed = False
        self._steps: list[SentStep] = []
        self._half = False

    @property
    def shared(self) -> bool:
        """Whether it has steps of several tasks."""
        return len(self._steps) > 1

    def begin(self) -> None:
        """Begins a step. The first step also begins the transaction."""
        self._check_whole("begin a step of")
        if not self._steps:
            self.producer.begin()
        self._half = True

    def add(self, step: SentStep) -> None:
        """Ends a step: all of its records are sent."""
        self._steps.append(step)
        self._half = False

    def commit(self) -> None:
        """Commits the records that were sent, together with the source offsets; only waits for the brokers.

        Raises:
            UnexpectedOffsetError: Another process has written to the logs of one of the tasks. Nothing is committed.
            ProduceError: Nothing is committed, or the outcome is unknown: the next attempt reads the markers.
        """
        self._check_whole("commit")
        producer, steps = self.producer, self._steps
        if self.shared:
            for step in steps:
                step.watch.lap("wait")
        if steps[0].follows:
            # While the brokers still complete the producer's last transaction, they refuse the next one. librdkafka asks again
            # for records after 20 ms, but for offsets only after `retry.backoff.ms`. So records go first.
            producer.flush()
        offsets = {place: offset for step in steps for place, offset in step.offsets.items()}
        if offsets:
            # The group of all sub-topologies is the application's.
            producer.send_offsets(offsets, steps[0].identity.application_id)
        producer.flush()
        for step in steps:
            guards.check_delivered(step.identity, producer, step.expected)
        for step in steps:
            step.points.reach("before_commit")
        producer.commit()
        self.committed = True
        for step in steps:
            step.points.reach("after_commit")
            step.watch.lap("commit")

    def _check_whole(self, what: str) -> None:
        """Checks that no step failed while it was sent, and that nothing was committed; otherwise another attempt has to begin."""
        if self._half or self.committed:
            state = "is committed" if self.committed else "has a step that has failed"
            raise ProducerStateError(f"cannot {what} the transaction of {self.transactional_id!r}: it {state}")


class StepTransaction:
    """Sends a step.

    Args:
        kafka: The log.
        transaction: The transaction that the step becomes a part of.
        points: The crash points.
        commits: The task's partition of the commits topic.
        changelogs: Store -> partition of its changelog.
    """

    def __init__(
        self,
        kafka: KafkaAccess,
        transaction: Transaction,
        identity: TaskIdentity,
        points: StepPoints,
        commits: TopicPartition,
        changelogs: Mapping[str, TopicPartition],
    ) -> None:
        self._kafka = kafka
        self._transaction = transaction
        self._producer = transaction.producer
        self._identity = identity
        self._points = points
        self._commits = commits
        self._changelogs = changelogs

    def send(
        self,
        step: StepInput,
        last: CommitMarker | None,
        store: TaskStore,
        effects: Effects,
        ends: Mapping[TopicPartition, int],
        known: int,
        watch: StopWatch,
    ) -> tuple[MarkerCopy, StorePosition]:
        """Sends all records of a step. They are committed only by `Transaction.commit`, which waits for the brokers."""
        begins = {name: ends[log] for name, log in self._changelogs.items()}
        # A whole local store would hide a changelog that was lost, and the next restore would miss all that is older.
        for name, promised in last.changelog_ends.items() if last else ():
            if name in begins:
                check_end(name, begins[name], last.version if last else 0, promised)
        producer, points = self._producer, self._points
        self._transaction.begin()
        points.reach("after_begin")
        outputs = self._send_outputs(effects.sends)
        self._reach_flushed("outputs_sent")
        digest, counts = self._send_changelog(store)
        self._reach_flushed("changelog_sent")
        marker = self._marker(step, last, store, effects, _Sent(outputs, begins, counts, digest), known)
        copy = MarkerCopy(marker.to_bytes(), ends[self._commits])
        producer.send(*self._commits, MARKER_KEY, copy.data, step.now_ms)
        self._reach_flushed("marker_sent")
        position = StorePosition(
            marker.state_of, marker.version, marker.changelog_ends, step.now_ms, marker.changelog_ids
        )
        lasts = {self._changelogs[name]: begins[name] + count - 1 for name, count in counts.items()}
        expected = {**lasts, self._commits: copy.offset}
        self._transaction.add(SentStep(self._identity, points, expected, step.offsets, step.live, watch))
        return copy, position

    def _marker(
        self,
        step: StepInput,
        last: CommitMarker | None,
        store: TaskStore,
        effects: Effects,
        sent: _Sent,
        known: int,
    ) -> CommitMarker:
        ids = self._kafka.topic_ids([topic for topic, _ in self._changelogs.values()])
        placement = self._identity.written_placement
        return CommitMarker(
            query_id=self._identity.query_id,
            task=self._identity.task,
            tasks=self._identity.tasks,
            topology_hash=self._identity.topology_hash,
            version=(last.version if last else 0) + 1,
            batch_id=step.batch_id,
            batch=step.batch,
            ranges=step.ranges,
            topic_ids=step.topic_ids,
            stream_time=effects.stream_time,
            operator_state=effects.operator_state,
            changelog_ends=sent.changelog_ends,
            expired_before=store.expired_before,
            counts={"in": effects.records_in, "out": sent.outputs, "changelog": sent.digest.records},
            changelog_hash=sent.digest.hexdigest(),
            now_ms=step.now_ms,
            changelog_begins=dict(sent.begins),
            changelog_ids={name: ids[topic] for name, (topic, _) in self._changelogs.items() if topic in ids},
            routing=step.routing,
            adopted=last.adopted if last else 0,
            passed_over=last.version - known if last else 0,
            application_id=self._identity.application_id,
            continues=last.continues if last else "",
            earlier=last.reached_before(step.ranges, step.topic_ids) if last else {},
            transactional_id=self._identity.noted(self._transaction.transactional_id),
            placement=placement,
            format=format_of(placement, step.live),
        )

    def _send_outputs(self, sends: Sequence[Send]) -> int:
        """Sends all results and returns their number."""
        # A repeated attempt has the same number, so results without keys go to the same partitions as before.
        turn = self._points.version + self._identity.task
        for send in sends:
            self._send(
                "outputs_half_sent", send.topic, self._kafka.partitions_for(send, turn), send.keys, send.values, send.timestamps,
                send.headers,
            )  # fmt: skip
        return sum(len(send.keys) for send in sends)

    def _send_changelog(self, store: TaskStore) -> tuple[StepDigest, dict[str, int]]:
        """Sends the state changes; returns their digest and the number of records of each store."""
        digest = StepDigest()
        counts: dict[str, int] = {}
        for name, batch in store.changelog():
            topic, partition = self._changelogs[name]
            self._send(
                "changelog_half_sent", topic, partition, batch.keys, batch.values, batch.timestamps, batch.headers
            )
            digest.add(name, batch)
            counts[name] = counts.get(name, 0) + len(batch)
        return digest, counts

    def _send(
        self, halfway: str, topic: str, partitions: Any, keys: Any, values: Any, timestamps: Any, headers: Any = None
    ) -> None:
        """Sends columns, in two parts if a crash should happen between them."""
        if not len(keys) or not self._points.armed(halfway):
            self._producer.send_columns(topic, partitions, keys, values, timestamps, headers)
            return
        cut = max(1, len(keys) // 2)
        for part in (slice(0, cut), slice(cut, None)):
            own = partitions if isinstance(partitions, int) else partitions[part]
            cells = None if headers is None else headers[part]
            self._producer.send_columns(topic, own, keys[part], values[part], timestamps[part], cells)
            if part.start == 0:
                self._reach_flushed(halfway)

    def _reach_flushed(self, point: str) -> None:
        """A crash point at which all sent records are in the log. Flushes only if a fault is armed."""
        if self._points.armed(point):
            self._producer.flush()
            self._points.reach(point)
