"""Client configurations for librdkafka, made from the user's client properties.

There is one function for each kind of client. The settings that exactly-once needs (no auto commit, `read_committed`, a named
transactional id) are set here and do not depend on the caller. Invariants: `_REQUIRED` settings override the user's, and the user's
override our tuning; values are strings, as both librdkafka's C API and confluent-kafka expect.
"""

from __future__ import annotations

from collections.abc import Mapping

ClientConfig = Mapping[str, str]
"""librdkafka properties by name, e.g. `{"bootstrap.servers": "localhost:9092"}`."""

DEFAULT_PREFETCH_BYTES = 8 * 1024 * 1024
QUIET = {"log_level": "2"}
"""While a broker is away, each client of each process would log up to twenty lines a second. The errors have the same text."""
_CONSUMER_TUNING = {
    **QUIET,
    "group.id": "streams-reader",
    "topic.metadata.propagation.max.ms": "3000",
    # A leader that stands still answers nothing, and refuses nothing: without a look at the metadata, its successor would only be
    # found when the request has timed out, after a minute.
    "topic.metadata.refresh.interval.ms": "5000",
    "fetch.queue.backoff.ms": "5",
    "fetch.error.backoff.ms": "100",
    "fetch.wait.max.ms": "100",
    "fetch.message.max.bytes": str(4 * 1024 * 1024),
    # The client fetches no more records of a partition while this many wait. Without the limit, a reader would ask again and again
    # while records arrive a few at a time: at 20 000 records/s it sent 738 requests a second, and with the limit 102. Under load,
    # a single response of up to 4 MiB waits.
    "queued.min.messages": "100",
    # As in Kafka's own client: a bit flipped in transit or on disk must not become a record.
    "check.crcs": "true",
}
_CONSUMER_REQUIRED = {
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # No group is ever joined, so a reader that is idle between two steps must not be evicted from one.
    "max.poll.interval.ms": "86400000",
}
BATCH_BYTES = 1_000_000
_PRODUCER_TUNING = {
    **QUIET,
    # Results and changes leave while the offsets of the sources are sent; with 20 ms, a small step waited for them.
    "linger.ms": "2",
    "batch.size": str(BATCH_BYTES),
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": str(64 * 1024),
    # A producer connects twice, first to find its coordinator and then to it, and librdkafka counts the second as a reconnect:
    # its default of 100 ms made `init_transactions` wait for 50 ms on average. The pauses double while a broker is away.
    "reconnect.backoff.ms": "1",
    # Kafka's own default partitioner for records without a partition, instead of librdkafka's CRC32.
    "partitioner": "murmur2_random",
}
RESEND_BACKOFF_MS = 1000
RESEND_S = 0.75
"""The shortest time after which a kept producer may send a request again, s: librdkafka varies its backoff by a fifth."""
_PRODUCER_REQUIRED = {
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": "true",
}
_ADMIN_TUNING = {
    **QUIET,
    # An admin client reads no topics, so a broker that dies makes it ask for nothing. By default, it would send its requests to a
    # dead controller or leader for five minutes.
    "topic.metadata.refresh.interval.ms": "5000",
}
_COMMON = {
    # Client telemetry (KIP-714) costs one more request when a short-lived client is closed.
    "enable.metrics.push": "false",
    "log.connection.close": "false",
}


def consumer_config(client: ClientConfig, prefetch_bytes: int = DEFAULT_PREFETCH_BYTES) -> dict[str, str]:
    """Properties of a consumer that reads exact ranges of committed records."""
    tuning = {**_COMMON, **_CONSUMER_TUNING, "queued.max.messages.kbytes": str(max(1, prefetch_bytes // 1024))}
    return {**tuning, **client, **_CONSUMER_REQUIRED}


def producer_config(client: ClientConfig, transactional_id: str, transaction_timeout_ms: int) -> dict[str, str]:
    """Properties of a producer that writes one transaction."""
    required = {
        **_PRODUCER_REQUIRED,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(transaction_timeout_ms),
    }
    return {**_COMMON, **_PRODUCER_TUNING, **client, **required}


def kept_producer_config(client: ClientConfig) -> dict[str, str]:
    """The client properties of a producer that writes more than one transaction (`TransactionalProducer.again`)."""
    backoff = str(RESEND_BACKOFF_MS)
    return {**client, "retry.backoff.ms": backoff, "retry.backoff.max.ms": backoff}


def admin_config(client: ClientConfig) -> dict[str, str]:
    """Properties of an admin client."""
    return {**_COMMON, **_ADMIN_TUNING, **client}
