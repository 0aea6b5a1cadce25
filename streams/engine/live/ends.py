"""The end of a run over the records that exist (`available_now`): how far the live tasks have read, as the driver knows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from state.kafka.topics import TopicPartition
from streams.topology.plan import SubTopology


class RunEnd:
    """Finds out whether all records that existed at the start of a run are processed, and all that came of them. Thread-safe.

    Args:
        subs: The sub-topologies.
        until: The offset at which reading ends, for each partition of topics from outside.
    """

    def __init__(self, subs: Sequence[SubTopology], until: Mapping[TopicPartition, int]) -> None:
        self._until = until
        topics = {topic for topic, _ in until}
        self._outside = {sub.name: topics & set(sub.topics) for sub in subs}
        self._inside = {sub.name: set(sub.topics) - topics for sub in subs}
        self._lock = threading.Lock()
        self._read: dict[tuple[str, TopicPartition], int] = {}
        self._written: Mapping[TopicPartition, int] = {}

    def hear(self, sub: str, read: Iterable[Sequence[Any]]) -> None:
        """Notes the positions up to which a task has read and committed, with nothing left to do."""
        with self._lock:
            self._read |= {(sub, (topic, number)): at for topic, number, at in read}

    def positions(self) -> Mapping[str, Mapping[TopicPartition, tuple[int, int]]]:
        """Sub-topology -> for each partition, the position read so far and the position where the run ends."""
        with self._lock:
            ends, found = {**self._written, **self._until}, dict(self._read)
        return {
            name: {place: (at, ends.get(place, at)) for (sub, place), at in found.items() if sub == name}
            for name in self._outside
        }

    def is_reached(
        self, paused: Collection[str], written: Callable[[Sequence[str]], Mapping[TopicPartition, int]]
    ) -> bool:
        """Whether the run is over.

        Args:
            paused: Sub-topologies that read nothing at present. Records that they have left are for another run.
            written: Asks Kafka for the ends of topics, records in open transactions included.
        """
        # The positions read come first, then the ends: a step under way now has read records that are still missing from the
        # positions.
        with self._lock:
            read = dict(self._read)
        subs = [sub for sub in self._outside if sub not in paused]

        def have_read(topics: Mapping[str, Collection[str]], ends: Mapping[TopicPartition, int]) -> bool:
            return all(
                read.get((sub, place), -1) >= end
                for sub in subs
                for place, end in ends.items()
                if place[0] in topics[sub]
            )

        # Until the ends of the last answer are reached, there is no point in asking again.
        if not have_read(self._outside, self._until) or not have_read(self._inside, self._written):
            return False
        inside = sorted(set().union(*(self._inside[sub] for sub in subs)))
        self._written = written(inside) if inside else {}
        return have_read(self._inside, self._written)
