"""Finds the hash functions that put the keys of topics into their partitions, from records at both ends of some partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from state.kafka.key_hash import functions_of_keys
from state.kafka.placement import FUNCTIONS, Placement
from state.kafka.range_reader import Run
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of

_RECORDS = 100
"""How many offsets to look at, at each end of a partition."""
_PARTITIONS = 8
"""How many partitions of a topic to look at."""
_PARALLEL = 8


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module needs."""

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]: ...
    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What the records of a topic show about the placement of keys.

    Attributes:
        records: The number of records read.
        keys: The number of them that have a key.
        functions: The partitioners that put all of these keys where they are.
        rewritten: Whether keys are written in another notation than their serde's, which decides the task of a key.
    """

    records: int = 0
    keys: int = 0
    functions: tuple[Placement, ...] = FUNCTIONS
    rewritten: bool = False

    def __or__(self, other: Shown) -> Shown:
        both = tuple(one for one in self.functions if one in other.functions)
        return Shown(self.records + other.records, self.keys + other.keys, both, self.rewritten or other.rewritten)

    @property
    def decides(self) -> bool:
        """Whether the records show the function, or show that it is not a known one."""
        return len(self.functions) < 2 and self.keys > 0


R = TypeVar("R", bound=Run)
R_co = TypeVar("R_co", bound=Run, covariant=True)


class KeyLog(Protocol[R_co]):
    """The part of Kafka that reads the records."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[R_co]: ...


def shown_in(
    topics: Mapping[str, TopicInfo],
    admin: Admin,
    log: KeyLog[R],
    rewritten: Callable[[R], bool] = lambda records: False,
) -> dict[str, Shown]:
    """Topic -> what its records show.

    Args:
        topics: The topics.
        admin: Returns where they begin and end.
        log: Reads them.
        rewritten: Returns whether keys are written in another notation than their serde's.
    """
    places = partitions_of(topics)
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    ranges = [
        (place, start, end)
        for topic in topics
        for place in _spread([one for one in places if one[0] == topic and begins[one] < ends[one]])
        for start, end in _both_ends(begins[place], ends[place])
    ]

    def read(place: TopicPartition, start: int, end: int) -> Shown:
        return shown_by(log, place, start, end, topics[place[0]].partitions, rewritten)

    found = dict.fromkeys(topics, Shown())
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="keys") as pool:
        for (place, *_), one in zip(ranges, pool.map(lambda given: read(*given), ranges), strict=True):
            found[place[0]] |= one
    return found


def shown_by(
    log: KeyLog[R],
    place: TopicPartition,
    start: int,
    end: int,
    partitions: int,
    rewritten: Callable[[R], bool] = lambda records: False,
) -> Shown:
    """What the records [start, end) of a partition show; the arguments are as for `shown_in`."""
    shown = Shown()
    for records in log.read(*place, start, end):
        keys = records.key_list()
        keyed = len(keys) - keys.count(None)
        shown |= Shown(len(keys), keyed, functions_of_keys(keys, place[1], partitions), rewritten(records))
    return shown


def _spread(places: Sequence[TopicPartition]) -> Iterator[TopicPartition]:
    """Some of the partitions, spread evenly from the first to the last."""
    count = min(len(places), _PARTITIONS)
    return (places[n * len(places) // count] for n in range(count))


def _both_ends(begin: int, end: int) -> list[tuple[int, int]]:
    """The first and the last offsets of a partition: both are read, since its producers may have changed."""
    if end - begin <= 2 * _RECORDS:
        return [(begin, end)]
    return [(begin, begin + _RECORDS), (end - _RECORDS, end)]
