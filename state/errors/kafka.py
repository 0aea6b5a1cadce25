"""Errors between this process and Kafka."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from state.errors.base import ErrorKind, StreamsError

PASSING = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_DESTROY_BROKER",  # the client has dropped a broker that its cluster no longer names
        "_TRANSPORT",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_WAIT_COORD",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        # The leader knows less than the broker that named it: the partition is new, or has just moved.
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
"""Names of failures that resolve themselves once brokers, leaders and coordinators are back."""
_TIMED_OUT = -185
_SHOWN = re.compile(r"\[(_?[A-Z][A-Z0-9_]*) \((-?\d+)((?:, (?:retriable|fatal|abortable))*)\): ([^\n]*)\]")


@dataclass(frozen=True)
class ClientFailure:
    """A failed call, as the client library reported it.

    Attributes:
        code: librdkafka's number; negative = raised by the client itself, positive = Kafka's protocol error.
        name: The name of the code, e.g. `_FENCED` or `UNKNOWN_TOPIC_OR_PART`.
        text: The library's sentence.
        retriable: The library would allow the same call again.
        fatal: The client instance can no longer be used.
        abortable: The current transaction can only be aborted.
    """

    code: int
    name: str
    text: str
    retriable: bool = False
    fatal: bool = False
    abortable: bool = False

    @property
    def transient(self) -> bool:
        """Whether the failure may resolve itself."""
        return not self.fatal and (self.retriable or self.name in PASSING)

    @classmethod
    def in_text(cls, text: str) -> ClientFailure | None:
        """The failure at the end of an error's message: Spark passes on only text."""
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
        failure: The client library's failure, if the error came from it.
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
    """No secure connection to the brokers: a certificate that is not trusted, expired or another host's, or no TLS at one end."""


class AuthorizationError(KafkaClientError):
    """The brokers know who is asking, and do not allow the request: an ACL is missing."""


class TopicNotFoundError(KafkaClientError):
    """A topic, or one partition of it, does not exist (or may not be described with these credentials)."""

    def __init__(self, topic: str, partition: int | None = None, failure: ClientFailure | None = None) -> None:
        where = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
        super().__init__(
            f"{where} does not exist, or these credentials may not see it; create it, or correct the name in the "
            f"topology or in bootstrap.servers",
            failure,
        )
        self.topic = topic
        self.partition = partition


class TopicRecreatedError(KafkaClientError):
    """A topic's id differs from the one this application has read from: the topic was deleted and created again."""

    def __init__(self, topic: str, expected_id: str, found_id: str) -> None:
        super().__init__(
            f"topic {topic!r} was deleted and created again: its id was {expected_id}, now it is {found_id}, so saved "
            f"offsets point at other records. Restore the old topic from a backup; if it is gone for good, and all that this "
            f"application has made of it with it, `streams reset` starts anew"
        )
        self.topic = topic
        self.expected_id = expected_id
        self.found_id = found_id


class TopicMismatchError(KafkaClientError):
    """A topic that was to be created already exists with another number of partitions."""

    def __init__(self, topic: str, expected: int, found: int) -> None:
        super().__init__(
            f"topic {topic!r} exists with {found} partitions, but {expected} are needed; choose another application "
            f"id, set the number of tasks to {found}, or delete the topic if it is left over from another application"
        )
        self.topic = topic
        self.expected = expected
        self.found = found


class OffsetsLostError(KafkaClientError):
    """Offsets that must be read are not in the log (any more).

    Args:
        topic: The topic.
        partition: The partition.
        expected: The offset that was to be read next.
        earliest: The first offset in the log.
        latest: The offset after the last record of the log.
        failure: The client library's failure.
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
    ) -> None:
        if expected > latest:
            why = "the log is shorter than that: the topic was truncated, or deleted and created again"
        else:
            why = "the records before the earliest offset were deleted (retention, or DeleteRecords)"
        super().__init__(
            f"{topic}-{partition}: offset {expected} is needed next, but the log has [{earliest}, {latest}): {why}; "
            f"restore the topic, or reset this partition's offset knowing that its records are lost",
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
        position: The offset that was to be read next.
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
            f"(kafka-transactions.sh find-hanging)",
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
        seconds: How long the wait was.
    """

    def __init__(self, partitions: Sequence[str], seconds: float) -> None:
        where = ", ".join(partitions)
        topic = partitions[0].rpartition("-")[0]
        super().__init__(
            f"a transaction that writes to {where} was still open after {seconds:g} s: another producer writes there, or "
            f"brokers that were away have left it hanging. `streams transactions --topic {topic}` shows its producer, and whether "
            f"it hangs; docs/operations.md, 'A transaction that nobody ends', says how "
            f"to end it on all its partitions without losing or repeating anything"
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
        """The client library would allow the same call again (the engine never does: a new attempt decides)."""
        return self.failure is not None and self.failure.retriable

    @property
    def fatal(self) -> bool:
        """The client instance can no longer be used."""
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
