"""The end of a run over what is there (`available_now`): what the driver knows of how far the live tasks have read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from state.kafka.topics import TopicPartition
from streams.topology.plan import SubTopology


class RunEnd:
    """Whether everything is read that was there at the start of a run, and everything that came of it. Thread-safe.

    Args:
        subs: The sub-topologies.
        until: Where reading ends in the partitions of topics from outside.
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
        """Takes in the positions up to which a task has read and committed, and has nothing left to do."""
        with self._lock:
            self._read |= {(sub, (topic, number)): at for topic, number, at in read}

    def positions(self) -> Mapping[str, Mapping[TopicPartition, tuple[int, int]]]:
        """Sub-topology -> how far each partition is read, and where the run ends there."""
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
            paused: Sub-topologies that read nothing at present; what they have left is for another run.
            written: Asks Kafka for the ends of topics, records in open transactions included.
        """
        # First what was read, then what there is: a step that is under way now has read something that is still missing here.
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

        # As long as the ends of the last answer are not reached, another one would be of no use.
        if not have_read(self._outside, self._until) or not have_read(self._inside, self._written):
            return False
        inside = sorted(set().union(*(self._inside[sub] for sub in subs)))
        self._written = written(inside) if inside else {}
        return have_read(self._inside, self._written)
