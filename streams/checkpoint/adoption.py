"""The contents of a new checkpoint for state that is in Kafka, derived from the commit markers. Pure functions.

The last micro-batch that any task has committed, N, may have been committed by only some of the tasks. So the new query begins
by repeating N as its micro-batch 0, over exactly the same ranges: tasks that have committed N get a marker of micro-batch 0,
and skip it; the others get a marker of micro-batch -1, and run it. Records that N did not read for a task that has committed it
stay unread: micro-batch 1 begins there.

If N is complete, nothing is repeated, and the new query begins where N ended: its records may be deleted already, and a changed
program may route them otherwise.

Everything is written down as one plan before the first marker is replaced, so that an interrupted adoption can be continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from state.commit.marker import FORMAT, CommitMarker
from state.kafka.topics import TopicPartition
from streams.checkpoint.compare import Markers, SubIdentity, misfit
from streams.source.offsets import FirstBatch, SourceOffsets, TopicOffsets, batch_digest

NEVER = -1
"""The micro-batch in the marker of a task that has yet to run the first one."""


@dataclass(frozen=True)
class Adoption:
    """The plan of an adoption for one sub-topology.

    Attributes:
        query_id: The query id of the new checkpoint.
        first: Where the new query's first micro-batch begins and ends.
        versions: Task -> the version of its last marker, which stays; without tasks that have never committed.
        done: The tasks that have already committed that micro-batch; none if it is empty, because nothing is repeated.
    """

    query_id: str
    first: FirstBatch
    versions: Mapping[int, int]
    done: frozenset[int]

    def marker(self, old: CommitMarker) -> CommitMarker:
        """A task's new marker, for the new query, with the version and state of the old one."""
        end = self.first.end or self.first.start
        done = old.task in self.done
        return replace(
            old,
            query_id=self.query_id,
            batch_id=0 if done else NEVER,
            batch=batch_digest(self.first.start, end) if done else "",
            # Where no micro-batch is repeated (positions were moved), what the last one read says nothing about the next.
            ranges=old.ranges if self.done else {},
            adopted=old.version,
            # A changelog that was restored from a backup has another id, and is adopted with the rest.
            changelog_ids={},
            format=FORMAT,
        )

    def pending(self, markers: Markers) -> list[int] | None:
        """The tasks whose markers are still to be replaced; None if the plan was made for other markers."""
        found = {task: marker for task, marker in markers.items() if marker is not None}
        if {task: marker.version for task, marker in found.items()} != dict(self.versions):
            return None
        return sorted(task for task, marker in found.items() if marker.query_id != self.query_id)

    def begun(self, markers: Markers) -> bool:
        """Whether a marker has been replaced already."""
        return any(marker is not None and marker.query_id == self.query_id for marker in markers.values())

    def to_json(self) -> dict[str, Any]:
        versions = {str(task): version for task, version in sorted(self.versions.items())}
        return {**self.first.to_json(), "query_id": self.query_id, "versions": versions, "done": sorted(self.done)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Adoption:
        versions = {int(task): int(version) for task, version in data["versions"].items()}
        return cls(data["query_id"], FirstBatch.from_json(data), versions, frozenset(data["done"]))


def last_batch(markers: Markers) -> int:
    """The last micro-batch that any task has committed."""
    return max(marker.batch_id for marker in markers.values() if marker is not None)


def done_ranges(sub: SubIdentity, markers: Markers) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges that the last micro-batch has read for the tasks that have committed it.

    Raises:
        CheckpointMismatchError: The tasks disagree: their markers come from different queries.
    """
    batch = last_batch(markers)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for task, marker in sorted(markers.items()):
        if marker is None or marker.batch_id != batch:
            continue
        for topic, of in marker.ranges.items():
            for partition, ends in of.items():
                known = found.setdefault((topic, int(partition)), ends)
                if known != ends:
                    raise misfit(
                        sub,
                        f"tasks have committed micro-batch {batch} with different ranges of {topic}-{partition}: {known} and, "
                        f"task {task}, {ends}. Their markers are not of one query",
                        "Keep the topics as they are, and report this.",
                    )
    return found


def plan_adoption(
    sub: SubIdentity,
    markers: Markers,
    topic_ids: Mapping[str, str],
    positions: Mapping[TopicPartition, int],
    global_topics: Mapping[str, TopicOffsets],
    query_id: str,
    confirmed: bool = False,
) -> Adoption:
    """Plans the new checkpoint of a sub-topology.

    Raises:
        CheckpointMismatchError: The markers contradict each other.
    """
    ranges, batch = done_ranges(sub, markers), last_batch(markers)
    starts = {place: ranges.get(place, (at, at))[0] for place, at in positions.items()}
    ends = {place: ranges.get(place, (at, at))[1] for place, at in positions.items()}
    found = {task: marker for task, marker in markers.items() if marker is not None}
    versions = {task: marker.version for task, marker in found.items()}
    done = frozenset(task for task, marker in found.items() if marker.batch_id == batch != NEVER)
    if confirmed or done == markers.keys():
        at = SourceOffsets(_topics(topic_ids, ends))
        return Adoption(query_id, FirstBatch(at, at), versions, frozenset())
    # The same clock as before: timestamps too far ahead must be rejected again, so that tasks get the same rows.
    now_ms = max(marker.now_ms for marker in found.values() if marker.batch_id == batch)
    end = SourceOffsets(_topics(topic_ids, ends), global_topics=global_topics, now_ms=now_ms)
    first = FirstBatch(SourceOffsets(_topics(topic_ids, starts)), end)
    return Adoption(query_id, first, versions, done)


def _topics(topic_ids: Mapping[str, str], at: Mapping[TopicPartition, int]) -> dict[str, TopicOffsets]:
    numbers: dict[str, list[int]] = {name: [] for name in sorted(topic_ids)}
    for topic, partition in sorted(at):
        numbers[topic].append(at[topic, partition])
    return {name: TopicOffsets(topic_ids[name], tuple(of)) for name, of in numbers.items()}
