"""Which dead letters have been replayed: ranges of offsets, in a compacted topic beside the dead letters.

A replay writes them in the transaction in which it sends the records, so both happened or neither. A consumer group's offset would
not do: a replay of some letters passes over others, and committed offsets expire a week after the last replay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from state.errors import TopicNotFoundError
from state.kafka.topics import TopicPartition
from streams.application.dead_letters.letters import Log

ENDING = "-replays"
Ranges = tuple[tuple[int, int], ...]


def replays_topic(topic: str) -> str:
    """The topic that remembers the replays of a topic of dead letters."""
    return topic + ENDING


def replay_id(topic: str) -> str:
    """The transactional id of the replays of a topic of dead letters: a later replay fences an earlier one."""
    return f"streams-replay-of-{topic}"


@dataclass(frozen=True)
class Replayed:
    """The letters of one topic that have been replayed.

    Attributes:
        topic_id: Kafka's id of the topic, because one that was deleted and created again has other letters.
        ranges: Partition -> ranges [first, last) of offsets, in order.
    """

    topic_id: str
    ranges: Mapping[int, Ranges] = field(default_factory=dict)

    def has(self, partition: int, offset: int) -> bool:
        """Whether a letter has been replayed."""
        return any(first <= offset < last for first, last in self.ranges.get(partition, ()))

    def record(self, partition: int, offsets: Sequence[int], also: Collection[int]) -> tuple[bytes, bytes]:
        """The key and value that remember a partition's replayed letters."""
        ranges = list(_joined((*self.ranges.get(partition, ()), *((one, one + 1) for one in also)), offsets))
        return str(partition).encode(), orjson.dumps({"topic_id": self.topic_id, "ranges": ranges})


def _joined(ranges: Iterable[tuple[int, int]], offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The fewest ranges with the same letters. Two are joined only where it is known that no letter is between them."""
    first = last = None
    for begin, end in sorted(ranges):
        if first is None or last is None:
            first, last = begin, end
            continue
        following = bisect_left(offsets, last)
        if begin <= last or (following < len(offsets) and begin <= offsets[following]):
            last = max(last, end)
        else:
            yield first, last
            first, last = begin, end
    if first is not None and last is not None:
        yield first, last


def read_replayed(log: Log, topic: str, fenced: bool = False) -> Replayed:
    """The letters of a topic that have been replayed so far.

    Raises:
        TopicNotFoundError: The topic does not exist.
    """
    there = log.describe_topics([topic, replays_topic(topic)])
    if topic not in there:
        raise TopicNotFoundError(topic)
    found = Replayed(there[topic].topic_id)
    if replays_topic(topic) not in there:
        return found
    place: TopicPartition = (replays_topic(topic), 0)
    ranges: dict[int, Ranges] = {}
    first = log.begin_offset(place)
    last = log.log_ends([place])[place][0] if fenced else log.end_offsets([place])[place]
    for columns in log.read(*place, first, last) if first < last else ():
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            said = orjson.loads(value)
            if said["topic_id"] == found.topic_id:
                ranges[int(key)] = tuple((first, last) for first, last in said["ranges"])
    return Replayed(found.topic_id, ranges)
