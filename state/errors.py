"""All named errors of the engine, in one tree.

All exceptions raised by `state` and by the packages that build on it are here, so that a user who looks for an error finds
all of them, with their cures, in one place. Invariants: a message says what happened, where (topic, partition, offset,
key) and what to do; no message contains a secret; every error survives pickling (Spark sends errors between processes).

    StreamsError
    ├── KafkaClientError               a Kafka request failed; `failure` = the client library's code and flags
    │   ├── AuthenticationError        the brokers do not accept the user, the password or the mechanism
    │   ├── TlsError                   no secure connection: a certificate does not fit, or one end speaks no TLS
    │   ├── AuthorizationError         a right is missing: the user, the right, the resource, and the command that grants it
    │   ├── TopicNotFoundError         the topic or the partition does not exist
    │   ├── TopicRecreatedError        the topic was deleted and created again: its offsets now stand for other records
    │   ├── TopicMismatchError         the topic exists, but with another number of partitions than needed
    │   ├── OffsetsLostError           offsets that are still needed are gone (retention, DeleteRecords, truncation)
    │   ├── ReadTimeoutError           no progress while reading a range
    │   ├── HangingTransactionError    a transaction stays open beyond its timeout and blocks reading
    │   └── ProduceError               a record or a transaction could not be written
    │       ├── FencedError            another producer took the transactional id, or the transaction timed out
    │       ├── RecordTooLargeError    one record is larger than the client or the topic allows
    │       └── ProducerStateError     calls in a wrong order, or a producer used again after its end
    ├── CommitError                    Spark's checkpoint and Kafka's commits topic do not fit together
    │   ├── CheckpointMismatchError    lost, rolled back, foreign, or of another topology: an operator decides
    │   ├── OpenTransactionError       a transaction is open where only this task writes
    │   ├── UnexpectedOffsetError      the step's records are not at the end of the log: another program wrote there
    │   ├── RoutingMismatchError       functions returned other keys than in the committed attempt: rows would move
    │   └── MarkerFormatError          the commits topic holds something that this version cannot read
    └── StateError                     local state or its changelog cannot be used as it is
        ├── ForeignFolderError         a folder for private data belongs to another user
        ├── StateLockedError           another process has the store open
        ├── StateCorruptedError        the local store is damaged; delete it, and the changelog restores it
        │   └── StateFormatError       another version wrote the local store; the cure is the same
        ├── ChangelogMismatchError     a changelog topic exists, but with settings that the store cannot use
        ├── StepTooLargeError          a step passes on 2 GiB or more at once; take fewer records at a time
        ├── RestoreError               the changelog does not have the state that the commit marker promises
        │   └── ForeignRowError        another program wrote a record of the changelog
        └── SnapshotError              a snapshot, or the location of snapshots, cannot be used
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class ErrorKind(str, Enum):
    """Who can resolve an error, so that a supervisor can act without reading the message."""

    CONFIGURATION = "configuration"
    """A person: the program, a setting, a topic, a permission or the checkpoint must change before another start helps."""
    DATA = "data"
    """The data: a record, a row of state, or a log that has lost records does not fit."""
    TRANSIENT = "transient"
    """Time: the same call may succeed later (a broker is away, another attempt still has the store open)."""
    BUG = "bug"
    """The engine's developers: calls in an order that the engine itself must never make."""


class StreamsError(Exception):
    """Root of all errors of the engine."""

    kind: ErrorKind = ErrorKind.CONFIGURATION

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later without intervention: a broker is away, or a leader is being elected."""
        return self.kind is ErrorKind.TRANSIENT

    def __reduce__(self) -> tuple[Callable[..., StreamsError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[StreamsError], args: tuple[Any, ...], attributes: dict[str, Any]) -> StreamsError:
    """Unpickles an error without calling `__init__`, which takes the parts of a message, while `args` has the whole message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


# --- Errors between this process and Kafka.

PASSING = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_DESTROY_BROKER",  # the client has dropped a broker that its cluster no longer lists
        "_TRANSPORT",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_WAIT_COORD",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        # The leader knows an older epoch than the broker that named it: the partition is new, or has just moved.
        "UNKNOWN_LEADER_EPOCH",
        "FENCED_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "OFFSET_NOT_AVAILABLE",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "REQUEST_TIMED_OUT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_CONTROLLER",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "CONCURRENT_TRANSACTIONS",
        "KAFKA_STORAGE_ERROR",
    }
)
"""Names of failures that end by themselves once brokers, leaders and coordinators are back."""
_TIMED_OUT = -185
_SHOWN = re.compile(r"\[(_?[A-Z][A-Z0-9_]*) \((-?\d+)((?:, (?:retriable|fatal|abortable))*)\): ([^\n]*)\]")


@dataclass(frozen=True)
class ClientFailure:
    """A failed call, as the client library reported it.

    Attributes:
        code: librdkafka's number; negative = raised by the client itself, positive = Kafka's protocol error.
        name: The name of the code, e.g. `_FENCED` or `UNKNOWN_TOPIC_OR_PART`.
        text: The library's sentence.
        retriable: Whether the library allows the same call again.
        fatal: Whether the client instance can no longer be used.
        abortable: Whether the current transaction can only be aborted.
    """

    code: int
    name: str
    text: str
    retriable: bool = False
    fatal: bool = False
    abortable: bool = False

    @property
    def transient(self) -> bool:
        """Whether the failure may end by itself."""
        return not self.fatal and (self.retriable or self.name in PASSING)

    @classmethod
    def in_text(cls, text: str) -> ClientFailure | None:
        """Reads the failure at the end of an error's message, because Spark forwards only the text of errors."""
        found = _SHOWN.findall(text)
        if not found:
            return None
        name, code, flags, said = found[-1]
        return cls(int(code), name, said, "retriable" in flags, "fatal" in flags, "abortable" in flags)

    def __str__(self) -> str:
        flags = [flag for flag in ("retriable", "fatal", "abortable") if getattr(self, flag)]
        return f"{self.name} ({', '.join([str(self.code), *flags])}): {self.text}"


class KafkaClientError(StreamsError):
    """A request to Kafka failed.

    Args:
        message: What was tried, where, and what to do.
        failure: The client library's failure, if that caused the error.
    """

    def __init__(self, message: str, failure: ClientFailure | None = None) -> None:
        super().__init__(message if failure is None else f"{message} [{failure}]")
        self.failure = failure
        if failure is not None and failure.transient:
            self.kind = ErrorKind.TRANSIENT

    @property
    def code(self) -> int | None:
        """The client library's number of the error; None if the error did not come from it."""
        return None if self.failure is None else self.failure.code


class AuthenticationError(KafkaClientError):
    """The brokers do not accept these credentials: user, password or mechanism is wrong. Trying again does not help."""


class TlsError(KafkaClientError):
    """No secure connection to the brokers: a certificate is not trusted, expired or for another host, or one end has no TLS."""


class AuthorizationError(KafkaClientError):
    """The brokers know the user, and do not allow the request: an ACL is missing."""


class TopicNotFoundError(KafkaClientError):
    """A topic, or one partition of it, does not exist (or may not be described with these credentials)."""

    def __init__(
        self,
        topic: str,
        partition: int | None = None,
        failure: ClientFailure | None = None,
        others: Sequence[str] = (),
    ) -> None:
        where = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
        names = " ".join([topic, *others])
        text = (
            f"topics {', '.join(map(repr, [topic, *others]))} do not exist, or these credentials may not see them. Create them "
            f"(`streams topic create {names}`), or correct their names in the program or the address of the cluster"
            if others
            else f"{where} does not exist, or these credentials may not see it. Create it (`streams topic create`), or correct its "
            f"name in the program or the address of the cluster"
        )
        super().__init__(text, failure)
        self.topic = topic
        self.partition = partition
        self.others = tuple(others)
        """Further topics that are missing as well."""

    @classmethod
    def if_missing(cls, names: Iterable[str], found: Container[str]) -> None:
        """Raises one error that names all topics that were not found.

        Raises:
            TopicNotFoundError: At least one was not found.
        """
        missing = [name for name in names if name not in found]
        if missing:
            raise cls(missing[0], others=missing[1:])


class TopicRecreatedError(KafkaClientError):
    """A topic's id differs from the one that this application has read: the topic was deleted and created again."""

    def __init__(self, topic: str, expected_id: str, found_id: str) -> None:
        super().__init__(
            f"topic {topic!r} was deleted and created again: its id was {expected_id}, now it is {found_id}, so saved "
            f"offsets point at other records. Restore the old topic from a backup; if the topic is lost and you "
            f"can discard what the application derived from it, run `streams reset`"
        )
        self.topic = topic
        self.expected_id = expected_id
        self.found_id = found_id


class TopicMismatchError(KafkaClientError):
    """A topic to create already exists with another number of partitions."""

    def __init__(self, topic: str, expected: int, found: int) -> None:
        super().__init__(
            f"topic {topic!r} exists with {found} partitions, but {expected} are needed; choose another application "
            f"id, set the number of tasks to {found}, or delete the topic if it is left over from another application"
        )
        self.topic = topic
        self.expected = expected
        self.found = found


class OffsetsLostError(KafkaClientError):
    """Offsets that must be read are not, or no longer, in the log.

    Args:
        topic: The topic.
        partition: The partition.
        expected: The offset to read next.
        earliest: The first offset in the log.
        latest: The offset after the last record of the log.
        failure: The client library's failure.
        setting: The value of `on_lost_offsets`; None if it is not known, as in a reader.
    """

    kind = ErrorKind.DATA

    def __init__(
        self,
        topic: str,
        partition: int,
        expected: int,
        *,
        earliest: int,
        latest: int,
        failure: ClientFailure | None = None,
        setting: str | None = None,
    ) -> None:
        if expected > latest:
            why = "the log is shorter than that: the topic was truncated, or deleted and created again"
        else:
            why = "the records before the earliest offset were deleted (retention, or DeleteRecords)"
        if setting == "fail":
            then = "set `on_lost_offsets` to continue without these records"
        else:
            then = "the next attempt continues where `on_lost_offsets` says, or names this again if it is `fail`"
        super().__init__(
            f"{topic}-{partition}: offset {expected} is needed next, but the log has [{earliest}, {latest}): {why}; {then}. "
            f"If this is an internal topic, a second application with this id has deleted them: stop that one, and start again",
            failure,
        )
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.earliest = earliest
        self.latest = latest


class ReadTimeoutError(KafkaClientError):
    """Reading a range made no progress for too long.

    Args:
        topic: The topic.
        partition: The partition.
        position: The offset to read next.
        end: The end of the range, exclusive.
        seconds: How long nothing arrived.
        failure: The last transient error of the client (for example a broker that is down); without one, it is a timeout.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        position: int,
        end: int,
        *,
        seconds: float,
        failure: ClientFailure | None = None,
    ) -> None:
        super().__init__(
            f"{topic}-{partition}: nothing came for {seconds:g} s at offset {position} of a range that ends at {end}; "
            f"check that the brokers are up, and that no foreign transaction is left open on this partition "
            f"(streams transactions --topic {topic} --hanging)",
            failure or ClientFailure(_TIMED_OUT, "_TIMED_OUT", "nothing came"),
        )
        self.topic = topic
        self.partition = partition
        self.position = position
        self.end = end


class HangingTransactionError(KafkaClientError):
    """A transaction stays open for longer than its producer and the brokers may take to end it.

    The cause is another program that writes to the partitions, or a transaction that brokers have lost: Kafka 4.3 skips the control
    records of a decided transaction whose partitions have no leader at that moment (KAFKA-20734), and no client can end it.

    Args:
        partitions: Where the transaction is open, as `topic-partition`.
        seconds: How long the call waited.
    """

    def __init__(self, partitions: Sequence[str], seconds: float) -> None:
        where = ", ".join(partitions)
        topic = partitions[0].rpartition("-")[0]
        super().__init__(
            f"a transaction that writes to {where} was still open after {seconds:g} s: another producer writes there, or "
            f"brokers that were away have left it hanging. `streams transactions --topic {topic}` shows its producer, and whether "
            f"it hangs; once the application is stopped, --abort-hanging ends it on all its partitions, and the next start "
            f"repeats the step"
        )
        self.partitions = list(partitions)


class ProduceError(KafkaClientError):
    """A record, or the transaction around it, could not be written; the producer must be discarded.

    Args:
        message: What was tried and what to do.
        failure: The client library's failure.
        topic: Topic of the record, if one record is the cause.
        partition: The record's partition, -1 if none was chosen yet.
        key: The record's key.
        offset: The record's offset, -1 if it never had one.
    """

    def __init__(
        self,
        message: str,
        failure: ClientFailure | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        key: bytes | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, failure)
        self.topic = topic
        self.partition = partition
        self.key = key
        self.offset = offset

    @property
    def retriable(self) -> bool:
        """Whether the client library allows the same call again. The engine never repeats it: a new attempt decides."""
        return self.failure is not None and self.failure.retriable

    @property
    def fatal(self) -> bool:
        """Whether the client instance can no longer be used."""
        return self.failure is not None and self.failure.fatal


class FencedError(ProduceError):
    """This producer lost its transactional id to a newer attempt, or to the transaction timeout; both look the same.

    The error never means that the work was done elsewhere: the next attempt reads the commit marker and decides.
    """


class RecordTooLargeError(ProduceError):
    """One record is larger than the client (`message.max.bytes`) or the topic (`max.message.bytes`) allows."""

    kind = ErrorKind.DATA


class ProducerStateError(ProduceError):
    """Calls came in a wrong order, or a producer was used again after commit, failure or close."""

    kind = ErrorKind.BUG


# --- Errors between Spark's checkpoint and Kafka's commits topic.


class CommitError(StreamsError):
    """Spark's checkpoint and Kafka's commits topic do not fit together."""


class CheckpointMismatchError(CommitError):
    """The last commit marker cannot be the one that Spark's checkpoint knows. Nothing was written."""


class OpenTransactionError(CommitError):
    """A transaction is open on a partition that only this task writes, although all of the task's own transactions are decided.

    Args:
        task: The task that found it.
        topic: The topic.
        partition: Its partition.
        stable: Last stable offset; records from here on cannot be read.
        end: End of the log.
    """

    def __init__(self, task: str, topic: str, partition: int, stable: int, end: int) -> None:
        super().__init__(
            f"{task}: a transaction is open on {topic}-{partition} from offset {stable} on (the log ends at {end}), although "
            f"this task is the only one to write there and all its transactions are decided: what this task has committed "
            f"may be hidden. Nothing was written. Either something else writes to this topic (see its rights), or brokers have "
            f"left a transaction hanging. `streams transactions --topic {topic}` shows it, and with --abort-hanging ends it. Then "
            f"start again"
        )
        self.topic = topic
        self.partition = partition
        self.stable = stable
        self.end = end


class UnexpectedOffsetError(CommitError):
    """A record of a step was not written at the end of the log that the step had seen. The step was not committed.

    Args:
        task: The task that found it.
        topic: The topic.
        partition: Its partition.
        expected: Offset of the step's last record there, by the end of the log before the step.
        found: The offset that the broker acknowledged, None = unknown.
    """

    kind = ErrorKind.TRANSIENT

    def __init__(self, task: str, topic: str, partition: int, expected: int, found: int | None) -> None:
        place = "the broker did not say where it is" if found is None else f"it is at {found}"
        super().__init__(
            f"{task}: the step's last record on {topic}-{partition} should be at offset {expected}, but {place}: there are records "
            f"that this task did not see when it decided what to do. The step was not committed; the next attempt looks "
            f"again. If this comes again, something else writes to this topic (see its rights), or the leader of the "
            f"partition is not the one that all brokers name (`kafka-topics.sh --describe --topic {topic}`)"
        )
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.found = found


class RoutingMismatchError(CommitError):
    """In a repeated micro-batch, a task got other rows than in the attempt that was committed.

    Rows go to tasks by key. If a function before the shuffle makes another key at each call, a row that one task has committed goes
    to another task in the next attempt, and is counted twice or not at all.

    Args:
        task: The task that found it.
        batch_id: Spark's number of the micro-batch.
        version: The committed step.
        keyed_by: Names of the nodes that change keys before the shuffle.
    """

    def __init__(self, task: str, batch_id: int, version: int, keyed_by: Sequence[str]) -> None:
        names = ", ".join(repr(name) for name in keyed_by) or "before the shuffle"
        super().__init__(
            f"{task}: batch {batch_id} was committed as step {version}, but now the functions of {names} gave its records "
            f"other keys, so other rows came to this task: records would be lost or counted twice. This task has written nothing. "
            f"These functions must give the same key for the same record each time (no clock, random number or lookup "
            f"that changes, and no other program while a batch is half committed): run the program that began this batch, or "
            f"correct them, or put `repartition()` behind them, which keeps the keys that were given first"
        )
        self.task = task
        self.batch_id = batch_id
        self.version = version
        self.keyed_by = list(keyed_by)


class MarkerFormatError(CommitError):
    """A record of the commits topic is not a marker that this version can read."""

    kind = ErrorKind.DATA


# --- Errors of local state and its changelogs.


class StateError(StreamsError):
    """Local state or its changelog cannot be used as it is."""


class ForeignFolderError(StateError):
    """A folder for private data belongs to another user, who could read or replace what is written there."""

    def __init__(self, path: str, owner: int) -> None:
        super().__init__(
            f"{path} belongs to the user with id {owner}, and this process runs as {os.getuid()}: its owner could read and replace "
            f"what is written there. Nothing was written; run as that user, or take another folder (base_dir, state_dir, "
            f"checkpoint_dir), one whose parent folders only you can write to"
        )
        self.path = path
        self.owner = owner


class StateLockedError(StateError):
    """Another process (or another handle in this one) has the store open."""

    kind = ErrorKind.TRANSIENT

    def __init__(self, path: str, seconds: float, detail: str) -> None:
        super().__init__(
            f"the store in {path} is open elsewhere and was not released within {seconds:g} s: an older attempt of the "
            f"task that has not ended yet, a second application with the same state_dir, or a stopped process. If it stays, "
            f"find the process with `fuser {path}/LOCK` and end it, or give each application its own state_dir [{detail}]"
        )
        self.path = path


class StateCorruptedError(StateError):
    """The local store is damaged. No data is lost: delete the store, and it is restored from its changelog."""

    kind = ErrorKind.DATA

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"the store in {path} cannot be used: {detail}. Delete it, and it is restored from its changelog (the engine "
            f"does so by itself); if this happens again, check the disk"
        )
        self.path = path
        self.detail = detail


class StateFormatError(StateCorruptedError):
    """Another version of the engine wrote the local store. No data is lost: delete the store, and it is restored."""

    def __init__(self, path: str, found: object, known: int) -> None:
        super().__init__(path, f"it has format {found}, this version knows {known}")


class ChangelogMismatchError(StateError):
    """A changelog or commits topic exists, but with settings that cannot be used."""

    def __init__(self, topic: str, found: str, remedy: str) -> None:
        super().__init__(f"topic {topic!r}: {found}; {remedy}")
        self.topic = topic
        self.found = found
        self.remedy = remedy


class StepTooLargeError(StateError):
    """A column of one step has 2 GiB or more, which no column of bytes can hold. Nothing of the step is committed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} have 2 GiB or more in one step. Nothing of this attempt is committed. Start again with a smaller "
            f"max_records_per_trigger: as long as no task has committed this micro-batch, it is planned again in smaller pieces"
        )


class RestoreError(StateError):
    """The changelog does not have the state that the commit marker promises, or some of its records make no sense."""

    kind = ErrorKind.DATA


class ForeignRowError(RestoreError):
    """A changelog has a record that is not in the format of its store. Nothing of it was written to the store."""

    def __init__(self, store: str, topic: str, partition: int, offset: int, form: str, why: str) -> None:
        super().__init__(
            f"the record at offset {offset} of {topic}-{partition} cannot be restored: the store {store!r} holds {form}, and "
            f"{why}. So another program wrote it, for example Kafka Streams, or a newer release of this one. If a newer release "
            f"did, run that one. If the state may be lost, stop the application and use `streams reset`; if not, give the "
            f"application an application_id of its own and let it read its input again"
        )
        self.store = store
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SnapshotError(StateError):
    """A snapshot, or the location of snapshots, cannot be used. State is not lost: it is in the changelogs."""
