"""Positions in the source topics, as Spark logs them: for each topic its id and the next offset of each partition.

Beside them stands up to where the topics of global tables are to be read before the batch: a repeated batch sees the same.

A tick counts the micro-batches that give every task a step, whether there are records or not: it makes an offset of time.

Spark compares offsets as JSON text, so equal positions must give equal text: topics are sorted, nothing else is in it.
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
        topic_id: Kafka's id of the topic; another id under the same name is another topic.
        offsets: Next offset of partition 0, 1, …
    """

    topic_id: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of one topic-partition; offsets may be missing in between."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """Positions in all topics of a source.

    Attributes:
        topics: Of the topics that tasks read.
        global_topics: Ends of the topics of global tables when the batch was planned.
        tick: Number of the last tick; 0: there was none.
        now_ms: The clock when the batch was planned: readers tell by it which timestamps lie too far ahead. None: a position
            that no batch was planned to, or one that an older version has logged.
    """

    topics: Mapping[str, TopicOffsets]
    global_topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    tick: int = 0
    now_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """What Spark logs."""
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
        """Reads what Spark has logged.

        Raises:
            ConfigError: The checkpoint was written by something else.
        """
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
        """Position in a partition; 0 in one that did not exist yet."""
        known = self.topics.get(topic)
        return known.offsets[partition] if known and partition < len(known.offsets) else 0

    def ranges_to(self, end: SourceOffsets) -> list[OffsetRange]:
        """What lies between two positions, by topic and partition; empty ranges are left out.

        A topic that has no position yet (it is new under a pattern) gets one, and gives no records before it has.
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
        start: Where its first micro-batch begins.
        end: Where it ends; None = that is planned as for any other. A checkpoint that takes over the state of another one
            repeats the last micro-batch of that one first, with the same ranges.
    """

    start: SourceOffsets
    end: SourceOffsets | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"start": self.start.to_json(), "end": self.end.to_json() if self.end else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FirstBatch:
        """Reads `to_json` back.

        Raises:
            ConfigError: It was written by something else.
        """
        end = data["end"]
        return cls(SourceOffsets.from_json(data["start"]), None if end is None else SourceOffsets.from_json(end))


def topics_to_json(topics: Mapping[str, TopicOffsets]) -> dict[str, Any]:
    """Positions in topics as plain JSON, in the order of their names."""
    return {name: {"id": of.topic_id, "offsets": list(of.offsets)} for name, of in sorted(topics.items())}


def topics_from_json(data: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    """Reads `topics_to_json` back."""
    return {name: TopicOffsets(of["id"], tuple(of["offsets"])) for name, of in data.items()}


def batch_digest(start: SourceOffsets, end: SourceOffsets) -> str:
    """16 hex digits that tell two micro-batches with different input apart; when they were planned is no input."""
    positions = [replace(start, now_ms=None).to_json(), replace(end, now_ms=None).to_json()]
    text = orjson.dumps(positions, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
