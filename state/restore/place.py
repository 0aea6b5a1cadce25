"""A task of an application, as far as Kafka knows it."""

from __future__ import annotations

from dataclasses import dataclass

from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task of an application, as far as Kafka knows it."""

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    topology_hash: str

    def identity(self, marker: CommitMarker | None = None) -> TaskIdentity:
        """The task, as of the query that wrote the marker; without one, of whatever query."""
        query_id = "" if marker is None else marker.query_id
        return TaskIdentity(self.application_id, self.sub_topology, self.task, self.tasks, query_id, self.topology_hash)

    def __str__(self) -> str:
        return f"task {self.task} of {self.tasks} of {self.application_id}/{self.sub_topology}"
