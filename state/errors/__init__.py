"""All named errors of the engine, in one tree.

All exceptions raised by `state` and by what builds on it are here, so that a user who catches or searches an error finds
every one of them, with its cure, in one place. Invariants: a message says what happened, where (topic, partition, offset,
key) and what to do; no message contains a secret; every error survives pickling (Spark sends errors between processes).

    StreamsError
    ├── KafkaClientError               a Kafka request failed; `failure` = the client library's code and flags
    │   ├── AuthenticationError        the brokers do not accept the user, the password or the mechanism
    │   ├── TlsError                   no secure connection: a certificate does not fit, or one end speaks no TLS
    │   ├── AuthorizationError         a right is missing: who lacks which right on what, and what grants it
    │   ├── TopicNotFoundError         the topic or the partition does not exist
    │   ├── TopicRecreatedError        the topic was deleted and created again: its offsets mean other records now
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
    │   ├── UnexpectedOffsetError      the step's records did not land at the end of the log: something else wrote there
    │   ├── RoutingMismatchError       functions gave other keys than in the attempt that was committed: rows would move
    │   └── MarkerFormatError          the commits topic holds something that this version cannot read
    └── StateError                     local state or its changelog cannot be used as it is
        ├── ForeignFolderError         a folder for private data belongs to another user
        ├── StateLockedError           another process has the store open
        ├── StateCorruptedError        the local store is damaged; delete it, the changelog restores it
            │   └── StateFormatError       another version wrote the local store; the cure is the same
            ├── ChangelogMismatchError     a changelog topic exists, but with settings that the store cannot use
            ├── StepTooLargeError          a step passes on 2 GiB or more at once; take fewer records at a time
        ├── RestoreError               the changelog does not give the state that the commit marker promises
        └── SnapshotError              a snapshot, or the location of snapshots, cannot be used
"""

from __future__ import annotations

from state.errors.base import (
    ErrorKind,
    StreamsError,
)
from state.errors.commit import (
    CheckpointMismatchError,
    CommitError,
    MarkerFormatError,
    OpenTransactionError,
    RoutingMismatchError,
    UnexpectedOffsetError,
)
from state.errors.kafka import (
    PASSING,
    AuthenticationError,
    AuthorizationError,
    ClientFailure,
    FencedError,
    HangingTransactionError,
    KafkaClientError,
    OffsetsLostError,
    ProduceError,
    ProducerStateError,
    ReadTimeoutError,
    RecordTooLargeError,
    TlsError,
    TopicMismatchError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from state.errors.stores import (
    ChangelogMismatchError,
    ForeignFolderError,
    RestoreError,
    SnapshotError,
    StateCorruptedError,
    StateError,
    StateFormatError,
    StateLockedError,
    StepTooLargeError,
)

__all__ = [
    "PASSING",
    "AuthenticationError",
    "AuthorizationError",
    "ChangelogMismatchError",
    "CheckpointMismatchError",
    "ClientFailure",
    "CommitError",
    "ErrorKind",
    "FencedError",
    "ForeignFolderError",
    "HangingTransactionError",
    "KafkaClientError",
    "MarkerFormatError",
    "OffsetsLostError",
    "OpenTransactionError",
    "ProduceError",
    "ProducerStateError",
    "ReadTimeoutError",
    "RecordTooLargeError",
    "RestoreError",
    "RoutingMismatchError",
    "SnapshotError",
    "StateCorruptedError",
    "StateError",
    "StateFormatError",
    "StateLockedError",
    "StepTooLargeError",
    "StreamsError",
    "TlsError",
    "TopicMismatchError",
    "TopicNotFoundError",
    "TopicRecreatedError",
    "UnexpectedOffsetError",
]
