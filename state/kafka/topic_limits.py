"""`TopicLimits`: which records a topic accepts, as far as that can be known before sending.

Kafka refuses a record for its size, a missing key, or its timestamp, and with it the whole transaction. A check in advance
turns away only that record. Invariant: unknown limits refuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from state.kafka.headers import Header, name_bytes

NO_LIMIT = 2**63 - 1
RECORD_OVERHEAD = 36
"""Bytes that librdkafka adds to key, value and headers of each record before it compares with `message.max.bytes`
(`RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD`)."""
BATCH_OVERHEAD = 61
"""Bytes of a batch's header: the broker compares `max.message.bytes` with a batch, and one of one record is the smallest."""
_HEADER_OVERHEAD = 10
"""Maximum bytes for the lengths of a header's name and value."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of one topic.

    Attributes:
        partitions: Number of partitions; 0 = unknown.
        max_bytes: The largest record, as `wire_size` counts.
        needs_key: Records without a key are refused (compacted topics).
        before_max_ms: How far a record's timestamp may be behind the broker's clock.
        after_max_ms: How far a record's timestamp may be ahead of the broker's clock.
    """

    partitions: int = 0
    max_bytes: int = NO_LIMIT
    needs_key: bool = False
    before_max_ms: int = NO_LIMIT
    after_max_ms: int = NO_LIMIT


UNLIMITED = TopicLimits()


def limits_of(partitions: int, config: Mapping[str, str], compressed: bool = False) -> TopicLimits:
    """Limits by a topic's settings.

    Args:
        partitions: Number of partitions.
        config: Effective settings, defaults included; a missing setting limits nothing.
        compressed: Records are compressed before sending, so sizes are not known in advance.
    """
    by_clock = config.get("message.timestamp.type", "CreateTime") == "CreateTime"
    sized = "max.message.bytes" in config and not compressed
    size = int(config["max.message.bytes"]) - BATCH_OVERHEAD if sized else NO_LIMIT
    return TopicLimits(
        partitions,
        size,
        "compact" in config.get("cleanup.policy", ""),
        int(config.get("message.timestamp.before.max.ms", NO_LIMIT)) if by_clock else NO_LIMIT,
        int(config.get("message.timestamp.after.max.ms", NO_LIMIT)) if by_clock else NO_LIMIT,
    )


def wire_size(key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()) -> int:
    """Bytes of a record as librdkafka counts them (`rd_kafka_msg_max_wire_size`), or slightly more if it has headers."""
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    for name, data in headers:
        size += len(name_bytes(name)) + (len(data) if data else 0) + _HEADER_OVERHEAD
    return size
