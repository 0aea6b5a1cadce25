"""A cluster as the driver sees it: topics with records that nobody else writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.columns import RecordColumns
from state.commit.marker import CommitMarker
from state.errors import KafkaClientError
from state.kafka.topics import TopicInfo

Place = tuple[str, int]
CONTROL = None
"""What a transaction leaves behind."""


class Cluster:
    """Does what is asked of `KafkaAdmin` and `LiveKafka` here."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[bytes | None]]] = {}
        self.groups: dict[str, dict[Place, int]] = {}
        self.protected: set[str] = set()
        self.open: set[Place] = set()
        self.asked: list[str] = []

    def put(self, topic: str, *values: bytes | None, partition: int = 0, partitions: int = 1) -> Cluster:
        logs = self.topics.setdefault(topic, [[] for _ in range(partitions)])
        logs[partition] += values
        return self

    def commit(self, topic: str, application_id: str, stores: Sequence[str] = (), **changes: Any) -> Cluster:
        """A marker and the control record of its transaction."""
        return self.put(topic, marker(application_id, stores, **changes).to_bytes(), CONTROL)

    # What the admin client does.

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(f"id-{name}", len(self.topics[name])) for name in names if name in self.topics}

    def begin_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 0)

    def end_offsets(self, places: Iterable[Place], committed: bool = True) -> dict[Place, int]:
        return {
            place: len(self.topics[place[0]][place[1]]) + (not committed and place in self.open) for place in places
        }

    def max_timestamps(self, places: Iterable[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 7)

    def group_offsets(self, group: str, places: Iterable[Place]) -> dict[Place, int]:
        return {place: at for place, at in self.groups.get(group, {}).items() if place in set(places)}

    def delete_topics(self, names: Iterable[str]) -> None:
        refused = []
        for name in names:
            if name in self.protected:
                refused.append(name)
            elif self.topics.pop(name, None) is not None:
                self.asked.append(name)
        if refused:
            raise KafkaClientError(f"deleting topic {refused[0]!r} failed; check the brokers and the rights")

    def delete_group(self, group: str) -> bool:
        self.asked.append(f"group {group}")
        return self.groups.pop(group, None) is not None

    # What is read.

    def begin_offset(self, place: Place) -> int:
        return 0

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        found = [(at, value) for at, value in enumerate(self.topics[topic][partition]) if start <= at < end and value]
        if found:
            offsets, values = zip(*found, strict=True)
            none = pa.nulls(len(values), pa.binary())
            times = np.zeros(len(values), np.int64)
            yield RecordColumns(topic, partition, np.array(offsets), times, none, pa.array(values, pa.binary()))


def marker(application_id: str, stores: Sequence[str] = (), **changes: Any) -> CommitMarker:
    fields: dict[str, Any] = {
        "query_id": "query-1",
        "task": 0,
        "tasks": 1,
        "topology_hash": "hash",
        "version": 1,
        "batch_id": 0,
        "batch": "b0",
        "ranges": {},
        "topic_ids": {},
        "stream_time": 1,
        "operator_state": {},
        "changelog_ends": dict.fromkeys(stores, 1),
        "expired_before": {},
        "counts": {},
        "changelog_hash": "",
        "now_ms": 1,
        "application_id": application_id,
    }
    return CommitMarker(**{**fields, **changes})


def files(root: Any) -> Mapping[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
