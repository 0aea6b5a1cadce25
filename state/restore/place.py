"""The facts about an application's task that are known from Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from state.changelog import changelog_topic, commits_topic
from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.kafka.topics import TopicPartition
from state.stores.spec import StoreSpec


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task of an application, with the facts that are known from Kafka."""

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    topology_hash: str

    def identity(self, marker: CommitMarker | None = None) -> TaskIdentity:
        """The identity of the task in the query that wrote the marker; without a marker, in any query."""
        query_id = "" if marker is None else marker.query_id
        return TaskIdentity(self.application_id, self.sub_topology, self.task, self.tasks, query_id, self.topology_hash)

    def __str__(self) -> str:
        return f"task {self.task} of {self.tasks} of {self.application_id}/{self.sub_topology}"


@dataclass(frozen=True, slots=True)
class CopiedTask:
    """A task, and the stores of the task that a copy has."""

    place: TaskPlace
    specs: tuple[StoreSpec, ...]

    @property
    def commits(self) -> TopicPartition:
        """The partition of its commit markers, which stands for the task in consumer groups."""
        return commits_topic(self.place.application_id, self.place.sub_topology), self.place.task

    @property
    def changelogs(self) -> list[TopicPartition]:
        return [(changelog_topic(self.place.application_id, spec.name), self.place.task) for spec in self.specs]
