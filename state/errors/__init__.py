"""Every error of the engine that has a name, in one tree.

What: the exceptions raised by `state` (and by everything built on it). Why one file: a user who catches or searches an
error finds all of them, and what to do about each, in one place. Invariants: a message says what happened, where
(topic, partition, offset, key) and what to do; no message holds a secret; every error survives pickling (Spark sends
them between processes).

    StreamsError
    ├── KafkaClientError               a Kafka request failed; `failure` = the client library's code and flags
    │   ├── TopicNotFoundError         the topic or the partition does not exist
    │   ├── TopicRecreatedError        the topic was deleted and made again: its offsets mean other records now
    │   ├── TopicMismatchError         the topic exists, but not as it is needed (number of partitions)
    │   ├── OffsetsLostError           offsets that are still needed are gone (retention, DeleteRecords, truncation)
    │   ├── ReadTimeoutError           no progress while reading a range
    │   ├── HangingTransactionError    a transaction stays open beyond its time-out, so what follows cannot be read
    │   └── ProduceError               a record or a transaction could not be written
    │       ├── FencedError            another producer took the transactional id, or the transaction timed out
    │       ├── RecordTooLargeError    one record is larger than the client or the topic allows
    │       └── ProducerStateError     calls in a wrong order, or a producer used again after its end
    ├── CommitError                    Spark's checkpoint and Kafka's commits topic do not fit together
    │   ├── CheckpointMismatchError    lost, rolled back, foreign, or of another topology: an operator decides
    │   ├── OpenTransactionError       somebody's transaction is open where only this task writes
    │   ├── UnexpectedOffsetError      the step's records did not land where the log ended: somebody else wrote there
    │   ├── RoutingMismatchError       functions gave other keys than in the attempt that was committed: rows would move
    │   └── MarkerFormatError          the commits topic holds something that this version cannot read
    └── StateError                     local state or its changelog cannot be used as it is
        ├── StateLockedError           another process has the store open
        ├── StateCorruptedError        the local store is damaged; delete it, the changelog restores it
        │   └── StateFormatError       another version wrote the local store: the same
        ├── ChangelogMismatchError     a changelog topic exists, but not as the store needs it
        ├── StepTooLargeError          a step hands on 2 GiB or more at once; take fewer records at a time
        └── RestoreError               the changelog does not give the state that the commit marker promises
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
    ClientFailure,
    FencedError,
    HangingTransactionError,
    KafkaClientError,
    OffsetsLostError,
    ProduceError,
    ProducerStateError,
    ReadTimeoutError,
    RecordTooLargeError,
    TopicMismatchError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from state.errors.stores import (
    ChangelogMismatchError,
    RestoreError,
    StateCorruptedError,
    StateError,
    StateFormatError,
    StateLockedError,
    StepTooLargeError,
)

__all__ = [
    "PASSING",
    "ChangelogMismatchError",
    "CheckpointMismatchError",
    "ClientFailure",
    "CommitError",
    "ErrorKind",
    "FencedError",
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
    "StateCorruptedError",
    "StateError",
    "StateFormatError",
    "StateLockedError",
    "StepTooLargeError",
    "StreamsError",
    "TopicMismatchError",
    "TopicNotFoundError",
    "TopicRecreatedError",
    "UnexpectedOffsetError",
]
