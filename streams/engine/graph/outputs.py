"""The records that a step sends: collected as columns, and checked against Kafka's limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.changelog import INTERNAL_ENDINGS
from state.columns import BinaryColumn, binary_column, cell_sizes, one_column
from state.errors import TopicNotFoundError
from state.headers import encode_headers
from state.kafka.partitioner import partition_for_keys
from state.kafka.placement import Placement
from state.kafka.topics import NO_LIMIT, RECORD_OVERHEAD, UNLIMITED, TopicLimits, wire_size
from streams.engine.graph.event_time import LATEST, checked, in_words
from streams.engine.graph.settings import TaskSettings
from streams.errors import ForbiddenTopicError, OversizedRecordError, RefusedRecordError, UnknownTopicError
from streams.model.record import Headers

DEFAULT_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Records for one topic, in order.

    Attributes:
        keys: binary[n], null = no key.
        values: binary[n], null = tombstone.
        timestamps: int64[n], milliseconds.
        partition_keys: binary[n], hashed instead of the keys where they differ (windowed keys are partitioned by their
            inner key); None = the keys.
        partitions: int32[n] chosen by a partitioner, -1 = by hash; None = all by hash.
        headers: binary[n], see `state.columns`; None = no record has any.
    """

    topic: str
    keys: BinaryColumn
    values: BinaryColumn
    timestamps: npt.NDArray[np.int64]
    partition_keys: BinaryColumn | None = None
    partitions: npt.NDArray[np.int32] | None = None
    headers: BinaryColumn | None = None


@dataclass(slots=True)
class _Rows:
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    partition_keys: list[bytes | None] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    windowed: bool = False
    partitioned: bool = False
    with_headers: bool = False


class Collector:
    """Records to send; `batches` converts them to columns."""

    def __init__(self) -> None:
        self._topics: dict[str, list[_Rows | SendBatch]] = {}

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
        partition_key: bytes | None = None,
        partition: int = DEFAULT_PARTITION,
    ) -> None:
        """Appends one record. Give `partition_key` only where it differs from the key."""
        parts = self._topics.get(topic)
        if parts is None:
            parts = self._topics[topic] = []
        if not parts or type(parts[-1]) is not _Rows:
            parts.append(_Rows())
        rows = parts[-1]
        assert isinstance(rows, _Rows)
        rows.keys.append(key)
        rows.values.append(value)
        rows.timestamps.append(timestamp)
        rows.headers.append(headers)
        rows.partitions.append(partition)
        rows.partition_keys.append(key if partition_key is None else partition_key)
        rows.windowed |= partition_key is not None
        rows.partitioned |= partition != DEFAULT_PARTITION
        rows.with_headers |= bool(headers)

    def add_batch(self, batch: SendBatch) -> None:
        self._topics.setdefault(batch.topic, []).append(batch)

    def batches(self) -> list[SendBatch]:
        """Returns one batch for each topic, in the order of first use."""
        return [
            _concatenated([part if isinstance(part, SendBatch) else self._batch(topic, part) for part in parts])
            for topic, parts in self._topics.items()
        ]

    def _batch(self, topic: str, rows: _Rows) -> SendBatch:
        headers = None
        if rows.with_headers:
            headers = binary_column([encode_headers(one) if one else None for one in rows.headers])
        return SendBatch(
            topic,
            binary_column(rows.keys),
            binary_column(rows.values),
            np.array(rows.timestamps, np.int64),
            binary_column(rows.partition_keys) if rows.windowed else None,
            np.array(rows.partitions, np.int32) if rows.partitioned else None,
            headers,
        )


def _concatenated(parts: list[SendBatch]) -> SendBatch:
    """Joins several batches for the same topic into one."""
    if len(parts) == 1:
        return parts[0]
    partition_keys = partitions = headers = None
    if any(part.partition_keys is not None for part in parts):
        partition_keys = one_column(
            [part.keys if part.partition_keys is None else part.partition_keys for part in parts]
        )
    if any(part.partitions is not None for part in parts):
        by_hash = [np.full(len(part.timestamps), DEFAULT_PARTITION, np.int32) for part in parts]
        chosen = [
            default if part.partitions is None else part.partitions
            for part, default in zip(parts, by_hash, strict=True)
        ]
        partitions = np.concatenate(chosen)
    if any(part.headers is not None for part in parts):
        none = [pa.nulls(len(part.timestamps), pa.binary()) for part in parts]
        headers = one_column(
            [empty if part.headers is None else part.headers for part, empty in zip(parts, none, strict=True)]
        )
    return SendBatch(
        parts[0].topic,
        one_column([part.keys for part in parts]),
        one_column([part.values for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        partition_keys,
        partitions,
        headers,
    )


def placed(batch: SendBatch, partitions: int, placement: Placement, own: int) -> SendBatch:
    """Gives each record its partition out of `partitions`, by the rule that the topic's readers rely on. A null key's stays open.

    Under `Placement.PARTITION`, all of them go to the partition of the task, `own`.
    """
    if placement is Placement.PARTITION:
        return replace(batch, partitions=np.full(len(batch.keys), own, np.int32))
    keys = batch.keys if batch.partition_keys is None else batch.partition_keys
    found = partition_for_keys(keys, partitions, placement)
    if batch.partitions is not None:
        found = np.where(batch.partitions == DEFAULT_PARTITION, found, batch.partitions)
    return replace(batch, partitions=found)


# --- Checks for results that Kafka would refuse. They run on each result before anything is sent, so the production policy applies.
#
# If Kafka refuses one record of a transaction, the whole step is lost, repeated, and refused again, forever. The limits of a
# topic come from outside (`OutputTopics`), once for each topic and step.

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


class OutputTopics(Protocol):
    """Looks up output topics in Kafka."""

    def limits(self, topic: str) -> TopicLimits | None: ...
    def now_ms(self) -> int: ...


class UnlimitedTopics:
    """Output topics without limits, for use without Kafka."""

    def limits(self, topic: str) -> TopicLimits | None:
        return UNLIMITED

    def now_ms(self) -> int:
        """Is not called, because nothing is limited by time."""
        return 0


class Target:
    """One topic in one step.

    Attributes:
        topic: Its name.
        partitions: Number of partitions; 0 = unknown.
        max_bytes: The largest result, as `wire_size` counts.
        kafka_bytes: The largest record of any kind that Kafka accepts, to which dead letters are cut.
    """

    __slots__ = ("_earliest", "_latest", "_limits", "_needs_key", "kafka_bytes", "max_bytes", "partitions", "topic")

    def __init__(self, topic: str, limits: TopicLimits, settings: TaskSettings, now_ms: int) -> None:
        self.topic = topic
        self.partitions = limits.partitions or settings.partition_counts.get(topic, 0)
        self.kafka_bytes = min(settings.max_message_bytes, limits.max_bytes)
        self.max_bytes = min(settings.max_record_bytes, self.kafka_bytes)
        self._limits = limits
        self._needs_key = limits.needs_key
        self._earliest = 0 if limits.before_max_ms == NO_LIMIT else max(0, now_ms - limits.before_max_ms)
        self._latest = LATEST if limits.after_max_ms == NO_LIMIT else min(LATEST, now_ms + limits.after_max_ms)

    def check(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Refuses a result that Kafka would refuse.

        Raises:
            RecordError: Kafka would refuse the result; the message says why.
        """
        if wire_size(key, value, headers) > self.max_bytes:
            raise OversizedRecordError(
                f"a result for topic {self.topic!r} has {wire_size(key, value, headers)} bytes with its headers and Kafka's "
                f"overhead, the limit is {self.max_bytes}: raise max_record_bytes and the topic's max.message.bytes, or make the "
                f"result smaller"
            )
        if type(timestamp) is not int or not self._earliest <= timestamp <= self._latest:
            self._refuse_time(timestamp)
        if key is None and self._needs_key:
            raise RefusedRecordError(
                f"a result for topic {self.topic!r} has no key, and the topic is compacted (cleanup.policy), so Kafka refuses "
                f"it: give it a key, or write to another topic"
            )

    def check_all(
        self,
        keys: BinaryColumn,
        values: BinaryColumn,
        timestamps: npt.NDArray[np.int64],
        headers: Sequence[Headers] | None,
    ) -> None:
        """Checks many results as `check` checks one.

        Raises:
            RecordError: Kafka would refuse one of them.
        """
        sizes = cell_sizes(keys) + cell_sizes(values) + RECORD_OVERHEAD
        if headers is not None:
            sizes += np.array([wire_size(None, None, one) - RECORD_OVERHEAD for one in headers], np.int64)
        in_time = (timestamps >= self._earliest) & (timestamps <= self._latest)
        fits = in_time & (sizes <= self.max_bytes)
        if self._needs_key and keys.null_count:
            fits &= keys.is_valid().to_numpy(zero_copy_only=False)
        if not fits.all():
            row = int(np.argmin(fits))
            key, value = keys[row].as_py(), values[row].as_py()
            self.check(key, value, int(timestamps[row]), () if headers is None else headers[row])

    def nearest_time(self, timestamp: int) -> int:
        """The accepted time that is nearest to this one."""
        return min(max(timestamp, self._earliest), self._latest)

    def _refuse_time(self, timestamp: int) -> None:
        timestamp = checked(timestamp)
        if timestamp < self._earliest:
            name, bound = "before", self._limits.before_max_ms
        elif timestamp > LATEST:
            raise RefusedRecordError(
                f"a result for topic {self.topic!r} has the timestamp {timestamp}, which is not a valid time"
            )
        elif timestamp > self._latest:
            name, bound = "after", self._limits.after_max_ms
        else:
            return
        raise RefusedRecordError(
            f"a result for topic {self.topic!r} has the timestamp {timestamp} ({in_words(timestamp)}), which the topic does not "
            f"take: its message.timestamp.{name}.max.ms is {bound}; raise that, or give the result another time"
        )


class Outputs:
    """The topics of one step, each looked up once.

    Args:
        topics: Provides the limits.
        settings: Limits of sizes.

    Attributes:
        settings: The same settings.
    """

    def __init__(self, topics: OutputTopics, settings: TaskSettings) -> None:
        self._topics = topics
        self.settings = settings
        self._targets: dict[str, Target] = {}

    def target(self, topic: str) -> Target:
        """Returns a topic that the program names.

        Raises:
            TopicNotFoundError: The topic does not exist, which is not caused by a record.
        """
        target = self._targets.get(topic) or self._look_up(topic)
        if target is None:
            raise TopicNotFoundError(topic)
        return target

    def chosen(self, topic: object) -> Target:
        """Returns a topic that a record chose.

        Raises:
            ForbiddenTopicError: The topic is internal, or the name is invalid.
            UnknownTopicError: The topic does not exist.
        """
        target = self._targets.get(topic) if isinstance(topic, str) else None
        if target is None:
            name = _allowed(topic)
            target = self._look_up(name)
            if target is None:
                raise UnknownTopicError(
                    f"the topic {name!r}, which the function of to(...) chose, does not exist, or these credentials may not see "
                    f"it: create it, or correct the function"
                )
        return target

    def room_for_state(self, topic: str) -> int:
        """The largest record, in bytes, that a changelog accepts. A topic that cannot be seen is reported by the commit."""
        limits = self._topics.limits(topic) or UNLIMITED
        return min(self.settings.max_message_bytes, limits.max_bytes)

    def _look_up(self, topic: str) -> Target | None:
        limits = self._topics.limits(topic)
        if limits is None:
            return None
        now_ms = 0
        if limits.before_max_ms != NO_LIMIT or limits.after_max_ms != NO_LIMIT:
            now_ms = self._topics.now_ms()
        target = self._targets[topic] = Target(topic, limits, self.settings, now_ms)
        return target


def _allowed(topic: object) -> str:
    """Returns the name if a record may choose it. Internal topics (Kafka's, or any application's) are recognised by name."""
    if not isinstance(topic, str) or not _LEGAL_NAME.match(topic) or topic in (".", ".."):
        raise ForbiddenTopicError(
            f"the function of to(...) chose {topic!r:.80}, which is not a valid topic name: use at most 249 letters, "
            f"digits, '.', '_' and '-'"
        )
    if topic.startswith("__") or topic.endswith(INTERNAL_ENDINGS):
        raise ForbiddenTopicError(
            f"the function of to(...) chose {topic!r}, which has the name of an internal topic ('__…', "
            f"{', '.join(f'…{ending}' for ending in INTERNAL_ENDINGS)}): no record may choose such a one. Name another topic, or "
            f"write to this one with a fixed name: to({topic!r})"
        )
    return topic
