"""`SimulatedKafka`: one broker in memory, exact where the commit protocol depends on it; its producers and transactions.

The simulation is exact for transactions with producer epochs and fencing, control records that take offsets and may be written
late, the last stable offset, readers that end by position, group offsets within transactions, compaction, DeleteRecords,
retention, and topic ids. There are no replicas, the only time is `now_ms`, and requests return at once unless a hook intervenes.

The same object implements the interfaces of a step (`state.commit.step.KafkaAccess`), of a restore (`ChangelogSource`,
`RecordDeleter`), of the planner (`streams.engine.source.log.SourceAdmin`), and of the commands that read and replace topics
(`state.kafka.admin.KafkaAdmin`, as far as they need it).

The transaction coordinator has the old EndTxn that librdkafka speaks. It identifies a transaction by producer id and epoch only,
and both stay the same from one transaction of a producer to the next. So a delayed request to commit one transaction commits all
that the same producer has written of the next one by then. The simulation has this flaw, because it must not affect the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.changelog import DELETE_RETENTION_MS
from state.columns import RecordColumns
from state.errors import FencedError, KafkaClientError, ProduceError, ProducerStateError, TopicNotFoundError
from state.headers import Header, encode_headers
from state.kafka.key_hash import partition_for_key
from state.kafka.partitioner import choose_partitions
from state.kafka.topics import TopicInfo, TopicPartition, TopicSpec
from streams.testing.simulation.log import PartitionLog, Span, as_columns

if TYPE_CHECKING:
    from state.commit.protocols import Send

# --- The events of a simulation, which a test can observe, reject, delay, or crash at.
#
# Every request to the simulated Kafka and every write to a simulated disk is an event; the hook is called before and after it. A
# crash before an event is a process that ended without sending its request; a crash after an event, one that never read the
# reply. An error after an event is a lost reply.


class RequestEvent(NamedTuple):
    """One request or one write.

    Attributes:
        kind: `init`, `send`, `offsets`, `commit`, `control` (a control record that ends a transaction on one partition), `read`,
            `ends`, `begins`, `delete` (DeleteRecords), `write` or `flush` (of a disk).
        where: The transactional id, topic-partition or disk.
        detail: A description for people.
    """

    kind: str
    where: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.detail}".rstrip()


class Fate(Enum):
    """The outcome of an event."""

    NOW = "now"
    LATE = "late"
    """`commit`: the caller gets a timeout, and the request arrives when `SimulatedKafka.deliver` is called. `control`: it is
    written then. `ends`: the answer comes from a former leader, so it is out of date."""
    TWICE = "twice"
    """`commit`: answered so late that the client has sent it twice; the second request arrives like a late one."""


class Hook(Protocol):
    """Decides which events fail."""

    def before(self, event: RequestEvent) -> Fate:
        """Called before an event; an error raised here prevents the event and is raised to the caller."""

    def after(self, event: RequestEvent) -> None:
        """Called after an event; an error raised here is raised to the caller, although the event has happened."""


class NothingHappens:
    """A hook that lets every event succeed."""

    def before(self, event: RequestEvent) -> Fate:
        return Fate.NOW

    def after(self, event: RequestEvent) -> None:
        """Does nothing."""


class Crash(BaseException):
    """Ends the process at this point. Not an `Exception`, so that no handler of the simulated process catches it."""


_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic.

    Attributes:
        topic_id: The topic's id, new each time that a topic of this name is created.
        logs: The topic's partitions.
        cleanup_policy: `delete`, `compact` or `compact,delete`.
    """

    topic_id: str
    logs: list[PartitionLog]
    cleanup_policy: str = "delete"


@dataclass(slots=True)
class Transactional:
    """The coordinator's state of one transactional id.

    Attributes:
        name: The transactional id.
        epoch: The epoch of the current producer; all others are fenced.
        open: Partition -> the current transaction's records there.
        offsets: Group -> the source offsets of the current transaction.
        decided: The parts that still need their control record, without which readers do not see them.
    """

    name: str
    epoch: int = -1
    open: dict[TopicPartition, tuple[PartitionLog, Span]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    decided: list[tuple[PartitionLog, Span]] = field(default_factory=list)

    def check(self, epoch: int) -> None:
        """Checks that a producer is the newest."""
        if epoch != self.epoch:
            raise FencedError(
                f"transactional id {self.name!r}: the producer of epoch {epoch} is fenced, epoch {self.epoch} is alive; the "
                f"next attempt decides by the marker"
            )

    def append(
        self,
        epoch: int,
        log: PartitionLog,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None = None,
    ) -> int:
        """Writes a record within the transaction and returns its offset."""
        self.check(epoch)
        place = (log.topic, log.partition)
        if place not in self.open:
            self.open[place] = (log, log.open_span())
        return log.append(key, value, timestamp, headers, self.open[place][1])

    def end(self, committed: bool) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Decides the transaction, whose control records must then be written; returns the offsets to commit."""
        for _, span in self.open.values():
            span.decided = committed
        self.decided += self.open.values()
        offsets = self.offsets if committed else {}
        self.open, self.offsets = {}, {}
        return offsets


class SimulatedProducer:
    """The part of `state.kafka.producer.TransactionalProducer` that a step uses.

    Unlike the real producer, this one can be used for several transactions whatever has happened, so that a test can show the
    consequences.
    """

    def __init__(self, kafka: SimulatedKafka, transactional: Transactional) -> None:
        self._kafka = kafka
        self._transactional = transactional
        self._epoch = -1
        self._begun = self._committed = self._repeated = False
        self._sent: dict[TopicPartition, tuple[int, int]] = {}

    @property
    def transactional_id(self) -> str:
        return self._transactional.name

    def init_transactions(self) -> None:
        """Fences every older producer of the id and aborts their open transactions."""
        self._epoch = self._kafka.fence(self._transactional)

    def begin(self) -> None:
        if self._epoch < 0:
            raise ProducerStateError("begin before init_transactions")
        self._begun, self._committed, self._sent = True, False, {}

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header] | None = None,
    ) -> None:
        if partition is None:
            partition = max(0, partition_for_key(key, self._kafka.partition_count(topic)))
        self._send(topic, partition, key, value, timestamp_ms, encode_headers(headers) if headers else None)

    def send_columns(
        self,
        topic: str,
        partitions: Any,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps: np.ndarray,
        headers: pa.Array | None = None,
    ) -> None:
        count = len(values)
        where = [partitions] * count if isinstance(partitions, int) else partitions.tolist()
        columns = (
            [None] * count if keys is None else keys.to_pylist(),
            values.to_pylist(),
            timestamps.tolist(),
            [None] * count if headers is None else headers.to_pylist(),
        )
        for partition, key, value, timestamp, cell in zip(where, *columns, strict=True):
            self._send(topic, partition, key, value, timestamp, cell)

    def _send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp: int, headers: bytes | None
    ) -> None:
        self._in_transaction("send")
        offset = self._kafka.produce(
            self._transactional, self._epoch, (topic, partition), key, value, timestamp, headers
        )
        first, _ = self._sent.get((topic, partition), (offset, 0))
        self._sent[topic, partition] = (first, offset)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_id: str) -> None:
        self._in_transaction("send_offsets")
        self._kafka.produce_offsets(self._transactional, self._epoch, offsets, group_id)

    def flush(self) -> None:
        """Does nothing, because every sent record is at the broker already."""

    def delivered(self, topic: str, partition: int) -> int | None:
        """The offset of the last record that this transaction has sent to a partition; None if there is none."""
        sent = self._sent.get((topic, partition))
        return None if sent is None else sent[1]

    def commit(self) -> None:
        """Commits.

        Raises:
            FencedError: Another producer has taken over, or the transaction took too long.
            ProduceError: No reply came in time, so the outcome is unknown.
        """
        self._in_transaction("commit")
        self._begun = False
        event = RequestEvent("commit", self.transactional_id, f"epoch {self._epoch}")
        fate = self._kafka.hook.before(event)
        if fate is Fate.LATE:
            self._kafka.delay_commit(self._transactional, self._epoch)
            raise ProduceError(
                f"committing a transaction of {self.transactional_id!r}: no reply from the broker in time"
            )
        self._kafka.end_transaction(self._transactional, self._epoch)
        if fate is Fate.TWICE:
            self._kafka.delay_commit(self._transactional, self._epoch)
            self._repeated = True
        self._kafka.hook.after(event)
        self._committed = True

    def again(self) -> bool:
        """Prepares another transaction; False: it has committed none, or a request was sent twice and may still be on its way."""
        return self._committed and not self._repeated

    def close(self) -> None:
        """Closes the client; an open transaction stays open at the broker."""

    def _in_transaction(self, what: str) -> None:
        if not self._begun:
            raise ProducerStateError(f"{what} of transactional id {self.transactional_id!r} outside of a transaction")


class SimulatedSample(NamedTuple):
    """The part of a record that the planner reads."""

    offset: int
    timestamp_ms: int
    size: int


class SimulatedKafka:
    """A broker.

    Args:
        partitions: The initial number of partitions by topic.
        auto_create: Whether a missing topic is created on first use, with one partition.
        hook: Called for every event.

    Attributes:
        now_ms: The broker's clock, the timestamp of control records.
        groups: Consumer group -> partition -> committed offset.
        notes: Consumer group -> partition -> the metadata of the committed offset, if it has any.
        late: Commits that were sent and have not arrived: (transactional id, epoch).
        settings: Topic -> its settings, for topics that were created with settings.
    """

    def __init__(
        self, partitions: Mapping[str, int] | None = None, *, auto_create: bool = False, hook: Hook | None = None
    ) -> None:
        self._auto_create = auto_create
        self._topics: dict[str, Topic] = {}
        self._created = 0
        self.now_ms = 0
        self.hook: Hook = hook or NothingHappens()
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.notes: dict[str, dict[TopicPartition, str]] = {}
        self.late: list[tuple[Transactional, int]] = []
        self._transactional: dict[str, Transactional] = {}
        self.settings: dict[str, dict[str, str]] = {}
        # Partition -> the ends at the last request, and the ends before their last change.
        self._reported_ends: dict[TopicPartition, tuple[tuple[int, int], tuple[int, int]]] = {}
        for name, count in (partitions or {}).items():
            self.create_topic(name, count)

    # Topics

    @property
    def topics(self) -> set[str]:
        return set(self._topics)

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> None:
        """Creates a topic, or adds partitions to an existing one that has fewer."""
        if name in self._topics:
            logs = self._topics[name].logs
            logs += [PartitionLog(name, number) for number in range(len(logs), partitions)]
            return
        self._created += 1
        logs = [PartitionLog(name, number) for number in range(partitions)]
        self._topics[name] = Topic(f"{name}#{self._created}", logs, cleanup_policy)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The ids and partition counts of those given topics that exist."""
        found = {name: self._topics[name] for name in names if name in self._topics}
        return {name: TopicInfo(topic.topic_id, len(topic.logs)) for name, topic in found.items()}

    def partition_count(self, topic: str) -> int:
        return len(self._topic(topic).logs)

    def was_produced_to(self, topic: str) -> bool:
        """Whether a transaction has written records to a topic that readers see."""
        return any(entry.span is not None for log in self._topic(topic).logs for entry in log.readable())

    def log(self, topic: str, partition: int) -> PartitionLog:
        """A partition."""
        logs = self._topic(topic).logs
        if not 0 <= partition < len(logs):
            raise TopicNotFoundError(topic, partition)
        return logs[partition]

    def _topic(self, name: str) -> Topic:
        if name not in self._topics and self._auto_create:
            self.create_topic(name)
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFoundError(name)
        return topic

    # Producers without transactions, and readers

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: bytes | None = None,
        partition: int | None = None,
    ) -> int:
        """Writes one record without a transaction and returns its offset. Without a partition, the key decides."""
        if partition is None:
            partition = max(0, partition_for_key(key, self.partition_count(topic)))
        return self.log(topic, partition).append(key, value, timestamp, headers)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end), for a step or a restore.

        Raises:
            OffsetsLostError: `start` is not in the log.
            ReadTimeoutError: A transaction below `end` is still open.
        """
        event = RequestEvent("read", f"{topic}-{partition}", f"[{start}, {end})")
        self.hook.before(event)
        found = self.log(topic, partition).read(start, end)
        self.hook.after(event)
        if found is not None:
            yield found

    def sample(
        self, places: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[SimulatedSample]]:
        """The first few committed records at or after each place and below the end, for the planner."""
        found = {}
        for place, start in places.items():
            self.hook.before(RequestEvent("read", f"{place[0]}-{place[1]}", f"a few from {start} on"))
            entries = self.log(*place).readable(start, ends[place])[:_SAMPLE]
            sizes = [len(entry.key or b"") + len(entry.value or b"") for entry in entries]
            found[place] = [
                SimulatedSample(entry.offset, entry.timestamp, size) for entry, size in zip(entries, sizes, strict=True)
            ]
        return found

    def columns(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> RecordColumns | None:
        """The committed records of [start, end), None if there are none; for tests, without events and errors."""
        return as_columns(topic, partition, self.log(topic, partition).readable(start, end))

    def partitions_for(self, send: Send, turn: int) -> npt.NDArray[np.int32]:
        """The partition of each row of a step's output."""
        return choose_partitions(
            send.keys, self.partition_count(send.topic), send.partition_keys, send.partitions, turn
        )

    # Admin

    def create_topics(self, topics: Iterable[TopicSpec]) -> None:
        """Creates topics with their settings; existing ones stay. Each is an event."""
        for spec in topics:
            self.hook.before(RequestEvent("create", spec.name))
            if spec.name not in self._topics:
                self.settings[spec.name] = dict(spec.config)
            self.create_topic(spec.name, spec.partitions, spec.config.get("cleanup.policy", "delete"))

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The settings with which a topic was created, and the defaults that matter here."""
        return {"cleanup.policy": "delete", "retention.ms": "-1", **self.settings.get(name, {})}

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Changes settings of a topic. Raises `TopicNotFoundError` if there is none."""
        if name not in self.topics:
            raise TopicNotFoundError(name)
        self.settings[name] = {**self.settings.get(name, {}), **config}

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics; missing ones are ignored. Each is an event."""
        for name in names:
            self.hook.before(RequestEvent("delete topic", name))
            self.delete_topic(name)

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def group_offsets(self, group: str, places: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The committed offsets of a group, in some partitions or all."""
        wanted = None if places is None else set(places)
        return {place: to for place, to in self.groups.get(group, {}).items() if wanted is None or place in wanted}

    def group_notes(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """Like `group_offsets`, with the metadata of each offset."""
        notes = self.notes.get(group, {})
        return {place: (at, notes.get(place, "")) for place, at in self.group_offsets(group, places).items()}

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]], exact: bool = False
    ) -> None:
        """Commits offsets with metadata, which are exact in any case."""
        self.hook.before(RequestEvent("commit offsets", group))
        self.groups.setdefault(group, {}).update({place: at for place, (at, _) in offsets.items()})
        self.notes.setdefault(group, {}).update({place: note for place, (_, note) in offsets.items()})

    def delete_topic(self, name: str) -> None:
        self._topics.pop(name, None)
        self.settings.pop(name, None)
        self._reported_ends = {place: ends for place, ends in self._reported_ends.items() if place[0] != name}

    def begin_offset(self, partition: TopicPartition) -> int:
        return self.begin_offsets([partition])[partition]

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.hook.before(RequestEvent("begins", ""))
        return {place: self.log(*place).begin for place in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition], committed: bool = True) -> dict[TopicPartition, int]:
        """Last stable offsets, or (`committed` False) the ends of the logs."""
        return {place: ends[0 if committed else 1] for place, ends in self.log_ends(partitions).items()}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Partition -> (last stable offset, end of the log); outdated if a former leader answers."""
        stale = self.hook.before(RequestEvent("ends", "")) is Fate.LATE
        found = {}
        for place in partitions:
            log = self.log(*place)
            now = (log.stable_end, log.end)
            before, last = self._reported_ends.get(place, (now, now))
            if now != last:
                before, last = last, now
            self._reported_ends[place] = (before, last)
            found[place] = before if stale else now
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {name: info.topic_id for name, info in self.describe_topics(topics).items()}

    def delete_retention_ms(self, topic: str) -> int:
        """How long a topic retains tombstones."""
        return DELETE_RETENTION_MS

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset with a timestamp at or after a time (control records count, as in Kafka), or else the stable end."""
        found = {}
        for place, time_ms in times.items():
            log = self.log(*place)
            later = (entry.offset for entry in log.entries if entry.timestamp >= time_ms)
            found[place] = min(next(later, log.stable_end), log.stable_end)
        return found

    def max_timestamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The largest timestamp of each log, including control records; -1 for an empty log."""
        return {place: max((entry.timestamp for entry in self.log(*place).entries), default=-1) for place in partitions}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes records below the offsets."""
        for (topic, partition), offset in before.items():
            event = RequestEvent("delete", f"{topic}-{partition}", f"below {offset}")
            self.hook.before(event)
            log = self.log(topic, partition)
            if self._topics[topic].cleanup_policy == "compact" or offset > log.end:
                raise KafkaClientError(f"deleting records of {topic}-{partition} below {offset}: refused by the broker")
            log.cut(offset)
            self.hook.after(event)
        return {place: self.log(*place).begin for place in before}

    # Transactions, called by producers

    def producer(self, transactional_id: str, kept: bool = False) -> SimulatedProducer:
        return SimulatedProducer(
            self, self._transactional.setdefault(transactional_id, Transactional(transactional_id))
        )

    def fence(self, transactional: Transactional) -> int:
        """InitProducerId: aborts an open transaction, waits until all are decided, and returns the new epoch."""
        event = RequestEvent("init", transactional.name)
        self.hook.before(event)
        epoch = self._fence(transactional)
        self.hook.after(event)
        return epoch

    def _fence(self, transactional: Transactional) -> int:
        transactional.epoch += 1
        transactional.end(committed=False)
        self.decide(transactional)
        return transactional.epoch

    def produce(
        self,
        transactional: Transactional,
        epoch: int,
        place: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None,
    ) -> int:
        """Writes one record within a transaction and returns its offset."""
        event = RequestEvent("send", f"{place[0]}-{place[1]}")
        self.hook.before(event)
        offset = transactional.append(epoch, self.log(*place), key, value, timestamp, headers)
        self.hook.after(event)
        return offset

    def produce_offsets(
        self, transactional: Transactional, epoch: int, offsets: Mapping[TopicPartition, int], group_id: str
    ) -> None:
        event = RequestEvent("offsets", transactional.name)
        self.hook.before(event)
        transactional.check(epoch)
        transactional.offsets.setdefault(group_id, {}).update(offsets)
        self.hook.after(event)

    def end_transaction(self, transactional: Transactional, epoch: int) -> None:
        """EndTxn of the old protocol: commits the open transaction of this epoch's producer, even if an earlier one was meant."""
        transactional.check(epoch)
        for group, offsets in transactional.end(committed=True).items():
            self.groups.setdefault(group, {}).update(offsets)
        if self.hook.before(RequestEvent("control", transactional.name)) is Fate.NOW:
            self.decide(transactional)

    def decide(self, transactional: Transactional) -> None:
        """Writes the missing control records of a decided transaction; until then, readers do not see its records."""
        for log, span in transactional.decided:
            log.close_span(span, self.now_ms)
        transactional.decided = []

    # Failures for tests

    def delay_commit(self, transactional: Transactional, epoch: int) -> None:
        """Delays a commit until its sender has given up waiting."""
        self.late.append((transactional, epoch))

    def deliver(self) -> None:
        """Delivers all delayed commits and control records. A commit is refused if its producer has been fenced since."""
        self.deliver_commits()
        for transactional in self._transactional.values():
            self.decide(transactional)

    def deliver_commits(self) -> None:
        """Delivers all delayed commits. Each commits the transaction of its producer that is open now."""
        late, self.late = self.late, []
        for transactional, epoch in late:
            try:
                self.end_transaction(transactional, epoch)
            except FencedError:
                continue

    def time_out(self, transactional_id: str) -> None:
        """Aborts a transaction that has been open for too long, and fences its producer."""
        self._fence(self._transactional[transactional_id])

    def hang(self, topic: str, partition: int) -> Span:
        """Begins a transaction on a partition that never ends, so that the last stable offset stops here."""
        log = self.log(topic, partition)
        span = log.open_span()
        log.append(b"?", b"of a transaction that hangs", self.now_ms, span=span)
        return span
