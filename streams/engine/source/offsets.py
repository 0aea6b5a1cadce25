"""Positions in the source topics, as Spark logs them: for each topic its id and the next offset of each partition.

The positions also include the ends up to which the topics of global tables are read before the batch, so that a repeated
batch sees the same tables.

A tick counts the micro-batches that give every task a step, with or without records, and so represents time as an offset.

Spark compares offsets as JSON text, so equal positions must give equal text: topics are sorted, and nothing else is included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from streams.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Positions in one topic.

    Attributes:
        topic_id: Kafka's id of the topic, which differs once a topic is recreated under the same name.
        offsets: The next offset of partition 0, 1, …
    """

    topic_id: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records [start, end) of one topic-partition; offsets in between may be missing."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """Positions in all topics of a source.

    Attributes:
        global_topics: Ends of the topics of global tables when the batch was planned.
        tick: Number of the last tick; 0: no tick yet.
        now_ms: The clock when the batch was planned, by which readers recognise timestamps too far ahead. None if the position is
            not a planned end, or was logged by an older version.
    """

    topics: Mapping[str, TopicOffsets]
    global_topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    tick: int = 0
    now_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"format": FORMAT, "topics": topics_to_json(self.topics)}
        if self.global_topics:
            data["global_topics"] = topics_to_json(self.global_topics)
        if self.tick:
            data["tick"] = self.tick
        if self.now_ms is not None:
            data["now_ms"] = self.now_ms
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceOffsets:
        """Restores the positions from JSON data that Spark has logged."""
        if data.get("format") != FORMAT:
            raise ConfigError(
                f"the checkpoint holds source offsets of format {data.get('format')!r}, this version knows {FORMAT}"
            )
        return cls(
            topics_from_json(data["topics"]),
            topics_from_json(data.get("global_topics", {})),
            data.get("tick", 0),
            data.get("now_ms"),
        )

    def of(self, topic: str, partition: int) -> int:
        """The position in a partition; 0 if the partition did not exist yet."""
        known = self.topics.get(topic)
        return known.offsets[partition] if known and partition < len(known.offsets) else 0

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: of.topic_id for name, of in self.topics.items()}

    def behind(self, read: Mapping[tuple[str, int], int], topic_ids: Mapping[str, str]) -> SourceOffsets:
        """Returns these positions with some of them replaced, and with further ones in topics that have none here.

        Args:
            read: Partition -> its new position.
            topic_ids: The ids of its topics. Topics that are known here may be missing.
        """
        topics, topic_ids = dict(self.topics), {**self.topic_ids, **topic_ids}
        for topic in sorted({topic for topic, _ in read}):
            known = topics[topic].offsets if topic in topics else ()
            of = dict(enumerate(known)) | {number: at for (name, number), at in read.items() if name == topic}
            topics[topic] = TopicOffsets(topic_ids[topic], tuple(of.get(number, 0) for number in range(max(of) + 1)))
        return replace(self, topics=topics)

    def by_partition(self) -> dict[tuple[str, int], int]:
        return {(topic, number): at for topic, of in self.topics.items() for number, at in enumerate(of.offsets)}

    def __str__(self) -> str:
        return ", ".join(f"{topic}-{number}: {at}" for (topic, number), at in self.by_partition().items())

    def ranges_to(self, end: SourceOffsets) -> list[OffsetRange]:
        """The ranges between two positions, by topic and partition, without empty ranges.

        A topic without a position (new under a pattern) first gets one, and contributes records only after that.
        """
        return [
            OffsetRange(topic, partition, self.of(topic, partition), to)
            for topic, of in sorted(end.topics.items())
            for partition, to in enumerate(of.offsets)
            if topic in self.topics and to > self.of(topic, partition)
        ]


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """Where a query begins.

    Attributes:
        end: Where its first micro-batch ends; None: it is planned like any other. An adopted checkpoint first repeats the last
            micro-batch of the old one, over the same ranges.
        fixed: Whether the state ends exactly at this start, so that it is valid before any micro-batch is logged. Otherwise a start
            without a logged micro-batch decides again where to begin.
    """

    start: SourceOffsets
    end: SourceOffsets | None = None
    fixed: bool = False

    def to_json(self) -> dict[str, Any]:
        data = {"start": self.start.to_json(), "end": self.end.to_json() if self.end else None}
        return {**data, "fixed": True} if self.fixed else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FirstBatch:
        """Restores the positions from the data of `to_json`.

        Raises:
            ConfigError: The data has another format.
        """
        end = data["end"]
        start = SourceOffsets.from_json(data["start"])
        return cls(start, None if end is None else SourceOffsets.from_json(end), bool(data.get("fixed")))


def topics_to_json(topics: Mapping[str, TopicOffsets]) -> dict[str, Any]:
    """Positions in topics as plain JSON data, in the order of the topics' names."""
    return {name: {"id": of.topic_id, "offsets": list(of.offsets)} for name, of in sorted(topics.items())}


def topics_from_json(data: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(of["id"], tuple(of["offsets"])) for name, of in data.items()}


def batch_digest(start: SourceOffsets, end: SourceOffsets) -> str:
    """A digest of a micro-batch's input (16 hex digits). The time of planning is not part of the input."""
    positions = [replace(start, now_ms=None).to_json(), replace(end, now_ms=None).to_json()]
    text = orjson.dumps(positions, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
