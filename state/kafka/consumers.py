"""Consumers that do not read ranges: `RecordSampler`, which samples records, and `GroupMember`, which only shares partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka import TopicPartition as Place

from state.errors import ClientFailure, ReadTimeoutError
from state.kafka.config import QUIET, ClientConfig, consumer_config
from state.kafka.error_mapping import (
    OFFSETS_LOST,
    PARTITION_EOF,
    REFUSED,
    TRANSIENT,
    failure_of,
    read_error,
    request_error,
)
from state.kafka.topics import TopicPartition

RECORDS = 20
"""The number of records that are read when one offset is looked at."""
_PREFETCH_BYTES = 256 * 1024
_TUNING = {
    # Small responses without waiting: the records already exist.
    "fetch.message.max.bytes": str(64 * 1024),
    "queued.min.messages": "1",
    "fetch.wait.max.ms": "10",
}
_POLL_S = 0.05


class SampledRecord(NamedTuple):
    """The sampled properties of a record: `size` is the bytes of key and value."""

    offset: int
    timestamp_ms: int
    size: int


@dataclass
class _Place:
    """The progress of the search in one partition."""

    end: int
    records: list[SampledRecord] = field(default_factory=list)
    done: bool = False

    def take(self, message: Message) -> None:
        offset = message.offset() or 0
        if offset < self.end:
            size = len(message.key() or b"") + len(message.value() or b"")
            self.records.append(SampledRecord(offset, message.timestamp()[1], size))
        self.done = offset + 1 >= self.end or len(self.records) >= RECORDS


class RecordSampler:
    """Reads a few records at given places; not thread safe. Must be created after a fork, not before.

    Args:
        config: The user's client properties.
        timeout_s: Seconds without progress after which a sample fails.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._trouble: ClientFailure | None = None
        self._properties = {**consumer_config(config, _PREFETCH_BYTES), **_TUNING}
        self._consumer: Consumer | None = None

    def _on_error(self, error: object) -> None:
        self._trouble = failure_of(error)  # type: ignore[arg-type]

    def sample(
        self, at: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[SampledRecord]]:
        """The first few records at or after an offset of each partition.

        Raises:
            ReadTimeoutError: No progress.
            KafkaClientError: Any other failure.
        """
        places = {where: _Place(ends[where]) for where, offset in at.items() if offset < ends[where]}
        if places:
            self._trouble = None
            assigned = [KafkaPartition(*where, at[where]) for where in places]
            consumer = self._open()
            consumer.assign(assigned)
            try:
                self._read(consumer, places, at)
            except ReadTimeoutError:
                # As in `range_reader`: the client may never fetch again, so the next sample gets another one.
                self.rest()
                raise
            finally:
                if self._consumer is not None:
                    # A pause would outlast the assignment.
                    consumer.resume(assigned)
                    consumer.unassign()
        return {where: places[where].records if where in places else [] for where in at}

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._properties, "error_cb": self._on_error})
        return self._consumer

    def _read(
        self, consumer: Consumer, places: Mapping[TopicPartition, _Place], at: Mapping[TopicPartition, int]
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        while waiting := [where for where, place in places.items() if not place.done]:
            # The call waits for as many as requested: so take what has arrived, else wait for one.
            messages = consumer.consume(RECORDS * len(waiting), 0) or consumer.consume(1, _POLL_S)
            served = [self._serve(consumer, message, places) for message in messages]
            if any(served):
                deadline = time.monotonic() + self._timeout_s
            elif self._trouble is not None and self._trouble.code in REFUSED:
                raise read_error(*waiting[0], self._trouble)
            elif time.monotonic() > deadline:
                where = waiting[0]
                raise ReadTimeoutError(
                    *where, at[where], places[where].end, seconds=self._timeout_s, failure=self._trouble
                )

    def _serve(self, consumer: Consumer, message: Message, places: Mapping[TopicPartition, _Place]) -> bool:
        """Handles a message; returns whether it made progress."""
        where = (message.topic() or "", message.partition() or 0)
        place, error = places.get(where), message.error()
        if place is None:
            # The client as a whole, for example without a right on its group, which it never joins.
            self._trouble = None if error is None else failure_of(error)
            return False
        if place.done:
            return False
        if error is None:
            place.take(message)
            if place.done:
                # The broker sends large batches even if few records are wanted. Once paused, the consumer drops the rest.
                consumer.pause([KafkaPartition(*where)])
            return True
        failure = failure_of(error)
        if failure.code in TRANSIENT:
            self._trouble = failure
            return False
        place.done = failure.code == PARTITION_EOF or failure.code in OFFSETS_LOST
        if not place.done:
            raise read_error(*where, failure)
        return True

    def rest(self) -> None:
        """Release the client until the next sample; otherwise it would keep looking for brokers that are away."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def close(self) -> None:
        self.rest()


# A topic that is not known yet is not refused: metadata may be a moment old.
_REFUSED = (REFUSED | {KafkaError.GROUP_AUTHORIZATION_FAILED}) - {KafkaError.UNKNOWN_TOPIC_OR_PART}


OnRecord = Callable[[TopicPartition, int, bytes], None]


class GroupMember:
    """A member of a consumer group that shares partitions with the others, and reads their records only on request.

    Partitions move one by one (cooperative), so the others stay where they are.

    Args:
        client: The user's client properties.
        topics: The topics that the group shares.
        on_record: Called by `poll` with the partition, offset and value of each new committed record. None: records are not read.
    """

    def __init__(
        self, client: Mapping[str, str], group_id: str, topics: Sequence[str], on_record: OnRecord | None = None
    ) -> None:
        self._group_id, self._topics, self._on_record = group_id, topics, on_record
        self._assigned: set[TopicPartition] = set()
        settings = {
            "group.id": group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
        self._consumer = Consumer({**QUIET, **client, **settings})
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, timeout_s: float) -> set[TopicPartition]:
        """Keeps the membership, which needs a call every few seconds, and returns the partitions of this member.

        Raises:
            KafkaClientError: Kafka refuses this member, for good.
        """
        message = self._consumer.poll(timeout_s)
        while message is not None:
            self._take_message(message)
            message = self._consumer.poll(0)
        return set(self._assigned)

    def _take_message(self, message: Message) -> None:
        error = message.error()
        if error is not None and (error.code() in _REFUSED or error.fatal()):
            advice = (
                f"check the client properties (addresses, credentials, TLS) and the rights on this group and on the topics "
                f"{', '.join(self._topics)}"
            )
            raise request_error(f"joining the consumer group {self._group_id!r}", advice, failure_of(error))
        if error is None and self._on_record is not None:
            place = message.topic() or "", message.partition() or 0
            self._on_record(place, message.offset() or 0, message.value() or b"")

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits this member's progress as offsets of the group, in the background. Nothing depends on it."""
        found = [Place(*place, offset) for place, offset in offsets.items() if place in self._assigned]
        if found:
            try:
                self._consumer.commit(offsets=found, asynchronous=True)
            except KafkaException:
                return

    def close(self) -> None:
        self._consumer.close()

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        if self._on_record is not None:
            consumer.incremental_assign([Place(place.topic, place.partition, OFFSET_END) for place in places])
        else:
            consumer.incremental_assign(places)
            # Paused partitions are not fetched.
            consumer.pause(places)
        self._assigned |= {(place.topic, place.partition) for place in places}

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        consumer.incremental_unassign(places)
        self._assigned -= {(place.topic, place.partition) for place in places}
