"""The mapping from the client library's error codes to named errors.

The ordinary client and the C API report the same codes and must raise the same errors, so the mapping is in one place.
Invariant: a code in none of the sets below becomes a `KafkaClientError`, and is never ignored.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from state.errors import (
    PASSING,
    AuthenticationError,
    AuthorizationError,
    ClientFailure,
    FencedError,
    KafkaClientError,
    ProduceError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from state.secrets import mask

PARTITION_EOF: int = KafkaError._PARTITION_EOF
QUEUE_FULL: int = KafkaError._QUEUE_FULL
TIMED_OUT: int = KafkaError._TIMED_OUT

OFFSETS_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
TOPIC_NOT_FOUND = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
# Transient failures: librdkafka carries on by itself. A missing permission on the group is among them because a range reader
# never joins its group.
TRANSIENT = frozenset(int(getattr(KafkaError, name)) for name in PASSING) | {KafkaError.GROUP_AUTHORIZATION_FAILED}
# The client itself has heard nothing.
NO_ANSWER = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER}
)
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
UNAUTHENTICATED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
UNAUTHORIZED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_REQUEST = re.compile(r"(^|: )Request Request\(.*", re.DOTALL)
"""In messages about an unauthorised request: the part that prints the request object, with addresses and buffers."""
# Client-level errors that waiting does not resolve.
REFUSED = TOPIC_NOT_FOUND | UNAUTHENTICATED | (UNAUTHORIZED - {KafkaError.GROUP_AUTHORIZATION_FAILED})


def failure_of(error: KafkaError) -> ClientFailure:
    """The failure that confluent-kafka's error object describes."""
    said = _REQUEST.sub("", error.str()) or KafkaError(error.code()).str()
    return ClientFailure(
        int(error.code()), error.name(), mask(said), error.retriable(), error.fatal(), error.txn_requires_abort()
    )


def timed_out(text: str) -> ClientFailure:
    """The failure if the library itself did not answer in time."""
    return ClientFailure(TIMED_OUT, "_TIMED_OUT", text)


def request_error(what: str, advice: str, failure: ClientFailure) -> KafkaClientError:
    """The named error of a failed request."""
    if failure.code in UNAUTHENTICATED:
        return AuthenticationError(
            f"{what} failed: the brokers do not accept these credentials; check sasl.username, sasl.password and sasl.mechanism",
            failure,
        )
    if failure.code in UNAUTHORIZED:
        return AuthorizationError(
            f"{what} failed: these credentials lack a right on it; `streams acls` prints all rights that the application needs, "
            f"with --operate also those of dlq, reset and replica, and what grants them",
            failure,
        )
    return KafkaClientError(f"{what} failed; {advice}", failure)


def read_error(topic: str, partition: int, failure: ClientFailure) -> KafkaClientError:
    """The named error of a failed read that is neither transient nor a loss of offsets."""
    if failure.code in TOPIC_NOT_FOUND:
        return TopicNotFoundError(topic, partition, failure)
    advice = "check the client properties (addresses, credentials, TLS) and the rights on this topic"
    return request_error(f"reading {topic}-{partition}", advice, failure)


def transaction_error(transactional_id: str, what: str, failure: ClientFailure) -> ProduceError:
    """The named error of a failed transaction call."""
    where = f"{what} of transactional id {transactional_id!r} failed"
    if failure.code in FENCED:
        return FencedError(
            f"{where}: a newer producer has taken over this id, or the transaction was open longer than its timeout; "
            f"this attempt ends, and the next one reads from the commit marker what was committed",
            failure,
        )
    return ProduceError(
        f"{where}; the transaction may or may not be committed. This attempt ends, and the next one reads from the "
        f"commit marker whether it was",
        failure,
    )


def record_error(
    transactional_id: str,
    topic: str,
    partition: int,
    *,
    key: bytes | None,
    size: int,
    offset: int,
    failure: ClientFailure,
) -> ProduceError:
    """The named error of one record that could not be written."""
    shown = "without key" if key is None else f"with key {key[:64]!r}" + ("..." if len(key) > 64 else "")
    where = f"the record {shown} ({size} bytes) for {topic}-{partition} (transactional id {transactional_id!r})"
    if failure.code in FENCED:
        return FencedError(
            f"{where} was refused: a newer producer has taken over this id, or the transaction was open longer than "
            f"its timeout; this attempt ends, and the next one reads from the commit marker what was committed",
            failure, topic=topic, partition=partition, key=key, offset=offset,
        )  # fmt: skip
    if failure.code == KafkaError.MSG_SIZE_TOO_LARGE:
        return RecordTooLargeError(
            f"{where} is too large; raise message.max.bytes of the client and max.message.bytes of the topic, or "
            f"make the record smaller",
            failure, topic=topic, partition=partition, key=key, offset=offset,
        )  # fmt: skip
    if failure.code in TOPIC_NOT_FOUND:
        advice = "the topic or the partition does not exist: create it first"
    elif failure.code in UNAUTHORIZED:
        advice = (
            "these credentials lack the right to write there (ACL: Write); nothing of this transaction becomes visible"
        )
    elif failure.code == KafkaError.INVALID_TIMESTAMP:
        advice = "the topic refuses its timestamp: raise message.timestamp.after.max.ms of the topic"
    else:
        advice = "nothing of this transaction becomes visible, and the next attempt writes it again"
    return ProduceError(
        f"{where} was not written: {advice}", failure, topic=topic, partition=partition, key=key, offset=offset
    )
